"""Log lines of the commands that serve: formats, levels, and tracebacks of agents."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any, Final, Literal

from dragoman.cli import escape_controls
from dragoman.core.errors import InvalidAgentResponse
from dragoman.core.exceptions import format_traceback, is_a, is_own_file, stack_of, walk
from dragoman.core.trace import CURRENT_TRACE, CURRENT_TURN, trace_id_of
from dragoman.supervision import describe_fault, is_expected

_STANDARD_FIELDS: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
"""Attributes of every log record; all others were passed as `extra=`."""


class TextLogFormatter(logging.Formatter):
    """`22:17:05 WARNING dragoman.runtime: text  task=… agent=…`, followed by the traceback, if any.

    A record is one line, and the lines of its traceback are indented: no text of a caller can pass for a record.
    """

    def format(self, record: logging.LogRecord) -> str:
        when = datetime.fromtimestamp(record.created).strftime("%H:%M:%S")
        fields = "".join(f" {name}={value}" for name, value in _extra_fields(record).items())
        if record.name == "dragoman.turns":  # the message has them
            fields = ""
        line = f"{when} {record.levelname} {record.name}: {_message(record)}"
        trace = "\n".join(_traceback_lines(self, record)).splitlines()
        return "\n".join((escape_controls(line + fields), *(f"  {escape_controls(each)}" for each in trace)))


class JsonLogFormatter(logging.Formatter):
    """One JSON object per record: `time`, `level`, `logger`, `message`, the extra fields, and `exception`, if any.

    Control characters that JSON allows in strings, such as C1, are escaped too: people read logs on terminals.
    """

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": _message(record),
            **_extra_fields(record),
        }
        if trace := _traceback_lines(self, record):
            line["exception"] = "\n".join(trace)
        return escape_controls(json.dumps(line, ensure_ascii=False, default=str))


LOG_FORMATTERS: Final = {"text": TextLogFormatter, "json": JsonLogFormatter}

LogFormat = Literal["text", "json"]
LogLevel = Literal["debug", "info", "warning", "error"]

_LIBRARIES: Final = ("aiohttp", "asyncio", "grpc")
"""Loggers of what we use. Their DEBUG lines are about their insides; `debug` is for ours and for those of agents."""


def configure_logging(log_format: LogFormat, level: LogLevel = "info", *, development: bool | None = None) -> None:
    """Logs to stderr in this format, from this level up, replacing any earlier configuration.

    development: whether each turn is a line; None: if people read the text on a terminal. In production turns are
    lines at the level `debug` only: one for each would flood the log. Requests are lines in JSON, for log collectors.
    """
    lowest = getattr(logging, level.upper())
    release_own_loggers()
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LOG_FORMATTERS[log_format]())
    handler.addFilter(shorten_library_fault)
    logging.root.handlers[:] = [handler]
    logging.lastResort = handler  # for lines that no handler gets when an agent's code has removed this one
    for name in ("", _OWN_NAME, *_LIBRARIES):
        logging.getLogger(name).setLevel(max(lowest, logging.INFO) if name in _LIBRARIES else lowest)
    shows_turns = log_format == "text" and sys.stderr.isatty() if development is None else development
    for name, shown in (("dragoman.access", log_format == "json"), ("dragoman.turns", shows_turns)):
        logging.getLogger(name).setLevel(lowest if shown or level == "debug" else max(lowest, logging.WARNING))
    retain_own_loggers()


_OWN_NAME: Final = "dragoman"


class _OwnManager:
    """The manager of all loggers, but without `logging.disable`. Each logger reads it for each line."""

    disable = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(logging.root.manager, name)


class _OwnLogger(logging.Logger):
    """A logger that an agent's code cannot turn off. It can add handlers."""

    def __setattr__(self, name: str, value: object) -> None:  # not properties: each line reads these
        if name not in ("disabled", "level", "propagate"):
            super().__setattr__(name, value)


def _own_loggers(kind: type[logging.Logger]) -> list[logging.Logger]:
    """The loggers of the server that exist and are of exactly this class."""
    loggers = list(logging.root.manager.loggerDict.items())
    return [one for name, one in loggers if name.partition(".")[0] == _OWN_NAME and type(one) is kind]


def retain_own_loggers() -> None:
    """Keeps the level of the server's loggers, and their way to stderr, when an agent's code configures logging.

    `logging.config` disables every logger that its configuration does not name, by default. Alembic's `env.py` and most
    examples do that, others set the level of all loggers, and the cause of a failed turn would be nowhere.
    """
    for logger in _own_loggers(logging.Logger):
        logger.__class__, logger.manager = _OwnLogger, _OwnManager()  # type: ignore[assignment]


def release_own_loggers() -> None:
    """Makes the server's loggers ordinary ones again."""
    for logger in _own_loggers(_OwnLogger):
        logger.__class__, logger.manager = logging.Logger, logging.root.manager


def shorten_library_fault(record: logging.LogRecord) -> bool:
    """Replaces a library's traceback by one line with what to do, if the error comes from outside of the code."""
    error = record.exc_info[1] if record.exc_info else None
    if error is not None and not record.name.startswith("dragoman") and is_expected(error):
        record.msg, record.args = f"{record.getMessage()[:200]}: {describe_fault(error)}", ()
        record.exc_info = record.exc_text = None
    return True


MAX_MESSAGE_CHARS: Final = 20_000  # of a record: nobody reads more, and the event loop waits while a line is written


def _message(record: logging.LogRecord) -> str:
    message = record.getMessage()
    if len(message) <= MAX_MESSAGE_CHARS:
        return message
    return f"{message[:MAX_MESSAGE_CHARS]}… ({len(message)} characters)"


def _extra_fields(record: logging.LogRecord) -> dict[str, Any]:
    fields = {name: value for name, value in vars(record).items() if name not in _STANDARD_FIELDS}
    if context := CURRENT_TRACE.get():  # records are formatted in the context that logs them
        fields.setdefault("trace", trace_id_of(context))
    if turn := CURRENT_TURN.get():
        fields.setdefault("task", turn[0])
        fields.setdefault("agent", turn[1])
    return fields


def _traceback_lines(formatter: logging.Formatter, record: logging.LogRecord) -> list[str]:
    lines = []
    error = record.exc_info[1] if record.exc_info else None
    if error is not None and record.name == _AGENT_LOGGER and not logging.getLogger().isEnabledFor(logging.DEBUG):
        if text := format_agent_error(error):
            lines.append(text)
    elif error is not None:
        lines.append(format_traceback(error))
    elif record.exc_text:  # of a child process
        lines.append(record.exc_text)
    if record.stack_info:
        lines.append(formatter.formatStack(record.stack_info))
    return lines


_AGENT_LOGGER: Final = "dragoman.agents"  # of failures of agents, whose tracebacks are for their authors

_REJECTED_VALUES: Final = (InvalidAgentResponse, TypeError)
"""Errors with which we reject a value of an author: a result, or a state that is not JSON."""


def format_agent_error(error: BaseException) -> str:
    """The traceback of an agent's failure, also of its causes. Without our frames, if there are others.

    Without them in any case if a value was rejected: the place where we checked it explains nothing. Empty if no frame
    is left. Other errors within our code alone keep their frames, for a report of a fault.
    """
    is_rejected = is_a(error, _REJECTED_VALUES)
    files = (frame.f_code.co_filename for one in walk(error) for frame, _ in stack_of(one))
    if not any(not (is_rejected and is_own_file(file)) for file in files):
        return ""
    return format_traceback(error, is_own_file, hides_all=is_rejected)
