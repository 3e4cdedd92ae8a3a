"""The formats of log lines, their levels, and the tracebacks of agents."""

from __future__ import annotations

import asyncio
import contextvars
import io
import json
import logging
import logging.config
import re
import sys
import unicodedata
from collections.abc import Callable, Iterator
from typing import Final

import pytest
from tests.agents.turn_context import RecordingTurnContext
from tests.hostile import kinds

from dragoman import Turn, agent
from dragoman.cli import logs
from dragoman.core.trace import CURRENT_TURN


@pytest.fixture(autouse=True)
def restored_loggers() -> Iterator[None]:
    """Restores the loggers that a test configures."""
    known = [
        logging.root,
        *(one for one in logging.root.manager.loggerDict.values() if isinstance(one, logging.Logger)),
    ]
    before = [(one, one.__class__, {**vars(one), "handlers": one.handlers[:]}) for one in known]
    last_resort, disabled = logging.lastResort, logging.root.manager.disable
    yield
    for logger, kind, attributes in before:
        logger.__class__ = kind
        vars(logger).update(attributes)
    logging.lastResort = last_resort
    logging.disable(disabled)  # drops the levels that loggers remember, too


def record(**extra: object) -> logging.LogRecord:
    log_record = logging.LogRecord("dragoman.test", logging.WARNING, __file__, 1, "late by %d s", (3,), None)
    vars(log_record).update(extra)
    return log_record


def test_a_text_line_has_the_fields_after_the_message() -> None:
    line = logs.TextLogFormatter().format(record(task="t1", agent="echo"))
    assert line.endswith(" WARNING dragoman.test: late by 3 s task=t1 agent=echo")
    assert logs.TextLogFormatter().format(record()).endswith("late by 3 s")


def test_a_json_line_is_one_object() -> None:
    fields = json.loads(logs.JsonLogFormatter().format(record(task="t1", pages=2)))
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
    assert "\n" not in logs.JsonLogFormatter().format(failed)
    assert json.loads(logs.JsonLogFormatter().format(failed))["exception"].endswith("ValueError: no")
    assert logs.TextLogFormatter().format(failed).endswith("ValueError: no")


FORGED: Final = "t1\n22:17:05 WARNING dragoman.security: forged\r\x1b[2K\x7f\x9b1A\u2028\u2029\u202e\ud800"


def test_no_text_of_a_caller_adds_a_line_or_an_escape_sequence_to_a_log() -> None:
    try:
        raise ValueError(FORGED)
    except ValueError:
        info = sys.exc_info()
    for log_record in (record(task=FORGED), record(task=FORGED, exc_info=info), record(**{FORGED: 1})):
        text = logs.TextLogFormatter().format(log_record)
        first, *trace = text.split("\n")
        assert (
            "\\n22:17:05 WARNING dragoman.security: forged\\r\\u001b[2K\\u007f\\u009b1A\\u2028\\u2029\\u202e" in first
        )
        assert all(line.startswith("  ") for line in trace)
        line = logs.JsonLogFormatter().format(log_record)
        assert FORGED in (fields := json.loads(line)).values() or FORGED in fields
        for written in (text.replace("\n", ""), line):
            assert not [c for c in written if unicodedata.category(c) in ("Cc", "Zl", "Zp", "Cs") or c == "\u202e"]


def test_values_unknown_to_json_are_written_as_text() -> None:
    assert json.loads(logs.JsonLogFormatter().format(record(path=b"x")))["path"] == "b'x'"


def test_lines_of_an_agents_own_logger_name_its_task_and_agent() -> None:
    def format_in_turn() -> dict[str, object]:
        CURRENT_TURN.set(("t1", "echo"))
        return dict(json.loads(logs.JsonLogFormatter().format(record(agent="other"))))

    fields = contextvars.copy_context().run(format_in_turn)
    assert (fields["task"], fields["agent"]) == ("t1", "other")
    assert "task" not in json.loads(logs.JsonLogFormatter().format(record()))


async def test_tracebacks_of_agents_have_no_frames_of_ours(caplog: pytest.LogCaptureFixture) -> None:
    @agent
    def fails(turn: Turn) -> None:
        try:
            turn.metadata["x"] = object()
            turn.status("storing")
        except Exception as error:
            raise ExceptionGroup("two", [KeyError("k"), ValueError("v")]) from error

    await fails.take_turn(RecordingTurnContext("go"))
    [failed] = [one for one in caplog.records if one.name == "dragoman.agents"]
    text = logs.TextLogFormatter().format(failed)
    files = set(re.findall(r'File "([^"]+)"', text))
    assert files == {__file__}
    assert 'turn.status("storing")' in text
    assert "direct cause" in text
    assert "KeyError: 'k'" in text
    failed.name = "dragoman.runtime"
    assert "runner.py" in logs.TextLogFormatter().format(failed)


async def test_a_rejected_value_is_one_line_without_our_frames(caplog: pytest.LogCaptureFixture) -> None:
    @agent
    def returns(turn: Turn) -> int:
        return 2**60

    @agent
    async def stores(turn: Turn) -> None:
        turn.state["x"] = (1, 2)

    for it, reason in ((returns, "InvalidAgentResponse: the returned value: "), (stores, 'TypeError: turn.state["x"]')):
        await it.take_turn(RecordingTurnContext("go"))
        for formatter in (logs.TextLogFormatter(), logs.JsonLogFormatter()):
            text = formatter.format(caplog.records[-1]).replace('\\"', '"')
            assert f"failed: {reason}" in text
            assert "\n" not in text
            assert "exception" not in text


