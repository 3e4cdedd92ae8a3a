"""Log lines of the executor process: one JSON object per record, which the server reads."""

from __future__ import annotations

import json
import logging
import sys

from dragoman.extensions.frameworks import process
from dragoman.extensions.frameworks.child import logs
from dragoman.extensions.frameworks.child.target import InvalidTarget, load


def failed_record() -> logging.LogRecord:
    """A record whose traceback has frames of ours, and the test's."""
    try:
        load("no_such_module_anywhere:X")
    except InvalidTarget:
        return logging.makeLogRecord({"name": "mine", "levelno": 40, "msg": "no", "exc_info": sys.exc_info()})
    raise AssertionError


def test_a_record_is_one_line_with_its_task() -> None:
    token = logs.CURRENT_TASK.set("t1")
    line = logs.JsonLineFormatter(own_frames=False).format(
        logging.makeLogRecord({"name": "mine", "levelno": 30, "msg": "two\nlines %s", "args": ("é",)})
    )
    logs.CURRENT_TASK.reset(token)
    assert line.isascii()
    assert len(line.splitlines()) == 1
    fields = json.loads(line.removeprefix(logs.LOG_LINE_PREFIX))
    assert fields == {"level": 30, "logger": "mine", "message": "two\nlines é", "task": "t1"}


def test_a_traceback_has_no_frames_of_ours_unless_asked() -> None:
    record = failed_record()
    texts = [logs.JsonLineFormatter(own_frames=own).format(record) for own in (False, True)]
    assert ["target.py" in text for text in texts] == [False, True]
    assert all("test_logs.py" in text for text in texts)


def test_the_server_reads_what_the_child_writes() -> None:
    read = process.parse_log_line(logs.JsonLineFormatter(own_frames=False).format(failed_record()), "counter")
    assert read is not None
    assert (read.name, read.levelname, read.getMessage()) == ("mine", "ERROR", "no")
    assert read.__dict__["agent"] == "counter"
    assert (read.exc_text or "").startswith("Traceback")
    assert process.LOG_LINE_PREFIX == logs.LOG_LINE_PREFIX


def test_lines_that_are_no_records_are_copied() -> None:
    for line in ("", "printed", f"{logs.LOG_LINE_PREFIX}3", f"{logs.LOG_LINE_PREFIX}{{}}", f"{logs.LOG_LINE_PREFIX}{{"):
        assert process.parse_log_line(line, "counter") is None
