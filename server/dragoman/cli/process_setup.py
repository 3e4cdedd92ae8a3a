"""The event loop of commands that serve, and the signals that end them."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final, Literal

from dragoman.core.trace import CURRENT_TRACE, trace_id_of

_STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """What makes uvloop's loop where there is one; None for the standard one."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


class Signals:
    """SIGINT and SIGTERM: the first asks to stop, the second to stop now, the third does not ask."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[int] = asyncio.Queue()
        self._count = 0
        loop = asyncio.get_running_loop()
        for number in _STOP_SIGNALS:
            try:
                loop.add_signal_handler(number, self._on_signal, number)
            except NotImplementedError:  # Windows
                signal.signal(number, lambda came, _: (loop.call_soon_threadsafe(self._on_signal, came), None)[1])

    def _on_signal(self, number: int) -> None:
        self._count += 1
        if self._count > 2:
            os._exit(128 + number)  # what is committed is on disk, and what runs ends at the next start
        self._queue.put_nowait(number)

    async def next(self) -> int:
        """Waits for one."""
        return await self._queue.get()


EXTRA_OPEN_FILES: Final = 1024
"""For the store, its blobs, calls to others and what agents open."""

log = logging.getLogger("dragoman.serve")


def raise_open_file_limit(connections: int) -> None:
    """Asks the system for as many open files as two ports full of connections need; says so when it gives fewer."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    needed = 2 * connections + EXTRA_OPEN_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    allowed = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    except (OSError, ValueError):
        allowed = soft
    if allowed < needed:
        log.warning(
            "this process may open %d files, and %d connections at each port need %d; raise the limit (ulimit -n, "
            "LimitNOFILE), or lower --connections",
            allowed,
            connections,
            needed,
        )


_STANDARD_FIELDS: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
"""What every record has; the rest came with `extra=`."""


class TextLogFormatter(logging.Formatter):
    """`22:17:05 WARNING dragoman.runtime: text  task=… agent=…`, then the traceback if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        when = datetime.fromtimestamp(record.created).strftime("%H:%M:%S")
        fields = "".join(f" {name}={value}" for name, value in _extra_fields(record).items())
        line = f"{when} {record.levelname} {record.name}: {record.getMessage()}"
        return "\n".join((line + fields, *_traceback_lines(self, record)))


class JsonLogFormatter(logging.Formatter):
    """One object: `time`, `level`, `logger`, `message`, the fields, and `exception` if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **_extra_fields(record),
        }
        if trace := _traceback_lines(self, record):
            line["exception"] = "\n".join(trace)
        return json.dumps(line, ensure_ascii=False, default=str)


LOG_FORMATTERS: Final = {"text": TextLogFormatter, "json": JsonLogFormatter}


def configure_logging(log_format: Literal["text", "json"]) -> None:
    """Sends everything from INFO up to stderr in this form, in place of what was configured before."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LOG_FORMATTERS[log_format]())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
    # A line for each request is for machines that count; a person at a terminal wants to see what went wrong.
    logging.getLogger("dragoman.access").setLevel(logging.INFO if log_format == "json" else logging.WARNING)


def _extra_fields(record: logging.LogRecord) -> dict[str, Any]:
    found = {name: value for name, value in vars(record).items() if name not in _STANDARD_FIELDS}
    if context := CURRENT_TRACE.get():  # of whoever writes the line, which is formatted at once
        found.setdefault("trace", trace_id_of(context))
    return found


def _traceback_lines(formatter: logging.Formatter, record: logging.LogRecord) -> list[str]:
    lines = []
    if record.exc_info:
        lines.append(formatter.formatException(record.exc_info))
    if record.stack_info:
        lines.append(formatter.formatStack(record.stack_info))
    return lines
