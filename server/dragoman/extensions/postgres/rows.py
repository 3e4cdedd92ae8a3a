"""Statements over many rows, sent as one array for each column: one round trip, however many rows.

A text of PostgreSQL cannot contain U+0000, which a caller may put into an id. So U+0000 and U+0001 are stored as two
characters that sort like the original, invisible outside of this package: single values go through a codec of the
connection, arrays through `column_arrays`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from operator import itemgetter
from typing import Any, Final

from asyncpg import Connection

from dragoman.stores.shared.rows import MUTABLE_COLUMNS, TASK_COLUMNS

COLUMN_TYPES: Final[Mapping[str, str]] = {"i": "bigint", "y": "bytea", "t": "text", "b": "boolean"}
"""The letters that stand for column types."""


def escape(text: str) -> str:
    """The stored form of a text."""
    if "\0" in text or "\1" in text:
        return text.replace("\1", "\1\2").replace("\0", "\1\1")
    return text


def unescape(text: str) -> str:
    """The text of a stored form."""
    return text.replace("\1\1", "\0").replace("\1\2", "\1") if "\1" in text else text


async def prepare_connection(connection: Connection) -> None:
    """Installs the text codec on a new connection."""
    # Behind a pooler, a statement outside of a transaction may lose its preparation.
    async with connection.transaction(isolation="read_committed", readonly=True):
        await connection.set_type_codec("text", schema="pg_catalog", encoder=escape, decoder=unescape)
        # The library looks a type up on its first use: now rather than in a batch.
        await connection.fetch(f"SELECT {', '.join(f'NULL::{kind}[]' for kind in COLUMN_TYPES.values())}")


def column_arrays(types: str, rows: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """Rows as arguments: one array for each column."""
    if not rows:
        return [[] for _ in types]
    columns = [list(column) for column in zip(*rows, strict=True)]
    for at, kind in enumerate(types):
        if kind == "t":
            columns[at] = [value if value is None else escape(value) for value in columns[at]]
    return columns


def text_array(values: Iterable[str]) -> list[str]:
    """Texts as an array argument."""
    return [escape(value) for value in values]


@dataclass(frozen=True, slots=True)
class PostgresBulkStatement:
    """A statement over rows: `{rows}` in its SQL stands for a table `r` of them.

    `{own}` compares with the range of the rows' task keys. It is known before the statement reads anything, and limits
    it to the partitions of these tasks; the rows are sorted by task then.

    types: a letter of COLUMN_TYPES for each column. names: of the columns.
    """

    sql: str
    types: str
    names: str

    @cache  # noqa: B019 - statements are constants
    def sql_text(self, first: int = 1) -> str:
        """The SQL, with arguments numbered from `first`."""
        marks = ", ".join(f"${number}::{COLUMN_TYPES[kind]}[]" for number, kind in enumerate(self.types, first))
        sql = self.sql.replace("{rows}", f"unnest({marks}) AS r({self.names})").replace("{names}", self.names)
        if "{own}" in sql:
            keys = f"${first + self._task}::bytea[]"
            sql = sql.replace("{own}", f"BETWEEN ({keys})[1] AND ({keys})[cardinality({keys})]")
        return sql

    @property
    def _task(self) -> int:
        return self.names.split(", ").index("task")

    def columns(self, rows: Sequence[Sequence[Any]]) -> list[list[Any]]:
        """The arguments for these rows."""
        if "{own}" in self.sql and len(rows) > 1:
            rows = sorted(rows, key=itemgetter(self._task))
        return column_arrays(self.types, rows)

    async def run(self, connection: Connection, rows: Sequence[Sequence[Any]], *arguments: Any) -> None:
        """Executes it, if there are any rows. `arguments` come after those of the rows."""
        if rows:
            await connection.execute(self.sql_text(), *self.columns(rows), *arguments)

    async def fetch(self, connection: Connection, rows: Sequence[Sequence[Any]], *arguments: Any) -> Sequence[Any]:
        """The result rows for these rows."""
        if not rows:
            return ()
        result: Sequence[Any] = await connection.fetch(self.sql_text(), *self.columns(rows), *arguments)
        return result


def insert_statement(table: str, types: str, names: str, after: str = "") -> PostgresBulkStatement:
    """A statement that inserts rows into a table; `after` follows, such as ON CONFLICT."""
    return PostgresBulkStatement(
        f"INSERT INTO {table} ({{names}}) SELECT {{names}} FROM {{rows}} {after}", types, names
    )


@cache
def combine_statements(statements: Sequence[PostgresBulkStatement]) -> str:
    """One statement that runs all of these on the same snapshot. Their arguments follow each other."""
    parts, first = [], 1
    for number, statement in enumerate(statements):
        parts.append(f"done{number} AS ({statement.sql_text(first)})")
        first += len(statement.types)
    return f"WITH {', '.join(parts)} SELECT"


_TYPES: Final = {"str": "t", "int": "i", "bool": "b"}
RECORD_TYPES: Final = "".join(_TYPES[kind] for kind in TASK_COLUMNS.values())
MUTABLE_TYPES: Final = "".join(_TYPES[TASK_COLUMNS[name]] for name in MUTABLE_COLUMNS.split(", "))
"""The types of RECORD_COLUMNS and MUTABLE_COLUMNS."""
