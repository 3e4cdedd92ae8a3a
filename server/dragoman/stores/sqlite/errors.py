"""Maps errors of SQLite to errors for callers and advice for operators."""

from __future__ import annotations

import errno
import sqlite3
import time
from collections.abc import Iterator, Mapping
from typing import Final
from uuid import UUID

from dragoman.core.errors import OutOfMemory, Unavailable, lacks_memory, out_of_memory

_ADVICE: Final[Mapping[int, str]] = {
    sqlite3.SQLITE_NOTADB: (
        "the file is not a SQLite database, or its header is damaged; move it away, and restore a backup"
    ),
    sqlite3.SQLITE_CORRUPT: "the file is damaged; keep it, and restore a backup (dragoman restore)",
    sqlite3.SQLITE_READONLY: "the file cannot be written; check the owner and the mount of the file and its folder",
    sqlite3.SQLITE_PERM: "this user may not open the file; check the owner and permissions of the file and its folder",
    sqlite3.SQLITE_CANTOPEN: (
        "the file cannot be opened; check that it and its folder exist and can be written, and that this process may "
        "open more files (ulimit -n)"
    ),
    sqlite3.SQLITE_FULL: "the disk is full; free some space, nothing that was acknowledged is lost",
    sqlite3.SQLITE_IOERR: "the disk fails to read or write, or is full; see its free space and the system log",
    sqlite3.SQLITE_BUSY: "another program has locked the file; find out which program opens it",
    sqlite3.SQLITE_LOCKED: "another program has locked the file; find out which program opens it",
}
"""By primary result code: reason and remedy."""


_OUTAGES: Final[Mapping[int, str]] = {
    sqlite3.SQLITE_NOTADB: "is damaged",
    sqlite3.SQLITE_CORRUPT: "is damaged",
    sqlite3.SQLITE_READONLY: "cannot be written",
    sqlite3.SQLITE_PERM: "cannot be opened",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened",
    sqlite3.SQLITE_FULL: "is full",
    sqlite3.SQLITE_IOERR: "does not respond",
    sqlite3.SQLITE_BUSY: "is locked",
    sqlite3.SQLITE_LOCKED: "is locked",
}
"""By primary result code: the text for callers. It names no file."""


_FILE_OUTAGES: Final[Mapping[int, str]] = {
    errno.ENOSPC: "is full",
    errno.EDQUOT: "is full",
    errno.EFBIG: "is full",
    errno.EMFILE: "may open no more files",
    errno.ENFILE: "may open no more files",
    errno.EROFS: "cannot be written",
    errno.EACCES: "cannot be written",
}
"""By error of the system, for files beside the database: the text for callers."""


def map_error(error: Exception, *, is_write: bool = True) -> Exception:
    """The exception to raise for an error of SQLite: Unavailable when it concerns the file, otherwise the error itself.

    is_write: a write failed, and was not done. A failed read may belong to a request that is already done.
    """
    if lacks_memory(error):  # SQLite's own SQLITE_NOMEM is a MemoryError, too
        return error if isinstance(error, OutOfMemory) else out_of_memory(error)
    if isinstance(error, OSError):  # of a file beside the database
        outage: str | None = _FILE_OUTAGES.get(error.errno or 0, "does not respond")
    else:
        outage = _OUTAGES.get(result_code(error))
    if outage is None:
        return error
    undone = ", this request was not done" if is_write else ""
    unavailable = Unavailable(f"the store {outage}; what it has acknowledged is safe{undone}")
    unavailable.__cause__ = error
    return unavailable


def explain(error: BaseException) -> str:
    """SQLite's message, the reason, and what to do. One line."""
    if isinstance(error, PermissionError):
        return f"{error}: {_ADVICE[sqlite3.SQLITE_PERM]}"
    code = result_code(error)
    advice = _DAMAGED_TEXT_ADVICE if is_undecodable(error) else _ADVICE.get(code)
    # SQLITE_IOERR has dozens of extended codes with one text.
    text = f"{error} ({getattr(error, 'sqlite_errorname', '')})" if code == sqlite3.SQLITE_IOERR else str(error)
    return f"{text}: {advice}" if advice else text


def result_code(error: BaseException) -> int:
    """The primary result code of a SQLite error; -1 for any other exception."""
    code = getattr(error, "sqlite_errorcode", None)
    return code & 0xFF if isinstance(code, int) else -1


# Damaged text --------------------------------------------------------------------------------------------------------

_DAMAGED_TEXT_ADVICE: Final = (
    "it is read with replacement characters, and everything else is served; keep a copy of the file, then restore a "
    "backup (dragoman restore) or erase the task (dragoman purge --task)"
)

DAMAGE_SEARCH_SECONDS: Final = 5.0
"""Longest search for damaged text, which reads every row."""

MAX_DAMAGE_LINES: Final = 20
"""Damaged texts that are named."""


def is_undecodable(error: BaseException) -> bool:
    """Whether a text in the file is not UTF-8: SQLite stores any bytes as text, and Python rejects them."""
    return isinstance(error, sqlite3.OperationalError) and str(error).startswith("Could not decode to UTF-8")


def tolerate_damaged_text(connection: sqlite3.Connection) -> None:
    """Makes a connection read invalid UTF-8 with replacement characters.

    Not by default: sqlite3 decodes text itself, and a function that it calls for each text costs a read 7 % more.
    """
    connection.text_factory = lambda text: text.decode(errors="replace")


def damaged_texts(connection: sqlite3.Connection) -> Iterator[str]:
    """A line for each damaged text: its table, column and task, and what to do. One line if none was found in time."""
    deadline, count = time.monotonic() + DAMAGE_SEARCH_SECONDS, 0
    for table, columns in _text_columns(connection).items():
        key = "task" if "task" in columns else "NULL"
        texts = [column for column, kind in columns.items() if kind == "TEXT"]
        casts = ", ".join(f"CAST({column} AS BLOB)" for column in texts)
        for row in connection.execute(f"SELECT {key}, {casts} FROM {table}") if texts else ():
            for column, value in zip(texts, row[1:], strict=True):
                if value is not None and not _is_utf8(value):
                    count += 1
                    task = f", task {UUID(bytes=row[0])}" if isinstance(row[0], bytes) and len(row[0]) == 16 else ""
                    yield f"table {table}, column {column}{task}: the text is damaged: {_DAMAGED_TEXT_ADVICE}"
            if count >= MAX_DAMAGE_LINES or time.monotonic() > deadline:
                break
    if not count:
        yield f"a text is damaged: {_DAMAGED_TEXT_ADVICE}"


def _text_columns(connection: sqlite3.Connection) -> dict[str, dict[str, str]]:
    """The columns of each table with their types."""
    tables = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
    return {
        table: {row[1]: row[2] for row in connection.execute(f"PRAGMA table_info({table})")}
        for (table,) in tables.fetchall()
    }


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True
