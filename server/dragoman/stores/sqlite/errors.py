"""What is wrong with a database, in words that say what to do."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import Final

from dragoman.core.errors import Unavailable

_ADVICE: Final[Mapping[int, str]] = {
    sqlite3.SQLITE_NOTADB: "it is no SQLite database, or its beginning is damaged; move it away, and restore a backup",
    sqlite3.SQLITE_CORRUPT: "it is damaged; keep the file, and restore a backup (dragoman restore)",
    sqlite3.SQLITE_READONLY: "it cannot be written; see who owns the file and its folder, and how they are mounted",
    sqlite3.SQLITE_PERM: "this user may not open it; see who owns the file and its folder",
    sqlite3.SQLITE_CANTOPEN: "the file cannot be opened; see whether it and its folder are there and may be written",
    sqlite3.SQLITE_FULL: "there is no room left; free some on its disk, nothing that was acknowledged is lost",
    sqlite3.SQLITE_IOERR: "its disk fails to read or write; see the system's log",
    sqlite3.SQLITE_BUSY: "another program has locked the file; see what else opens it",
    sqlite3.SQLITE_LOCKED: "another program has locked the file; see what else opens it",
}
"""By primary result code."""


_OUTAGES: Final[Mapping[int, str]] = {
    sqlite3.SQLITE_NOTADB: "is damaged",
    sqlite3.SQLITE_CORRUPT: "is damaged",
    sqlite3.SQLITE_READONLY: "cannot be written",
    sqlite3.SQLITE_PERM: "cannot be opened",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened",
    sqlite3.SQLITE_FULL: "is full",
    sqlite3.SQLITE_IOERR: "does not answer",
    sqlite3.SQLITE_BUSY: "is locked",
    sqlite3.SQLITE_LOCKED: "is locked",
}
"""What callers are told: that it is not their fault, and nothing of our files."""


def map_error(error: Exception, *, is_write: bool = True) -> Exception:
    """What to raise for an error of SQLite: Unavailable when it is about the file, otherwise the error itself.

    wrote: a write met it, and is not done. What only was to be read may belong to a request that is done already.
    """
    said = _OUTAGES.get(result_code(error))
    if said is None:
        return error
    undone = ", this request is not done" if is_write else ""
    unavailable = Unavailable(f"the store {said}; what it has acknowledged is safe{undone}")
    unavailable.__cause__ = error
    return unavailable


def explain(error: BaseException) -> str:
    """What the trouble is and what helps, with SQLite's own words."""
    if isinstance(error, PermissionError):
        return f"{error}: {_ADVICE[sqlite3.SQLITE_PERM]}"
    said = _ADVICE.get(result_code(error))
    return f"{error}: {said}" if said else str(error)


def result_code(error: BaseException) -> int:
    """The primary result code of an error of SQLite; -1 for anything else."""
    code = getattr(error, "sqlite_errorcode", None)
    return code & 0xFF if isinstance(code, int) else -1
