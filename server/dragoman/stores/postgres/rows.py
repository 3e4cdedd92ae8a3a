"""Rows of one batch, sent as one array for each column: a statement costs the same round trip whatever it carries.

A text of PostgreSQL cannot hold U+0000, which a caller may well put into an id. So U+0000 and U+0001 are written as two
characters that compare as the one would, and nobody outside of this package sees it: single values go through a codec
of the connection, arrays through `column_arrays`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from asyncpg import Connection

from dragoman.core.names import Owner
from dragoman.core.task.log import TaskRecord, TaskRef
from dragoman.stores.shared.rows import RECORD_COLUMNS, qualified

COLUMN_TYPES: Final[Mapping[str, str]] = {"i": "bigint", "y": "bytea", "t": "text", "b": "boolean"}
"""The letters by which a statement says the types of its columns."""


def escape(text: str) -> str:
    """A text as it is stored."""
    if "\0" in text or "\1" in text:
        return text.replace("\1", "\1\2").replace("\0", "\1\1")
    return text


def unescape(text: str) -> str:
    """The text that is stored so."""
    return text.replace("\1\1", "\0").replace("\1\2", "\1") if "\1" in text else text


async def prepare_connection(connection: Connection) -> None:
    """Has a new connection write and read texts so."""
    async with connection.transaction():  # behind a pooler, a statement outside of one may lose its preparation
        await connection.set_type_codec("text", schema="pg_catalog", encoder=escape, decoder=unescape)
        # The library looks a type up when it first meets it: now rather than in a batch.
        await connection.fetch(f"SELECT {', '.join(f'NULL::{kind}[]' for kind in COLUMN_TYPES.values())}")


def column_arrays(types: str, rows: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """The columns of rows, as arguments."""
    if not rows:
        return [[] for _ in types]
    columns = [list(column) for column in zip(*rows, strict=True)]
    for at, kind in enumerate(types):
        if kind == "t":
            columns[at] = [value if value is None else escape(value) for value in columns[at]]
    return columns


def text_array(values: Iterable[str]) -> list[str]:
    """Texts as the argument that is an array of them."""
    return [escape(value) for value in values]


@dataclass(frozen=True, slots=True)
class PostgresBulkStatement:
    """A statement over rows: `{rows}` in it stands for a table of them, with these columns.

    kinds: the type of each column, a letter of TYPES. names: of the columns.
    """

    sql: str
    types: str
    names: str

    @cache  # noqa: B019 - statements are constants
    def sql_text(self, first: int = 1) -> str:
        """Its SQL, where its arguments begin with the number `first`."""
        marks = ", ".join(f"${number}::{COLUMN_TYPES[kind]}[]" for number, kind in enumerate(self.types, first))
        return self.sql.replace("{rows}", f"unnest({marks}) AS r({self.names})").replace("{names}", self.names)

    def columns(self, rows: Sequence[Sequence[Any]]) -> list[list[Any]]:
        """Its arguments for these rows."""
        return column_arrays(self.types, rows)

    async def run(self, connection: Connection, rows: Sequence[Sequence[Any]], *arguments: Any) -> None:
        """Executes it, if there are any rows. `more` are arguments after those of the rows."""
        if rows:
            await connection.execute(self.sql_text(), *column_arrays(self.types, rows), *arguments)

    async def fetch(self, connection: Connection, rows: Sequence[Sequence[Any]], *arguments: Any) -> Sequence[Any]:
        """What it gives for these rows."""
        if not rows:
            return ()
        found: Sequence[Any] = await connection.fetch(self.sql_text(), *column_arrays(self.types, rows), *arguments)
        return found


def insert_statement(table: str, types: str, names: str, after: str = "") -> PostgresBulkStatement:
    """A statement that adds rows to a table."""
    return PostgresBulkStatement(
        f"INSERT INTO {table} ({{names}}) SELECT {{names}} FROM {{rows}} {after}", types, names
    )


@cache
def combine_statements(statements: Sequence[PostgresBulkStatement]) -> str:
    """One statement that does what all of these do, none of which sees what the others do. Arguments in order."""
    parts, first = [], 1
    for number, statement in enumerate(statements):
        parts.append(f"done{number} AS ({statement.sql_text(first)})")
        first += len(statement.types)
    return f"WITH {', '.join(parts)} SELECT"


RECORD_TYPES: Final = "ttt" + "i" * 8 + "iibb" + "iibtbt"

MUTABLE_TYPES: Final = "i" * 8 + "iibb" + "iib"
"""The types of RECORD_COLUMNS and MUTABLE_COLUMNS."""

TABLE_RECORD_COLUMNS: Final = qualified(RECORD_COLUMNS, "t")
"""RECORD_COLUMNS of `tasks t`."""

RECORD_WIDTH: Final = len(RECORD_TYPES)


def record_from_row(ref: TaskRef, row: Sequence[Any]) -> TaskRecord:
    """The record in a row that begins with RECORD_COLUMNS."""
    return TaskRecord(ref, *row[:RECORD_WIDTH])


def records_with_owners(rows: Iterable[Sequence[Any]]) -> list[TaskRecord]:
    """The records in rows of scope, principal, key and RECORD_COLUMNS."""
    return [record_from_row(TaskRef(Owner(row[0], row[1]), row[2]), row[3:]) for row in rows]
