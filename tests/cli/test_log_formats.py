"""The two formats of log lines."""

from __future__ import annotations

import json
import logging
import sys

import pytest

from dragoman.cli import process_setup


def record(**extra: object) -> logging.LogRecord:
    log_record = logging.LogRecord("dragoman.test", logging.WARNING, __file__, 1, "late by %d s", (3,), None)
    vars(log_record).update(extra)
    return log_record


def test_a_text_line_has_the_fields_after_the_message() -> None:
    line = process_setup.TextLogFormatter().format(record(task="t1", agent="echo"))
    assert line.endswith(" WARNING dragoman.test: late by 3 s task=t1 agent=echo")
    assert process_setup.TextLogFormatter().format(record()).endswith("late by 3 s")


def test_a_json_line_is_one_object() -> None:
    fields = json.loads(process_setup.JsonLogFormatter().format(record(task="t1", pages=2)))
    assert fields.pop("time").endswith("+00:00")
    assert fields == {
        "level": "WARNING",
        "logger": "dragoman.test",
        "message": "late by 3 s",
        "task": "t1",
        "pages": 2,
    }


def test_a_traceback_is_a_json_field_and_follows_a_text_line() -> None:
    try:
        raise ValueError("no")
    except ValueError:
        failed = record(exc_info=sys.exc_info())
    assert "\n" not in process_setup.JsonLogFormatter().format(failed)
    assert json.loads(process_setup.JsonLogFormatter().format(failed))["exception"].endswith("ValueError: no")
    assert process_setup.TextLogFormatter().format(failed).endswith("ValueError: no")


def test_values_unknown_to_json_are_written_as_text() -> None:
    assert json.loads(process_setup.JsonLogFormatter().format(record(path=b"x")))["path"] == "b'x'"


def test_configuring_twice_prints_once(capsys: pytest.CaptureFixture[str]) -> None:
    root = logging.getLogger()
    before = root.handlers[:], root.level
    try:
        process_setup.configure_logging("text")
        process_setup.configure_logging("json")
        logging.getLogger("dragoman").info("hello")
    finally:
        root.handlers[:], root.level = before
    assert json.loads(capsys.readouterr().err)["message"] == "hello"
