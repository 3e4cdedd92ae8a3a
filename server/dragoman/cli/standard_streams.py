"""The standard streams of a command, which may be missing, full, or unable to encode a text.

Results on stdout matter: a command fails with one line if they cannot be written. Notes, progress and logs on stderr
stop nothing.
"""

from __future__ import annotations

import codecs
import io
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

ESCAPING: Final = "dragoman-escape"
"""Name of the error handler of both streams."""


def prepare_streams() -> None:
    """Opens the standard streams that the caller has closed, and makes every text writable on the others.

    Without them the first files that are opened would get their numbers, and libuv aborts when it closes one of these.
    """
    codecs.register_error(ESCAPING, escape_unencodable)
    # Opened for the wrong direction, as gnulib's `stdopen` does: a command that uses it still gets an error.
    for number, mode in ((0, os.O_WRONLY), (1, os.O_RDONLY), (2, os.O_RDONLY)):
        _open_if_closed(number, mode)
    sys.stdin = sys.stdin or io.TextIOWrapper(io.BufferedReader(io.FileIO(0, "rb", closefd=False)))
    sys.stdout = sys.stdout or _writer(1, io.TextIOWrapper)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors=ESCAPING)
    if sys.stderr is None or sys.stderr is sys.__stderr__:  # not if a test or a library has replaced it
        sys.stderr = _writer(2, _DispensableWriter)


def escape_unencodable(error: UnicodeError) -> tuple[str, int]:
    """Escapes characters that an encoding lacks as JSON does, so that JSON stays JSON. An error handler of `codecs`."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    units = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass")
    escaped = "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
    return escaped, error.end


def finish_stdout(run: Callable[[], object]) -> str:
    """Runs a command and writes what it has left in stdout. Returns why that failed; empty if it did not.

    A reader that left, as in `| head`, is no failure.
    """
    try:
        try:
            run()
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        discard_stdout()
    except OSError as error:
        if error.filename is not None:  # of a file of the command
            raise
        discard_stdout()
        return f"the output cannot be written: {error.strerror or error}"
    return ""


def write_if_possible(text: str) -> None:
    """Writes a line to stdout, whose loss stops nothing."""
    try:
        print(text, flush=True)
    except OSError:
        discard_stdout()


def discard_stdout() -> None:
    """Sends stdout to nowhere: Python writes what it has buffered at its end, which would fail again."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _open_if_closed(number: int, mode: int) -> None:
    try:
        os.fstat(number)
    except OSError:
        opened = os.open(os.devnull, mode)
        if opened != number:
            os.dup2(opened, number)
            os.close(opened)


def _writer(number: int, kind: type[io.TextIOWrapper]) -> Any:
    """A text stream on this descriptor, which writes each line at once."""
    raw = io.FileIO(number, "wb", closefd=False)
    encoding = getattr(sys.__stderr__, "encoding", None)  # as PYTHONIOENCODING says
    return kind(io.BufferedWriter(raw), encoding, ESCAPING, line_buffering=True)


class _DispensableWriter(io.TextIOWrapper):
    """A stream whose loss stops nothing."""

    def write(self, text: str) -> int:
        with suppress(OSError):
            return super().write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            super().flush()
