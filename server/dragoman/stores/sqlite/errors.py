"""Maps errors of SQLite to errors for callers and advice for operators."""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Mapping
from typing import Final

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
    sqlite3.SQLITE_IOERR: "the disk fails to read or write; see the system log",
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
    advice = _ADVICE.get(result_code(error))
    return f"{error}: {advice}" if advice else str(error)


def result_code(error: BaseException) -> int:
    """The primary result code of a SQLite error; -1 for any other exception."""
    code = getattr(error, "sqlite_errorcode", None)
    return code & 0xFF if isinstance(code, int) else -1
