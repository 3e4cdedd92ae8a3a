"""Log records of the executor process, as JSON lines that the server writes to its own log.

The server gives them the level, the logger, the task and the traceback that they had here. Lines that are printed, or
that a logging configuration of the executor writes, are copied as they are.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from contextvars import ContextVar

from .exceptions import format_traceback

LOG_LINE_PREFIX = "dragoman: log: "
"""Before the JSON of a record: an object with `level`, `logger`, `message`, and, if known, `task` and `exception`."""

MAX_MESSAGE_CHARS = 20_000
"""Characters of a record's message: as many as the server writes."""

CURRENT_TASK: ContextVar[str] = ContextVar("dragoman-executor-task", default="")
"""The id of the task that the current code works for; empty outside of turns."""


def configure_logging(*, debug: bool) -> None:
    """Logs to stderr, unless the executor's module has configured logging itself.

    debug: everything, and tracebacks with the frames of this package.
    """
    if not logging.getLogger().handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(JsonLineFormatter(own_frames=debug))
        logging.basicConfig(handlers=[handler], level=logging.DEBUG if debug else logging.INFO)


OWN_FOLDER = os.path.dirname(os.path.abspath(__file__)) + os.sep


class JsonLineFormatter(logging.Formatter):
    """One line per record, also with a traceback."""

    def __init__(self, *, own_frames: bool) -> None:
        super().__init__()
        self._own_frames = own_frames

    def format(self, record: logging.LogRecord) -> str:
        line = {"level": record.levelno, "logger": record.name, "message": record.getMessage()[:MAX_MESSAGE_CHARS]}
        task = getattr(record, "task", "") or CURRENT_TASK.get()
        if task:
            line["task"] = task
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            # Without our frames, which call the executor, if there are others.
            line["exception"] = format_traceback(
                error, lambda file: not self._own_frames and file.startswith(OWN_FOLDER)
            )
        return LOG_LINE_PREFIX + json.dumps(line, default=str)
