"""Meaning of database errors for the failed operation, and the errors that leave a store.

Each store has one table in its `errors.py` that gives a row for every error of its database. `new_failure` makes
a new exception of an error and its row, so that no error is ever raised from itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from dragoman.core.errors import Unavailable, lacks_memory, out_of_memory


class StoreFault(Exception):
    """A statement failed as it would fail again. The cause says why; this text names no data."""


class Verdict(Enum):
    """Meaning of an error for the operation that failed."""

    REPEAT = "the database rolled it back and works: it is repeated at once; unavailable if that fails, too"
    LOST = "the connection is gone, or cannot be opened: it is repeated on another one; then unavailable"
    LATE = "the database did not respond in time: the connection is closed; unavailable"
    BLOCKED = "a lock was not free in time: unavailable"
    REFUSED = "the database cannot do it now: unavailable"
    BROKEN = "the database cannot do it now, perhaps for this data only: neighbors are tried alone; unavailable"
    FAULT = "the database works, and it would fail again in the same way: a StoreFault"


@dataclass(frozen=True, slots=True)
class ErrorRow:
    """A row of the table of a store's errors."""

    verdict: Verdict
    outage: str = "does not respond"
    """For callers: "the store ...". It names no file, host or user."""
    advice: str = ""  # for operators: the reason, and what to do
    keeps_data: bool = True  # whether the error says nothing against the data that is stored


FAULT: ErrorRow = ErrorRow(Verdict.FAULT)


def new_failure(
    error: BaseException, row: ErrorRow, *, is_write: bool = True, is_unknown: bool = False
) -> Unavailable | StoreFault:
    """A new exception for callers, caused by `error`.

    is_write: a write failed, and was not done. A failed read may belong to a request that is already done. is_unknown:
    an attempt of this write may have been done.
    """
    if lacks_memory(error) and not is_unknown:  # drivers wrap the MemoryError in errors of their own
        return out_of_memory(error)
    failure: Unavailable | StoreFault
    if is_unknown:
        failure = Unavailable(
            "the store stopped responding during a commit: it is not known whether this request was done, "
            "so check before you repeat it"
        )
        failure.outcome_unknown = True
    elif row.verdict is Verdict.FAULT:
        failure = StoreFault("the store rejected a statement; the log of the server says why")
    else:
        undone = ", this request was not done" if is_write else ""
        known = "what it has acknowledged is safe" if row.keeps_data else "some of what it has acknowledged may be lost"
        failure = Unavailable(f"the store {row.outage}; {known}{undone}")
    failure.__cause__ = error
    return failure