def test_the_level_debug_shows_all_frames_of_a_failed_agent(caplog: pytest.LogCaptureFixture) -> None:
    try:
        agent(3)  # type: ignore[call-overload]
    except TypeError:
        failed = logging.makeLogRecord({"name": "dragoman.agents", "msg": "failed", "exc_info": sys.exc_info()})
    text = logs.TextLogFormatter().format
    assert "declaration.py" not in text(failed)
    caplog.set_level(logging.DEBUG)
    assert "declaration.py" in text(failed)


async def test_a_failure_within_our_code_alone_keeps_its_frames() -> None:
    future = asyncio.ensure_future(agent_of_no_turn.take_turn(None))  # type: ignore[arg-type]
    await asyncio.wait([future])
    error = future.exception()
    assert error is not None
    assert "agents/functions/" in logs.format_agent_error(error)


@agent
def agent_of_no_turn(turn: Turn) -> None: ...


@pytest.mark.parametrize(
    ("log_format", "level", "development", "shown"),
    [
        ("text", "info", True, ["turns", "own"]),
        ("text", "info", None, ["own"]),
        ("json", "info", None, ["access", "own"]),
        ("text", "debug", None, ["access", "turns", "own", "own debug"]),
        ("json", "debug", None, ["access", "turns", "own", "own debug"]),
        ("json", "warning", True, []),
    ],
)
def test_the_level_decides_which_lines_are_written(
    log_format: logs.LogFormat, level: logs.LogLevel, development: bool | None, shown: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    logs.configure_logging(log_format, level, development=development)
    logging.getLogger("dragoman.access").info("line access")
    logging.getLogger("dragoman.turns").info("line turns")
    logging.getLogger("mine").info("line own")
    logging.getLogger("mine").debug("line own debug")
    logging.getLogger("asyncio").debug("line of a library")
    assert re.findall(r"line ([a-z ]*[a-z])", capsys.readouterr().err) == shown


def test_configuring_twice_prints_once(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure_logging("text")
    logs.configure_logging("json")
    logging.getLogger("dragoman").info("hello")
    logging.getLogger("mine").info("hello")
    assert [json.loads(line)["message"] for line in capsys.readouterr().err.splitlines()] == ["hello", "hello"]


def configures_all() -> None:
    logging.config.dictConfig({"version": 1, "root": {"level": "WARNING"}})


def configures_ours() -> None:
    ours = {"level": "CRITICAL", "handlers": [], "propagate": False}
    logging.config.dictConfig({"version": 1, "loggers": {"dragoman": ours, "dragoman.agents": ours}})


def configures_a_level_only() -> None:
    logging.config.dictConfig({"version": 1, "incremental": True, "loggers": {"dragoman": {"level": "CRITICAL"}}})


def configures_every_logger() -> None:
    for logger in list(map(logging.getLogger, logging.root.manager.loggerDict)):
        logger.handlers.clear()
        logger.setLevel(logging.CRITICAL)
        logger.propagate = False


def configures_from_file() -> None:
    text = "[loggers]\nkeys=root\n[handlers]\nkeys=\n[formatters]\nkeys=\n[logger_root]\nlevel=ERROR\nhandlers=\n"
    logging.config.fileConfig(io.StringIO(text))


@pytest.mark.parametrize(
    "configure",
    [
        configures_all, configures_ours, configures_a_level_only, configures_every_logger, configures_from_file,
        logging.disable, logging.root.handlers.clear, lambda: logging.basicConfig(force=True, level="ERROR"),
    ],
)  # fmt: skip
def test_our_lines_go_on_when_an_agent_configures_logging(
    configure: Callable[[], None], capsys: pytest.CaptureFixture[str]
) -> None:
    logs.configure_logging("text")
    logger = logging.getLogger("dragoman.agents")
    assert logger.isEnabledFor(logging.INFO)  # as a logger remembers its level
    configure()
    logger.info("one")
    logger.error("two")
    assert [line[-3:] for line in capsys.readouterr().err.splitlines()] == ["one", "two"]


def test_a_handler_that_an_agent_adds_to_ours_gets_our_lines(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure_logging("text")
    written = io.StringIO()
    logging.getLogger("dragoman").addHandler(logging.StreamHandler(written))
    logging.getLogger("dragoman.agents").info("one")
    assert written.getvalue() == "one\n"
    assert capsys.readouterr().err.endswith("one\n")


def test_the_lines_of_an_agent_go_where_its_configuration_says(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure_logging("text")
    configures_all()
    logging.getLogger("mine").warning("hello")
    assert "dragoman" not in capsys.readouterr().err


@pytest.mark.parametrize("make", kinds.EXCEPTIONS.values(), ids=kinds.EXCEPTIONS)
@pytest.mark.parametrize("name", ["dragoman.agents", "dragoman.runtime", "asyncio"])
def test_a_line_about_any_exception_is_written_within_limits(make: Callable[[], BaseException], name: str) -> None:
    error = make()
    failed = logging.makeLogRecord({"name": name, "levelname": "ERROR", "msg": "x" * 1_000_000})
    failed.exc_info = (type(error), error, None)
    logs.shorten_library_fault(failed)
    for formatter in (logs.TextLogFormatter(), logs.JsonLogFormatter()):
        assert len(formatter.format(failed)) < 200_000
