"""Statements over many rows.

Each execution of a statement releases the interpreter lock several times, and a thread then waits to get it back from a
busy event loop. So rows of one table are written by one statement, never by `executemany`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

# sqlite3 looks for a conversion of each value that is not exactly an int, float, str or bytearray. Without one, two
# AttributeErrors are raised and dropped, which takes longer than binding. These conversions return what would be bound.
sqlite3.register_adapter(bytes, bytes)
sqlite3.register_adapter(bool, int)
sqlite3.register_adapter(type(None), lambda _: None)

MAX_STATEMENT_ROWS: Final = 64
"""Rows in one statement. Smaller batches are powers of two, so that few statements have to be kept prepared."""

LARGE_VALUE_BYTES: Final = 64 * 1024
"""A statement with a larger value is executed again without rows, so that SQLite frees its copies of the values."""


@dataclass(frozen=True, slots=True, eq=False)
class SqliteBulkStatement:
    """A statement over rows of `width` values each; VALUES comes between `before` and `after`.

    A prepared statement keeps a copy of its values until it is executed again, and Python cannot clear them. So a batch
    with large values is executed a second time, with NULL for all values and a condition that is false.
    """

    before: str
    width: int
    after: str = ""
    large: tuple[int, ...] = ()
    """The columns with values that can be large."""

    def run(self, connection: sqlite3.Connection, rows: Sequence[tuple[Any, ...]]) -> None:
        """Executes it for all rows."""
        for batch in self._batches(rows):
            values = [value for row in batch for value in row]
            if any(len(row[column] or b"") > LARGE_VALUE_BYTES for row in batch for column in self.large):
                sql = _bulk_sql(self, len(batch), conditional=True)
                connection.execute(sql, [*values, True])
                connection.execute(sql, [None] * len(values) + [False])
            else:
                connection.execute(_bulk_sql(self, len(batch)), values)

    def fetch(self, connection: sqlite3.Connection, rows: Sequence[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
        """The result rows for all rows, in any order."""
        for batch in self._batches(rows):
            yield from connection.execute(
                _bulk_sql(self, len(batch)), [value for row in batch for value in row]
            ).fetchall()

    def _batches(self, rows: Sequence[tuple[Any, ...]]) -> Iterator[Sequence[tuple[Any, ...]]]:
        at = 0
        while at < len(rows):
            size = min(MAX_STATEMENT_ROWS, 1 << (len(rows) - at).bit_length() - 1)
            yield rows[at : at + size]
            at += size


@cache
def _bulk_sql(statement: SqliteBulkStatement, rows: int, *, conditional: bool = False) -> str:
    row = f"({', '.join('?' * statement.width)})"
    values = f"VALUES {', '.join([row] * rows)}"
    if conditional:
        values = f"SELECT * FROM ({values}) WHERE ?"
    return f"{statement.before} {values} {statement.after}"


@dataclass(slots=True)
class SqlitePendingRows:
    """Rows of one table that are not written yet."""

    statement: SqliteBulkStatement
    rows: list[tuple[Any, ...]] = field(default_factory=list)

    def add(self, row: tuple[Any, ...]) -> None:
        self.rows.append(row)

    def write(self, connection: sqlite3.Connection) -> None:
        """Writes the pending rows."""
        if self.rows:
            self.statement.run(connection, self.rows)
            self.rows = []
