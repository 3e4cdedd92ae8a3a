"""Statements over many rows.

Each execution of a statement releases the interpreter lock several times, and a thread then waits to get it back from a
busy event loop. So rows of one table are written by one statement, never by `executemany`.
"""

from __future__ import annotations

import sqlite3
from bisect import bisect_right
from collections.abc import Sequence
from itertools import chain
from typing import Any, Final

# sqlite3 looks for a conversion of each value that is not exactly an int, float, str or bytearray. Without one, two
# AttributeErrors are raised and dropped, which takes longer than binding. These conversions return what would be bound.
# A bytearray needs none: with those instead of bytes a batch of 32 rows takes a twentieth fewer instructions.
sqlite3.register_adapter(bytes, bytes)
sqlite3.register_adapter(bool, int)
sqlite3.register_adapter(type(None), lambda _: None)

STATEMENT_SIZES: Final = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
"""Rows in one statement: few sizes, so that few statements have to be kept prepared (`schema.CACHED_STATEMENTS`)."""

LARGE_VALUE_BYTES: Final = 64 * 1024
"""A statement with a larger value is executed again without rows, so that SQLite frees its copies of the values."""

Database = sqlite3.Connection | sqlite3.Cursor
"""A connection, or a cursor that is used again: each execution on a connection makes a cursor."""


class SqliteBulkStatement:
    """A statement over rows of `width` values each; VALUES comes between `before` and `after`.

    A prepared statement keeps a copy of its values until it is executed again, and Python cannot clear them. So a batch
    with large values is executed a second time, with NULL for all values and a condition that is false.
    """

    def __init__(self, before: str, width: int, after: str = "", large: tuple[int, ...] = ()) -> None:
        """large: the columns with values that can be large. They are never NULL."""
        self._before = before
        self._width = width
        self._after = after
        self._large = large
        self._sql = {1: f"{before} {self._values(1)} {after}"}
        """The text for each number of rows that was needed."""

    def run(self, database: Database, rows: Sequence[tuple[Any, ...]]) -> None:
        if len(rows) == 1 and not self._has_large_value(rows):  # of a lone caller
            database.execute(self._sql[1], rows[0])
            return
        for batch in _batches(rows):
            if self._has_large_value(batch):
                self._run_and_clear(database, batch)
            else:
                self._execute(database, batch)

    def fetch(self, database: Database, rows: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """The result rows for all rows, in any order."""
        return [found for batch in _batches(rows) for found in self._execute(database, batch).fetchall()]

    def _execute(self, database: Database, batch: Sequence[tuple[Any, ...]]) -> sqlite3.Cursor:
        size = len(batch)
        sql = self._sql.get(size)
        if sql is None:
            sql = self._sql[size] = f"{self._before} {self._values(size)} {self._after}"
        return database.execute(sql, list(chain.from_iterable(batch)))

    def _has_large_value(self, batch: Sequence[tuple[Any, ...]]) -> bool:
        for column in self._large:
            for row in batch:
                if len(row[column]) > LARGE_VALUE_BYTES:
                    return True
        return False

    def _run_and_clear(self, database: Database, batch: Sequence[tuple[Any, ...]]) -> None:
        sql = f"{self._before} SELECT * FROM ({self._values(len(batch))}) WHERE ? {self._after}"
        values = list(chain.from_iterable(batch))
        database.execute(sql, [*values, True])
        database.execute(sql, [None] * len(values) + [False])

    def _values(self, rows: int) -> str:
        row = f"({', '.join('?' * self._width)})"
        return f"VALUES {', '.join([row] * rows)}"


def _batches(rows: Sequence[tuple[Any, ...]]) -> Sequence[Sequence[tuple[Any, ...]]]:
    """Parts of a few sizes."""
    batches, at = [], 0
    while at < len(rows):
        size = STATEMENT_SIZES[bisect_right(STATEMENT_SIZES, len(rows) - at) - 1]
        batches.append(rows[at : at + size])
        at += size
    return batches


SELECT_OWNER: Final = "SELECT owner FROM owners WHERE scope = ? AND principal = ?"
TOTALS: Final = """(
    SELECT owner, agent, state, tasks FROM totals
    UNION ALL SELECT owner, agent, state, 1 FROM tasks INDEXED BY tasks_unlisted WHERE listed = 0 AND visible)"""
"""`totals`, with the tasks that are not listed yet."""
CLAIMED: Final = """(
    SELECT owner, task, session, principal FROM tasks INDEXED BY tasks_claimed WHERE session > 0 AND listed
    UNION ALL SELECT owner, task, session, principal FROM tasks INDEXED BY tasks_unlisted
    WHERE listed = 0 AND session > 0)"""
"""The tasks that a session runs."""
SELECT_BY_ALIAS: Final = "SELECT task, state FROM tasks WHERE owner = ? AND agent = ? AND id = ? AND alias"
