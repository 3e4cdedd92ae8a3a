"""Classifies errors of SQLite and its files, and maps them to errors for callers and advice for operators."""

from __future__ import annotations

import errno
import sqlite3
import time
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Final
from uuid import UUID

from dragoman.core.errors import Unavailable, lacks_memory
from dragoman.stores.shared.errors import FAULT, ErrorRow, StoreFault, Verdict, new_failure

_refused: Final = partial(ErrorRow, Verdict.REFUSED)
_RESTORE: Final = (
    "move it away with the files beside it that begin with its name, and restore a backup (dragoman restore)"
)
_DAMAGED: Final = f"the file is damaged; {_RESTORE}"
_UNREADABLE: Final = "this user may not open the file; check the owner and permissions of the file and its folder"

ERROR_TABLE: Final[Mapping[int, ErrorRow]] = {
    # Statements and values that our code got wrong, and codes that are no errors.
    **dict.fromkeys(
        (
            sqlite3.SQLITE_ERROR, sqlite3.SQLITE_INTERNAL, sqlite3.SQLITE_NOTFOUND, sqlite3.SQLITE_EMPTY,
            sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_MISUSE,
            sqlite3.SQLITE_FORMAT, sqlite3.SQLITE_RANGE, sqlite3.SQLITE_NOTICE, sqlite3.SQLITE_WARNING,
            sqlite3.SQLITE_ROW, sqlite3.SQLITE_DONE, sqlite3.SQLITE_OK,
        ),
        FAULT,
    ),
    sqlite3.SQLITE_PERM: _refused("cannot be opened", _UNREADABLE),
    sqlite3.SQLITE_AUTH: _refused("cannot be opened", _UNREADABLE),
    sqlite3.SQLITE_ABORT: ErrorRow(Verdict.REPEAT, "was interrupted"),
    sqlite3.SQLITE_INTERRUPT: ErrorRow(Verdict.REPEAT, "was interrupted"),
    sqlite3.SQLITE_SCHEMA: ErrorRow(Verdict.REPEAT, "is being migrated"),
    sqlite3.SQLITE_ERROR_RETRY: ErrorRow(Verdict.REPEAT, "is being migrated"),
    sqlite3.SQLITE_ERROR_SNAPSHOT: ErrorRow(Verdict.REPEAT, "is busy"),
    sqlite3.SQLITE_BUSY_SNAPSHOT: ErrorRow(Verdict.REPEAT, "is busy"),
    **dict.fromkeys((sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL), ErrorRow(
        Verdict.BLOCKED, "is locked", "another program has locked the file; find out which program opens it")),
    sqlite3.SQLITE_NOMEM: _refused("is out of memory", "memory is used up; raise its limit"),
    sqlite3.SQLITE_IOERR_NOMEM: _refused("is out of memory", "memory is used up; raise its limit"),
    sqlite3.SQLITE_READONLY: _refused(
        "cannot be written", "the file cannot be written; check the owner and the mount of the file and its folder"
    ),
    sqlite3.SQLITE_IOERR: _refused(
        "does not respond", "the disk fails to read or write, or is full; see its free space and the system log"
    ),
    sqlite3.SQLITE_CORRUPT: _refused("is damaged", _DAMAGED, keeps_data=False),
    sqlite3.SQLITE_FULL: _refused(
        "is full", "the disk is full; free some space, nothing that was acknowledged is lost"
    ),
    sqlite3.SQLITE_CANTOPEN: _refused(
        "cannot be opened",
        "the file cannot be opened; check that it and its folder exist and can be written, and that this process may "
        "open more files (ulimit -n)",
    ),
    sqlite3.SQLITE_NOLFS: _refused("is full", "the file system takes no larger files"),
    sqlite3.SQLITE_NOTADB: _refused(
        "is damaged",
        f"the file is not a SQLite database, or its header is damaged; {_RESTORE}",
        keeps_data=False,
    ),
}  # fmt: skip
"""By extended result code, else by primary result code (https://www.sqlite.org/rescode.html)."""

_FILE_OUTAGES: Final[Mapping[int, str]] = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), "is full"),
    **dict.fromkeys((errno.EMFILE, errno.ENFILE), "may open no more files"),
    **dict.fromkeys((errno.EROFS, errno.EACCES), "cannot be written"),
}
"""By error of the system, for files beside the database: the text for callers."""

_FILE_ADVICE: Final[Mapping[int, str]] = {
    **dict.fromkeys((errno.EACCES, errno.EPERM), _UNREADABLE),
    errno.EROFS: "the folder is there, but its file system is read-only; mount it for writing, or choose another",
    errno.ENOTDIR: "a part of the path is a file; choose another folder",
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "the disk is full, or a quota is used up; free some space"),
}
"""By error of the system, for operators: what to do about a file that cannot be created."""

DATABASE_ERRORS: Final = (sqlite3.Error, OSError, MemoryError)
"""All errors that the tables decide. Everything else is of our code, and is raised as it is."""


def row_of(error: BaseException) -> ErrorRow:
    """The row of an error; FAULT for one of our code and for unknown result codes."""
    if isinstance(error, OSError):  # of a file beside the database
        return _refused(_FILE_OUTAGES.get(error.errno or 0, "does not respond"))
    code = getattr(error, "sqlite_errorcode", None)
    if not isinstance(code, int):
        return FAULT
    return ERROR_TABLE.get(code) or ERROR_TABLE.get(code & 0xFF, FAULT)


def failure_of(error: BaseException, *, is_write: bool = True) -> Unavailable | StoreFault:
    """A new exception for callers, caused by one of DATABASE_ERRORS. See `new_failure`."""
    return new_failure(error, row_of(error), is_write=is_write)


def failure_or_self(error: Exception) -> Exception:
    """The exception for the caller of a write: an error of our code stays itself."""
    return failure_of(error) if isinstance(error, DATABASE_ERRORS) or lacks_memory(error) else error


def explain(error: BaseException) -> str:
    """SQLite's message, the reason, and what to do. One line."""
    if isinstance(error, OSError) and (file_advice := _FILE_ADVICE.get(error.errno or 0)):
        return f"{error}: {file_advice}"
    advice = _DAMAGED_TEXT_ADVICE if is_undecodable(error) else row_of(error).advice
    # SQLITE_IOERR has dozens of extended codes with one text.
    is_io = getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_IOERR
    text = f"{error} ({getattr(error, 'sqlite_errorname', '')})" if is_io else str(error)
    return f"{text}: {advice}" if advice else text


# Damaged text --------------------------------------------------------------------------------------------------------

_DAMAGED_TEXT_ADVICE: Final = (
    "it is read with replacement characters, and everything else is served; keep a copy of the file, then restore a "
    "backup (dragoman restore) or erase the task (dragoman purge --task)"
)

DAMAGE_SEARCH_SECONDS: Final = 5.0  # for the search, which reads every row
MAX_DAMAGE_LINES: Final = 20


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
                if value is not None and value.decode(errors="replace").encode() != value:
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
