"""How log lines look: for people, or one JSON object a line for machines. Always on stderr.

Whatever a call gives as `extra=` (`task`, `scope`, `agent`, ...) becomes fields of the line in both forms.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any, Final, Literal

from dragoman.core.trace import CURRENT_TRACE, trace_id_of

_PLAIN: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
"""What every record has; the rest came with `extra=`."""


class TextLines(logging.Formatter):
    """`22:17:05 WARNING dragoman.runtime: text  task=… agent=…`, then the traceback if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        when = datetime.fromtimestamp(record.created).strftime("%H:%M:%S")
        fields = "".join(f" {name}={value}" for name, value in _extras(record).items())
        line = f"{when} {record.levelname} {record.name}: {record.getMessage()}"
        return "\n".join((line + fields, *_trace(self, record)))


class JsonLines(logging.Formatter):
    """One object: `time`, `level`, `logger`, `message`, the fields, and `exception` if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **_extras(record),
        }
        if trace := _trace(self, record):
            line["exception"] = "\n".join(trace)
        return json.dumps(line, ensure_ascii=False, default=str)


FORMS: Final = {"text": TextLines, "json": JsonLines}


def configure(form: Literal["text", "json"]) -> None:
    """Sends everything from INFO up to stderr in this form, in place of what was configured before."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(FORMS[form]())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
    # A line for each request is for machines that count; a person at a terminal wants to see what went wrong.
    logging.getLogger("dragoman.access").setLevel(logging.INFO if form == "json" else logging.WARNING)


def _extras(record: logging.LogRecord) -> dict[str, Any]:
    found = {name: value for name, value in vars(record).items() if name not in _PLAIN}
    if context := CURRENT_TRACE.get():  # of whoever writes the line, which is formatted at once
        found.setdefault("trace", trace_id_of(context))
    return found


def _trace(formatter: logging.Formatter, record: logging.LogRecord) -> list[str]:
    lines = []
    if record.exc_info:
        lines.append(formatter.formatException(record.exc_info))
    if record.stack_info:
        lines.append(formatter.formatStack(record.stack_info))
    return lines
