"""Rows of one batch, sent as one array for each column: a statement costs the same round trip whatever it carries.

A text of PostgreSQL cannot hold U+0000, which a caller may well put into an id. So U+0000 and U+0001 are written as two
characters that compare as the one would, and nobody outside of this package sees it: single values go through a codec
of the connection, arrays through `arrays`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from asyncpg import Connection

TYPES: Final[Mapping[str, str]] = {"i": "bigint", "y": "bytea", "t": "text", "b": "boolean"}
"""The letters by which a statement says the types of its columns."""


def escape(text: str) -> str:
    """A text as it is stored."""
    if "\0" in text or "\1" in text:
        return text.replace("\1", "\1\2").replace("\0", "\1\1")
    return text


def unescape(text: str) -> str:
    """The text that is stored so."""
    return text.replace("\1\1", "\0").replace("\1\2", "\1") if "\1" in text else text


async def prepare(connection: Connection) -> None:
    """Has a new connection write and read texts so."""
    async with connection.transaction():  # behind a pooler, a statement outside of one may lose its preparation
        await connection.set_type_codec("text", schema="pg_catalog", encoder=escape, decoder=unescape)
        # The library looks a type up when it first meets it: now rather than in a batch.
        await connection.fetch(f"SELECT {', '.join(f'NULL::{kind}[]' for kind in TYPES.values())}")


def arrays(kinds: str, rows: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """The columns of rows, as arguments."""
    if not rows:
        return [[] for _ in kinds]
    columns = [list(column) for column in zip(*rows, strict=True)]
    for at, kind in enumerate(kinds):
        if kind == "t":
            columns[at] = [value if value is None else escape(value) for value in columns[at]]
    return columns


def texts(values: Iterable[str]) -> list[str]:
    """Texts as the argument that is an array of them."""
    return [escape(value) for value in values]


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement over rows: `{rows}` in it stands for a table of them, with these columns.

    kinds: the type of each column, a letter of TYPES. names: of the columns.
    """

    sql: str
    kinds: str
    names: str

    @cache  # noqa: B019 - statements are constants
    def text(self, first: int = 1) -> str:
        """Its SQL, where its arguments begin with the number `first`."""
        marks = ", ".join(f"${number}::{TYPES[kind]}[]" for number, kind in enumerate(self.kinds, first))
        return self.sql.replace("{rows}", f"unnest({marks}) AS r({self.names})").replace("{names}", self.names)

    def columns(self, rows: Sequence[Sequence[Any]]) -> list[list[Any]]:
        """Its arguments for these rows."""
        return arrays(self.kinds, rows)

    async def run(self, connection: Connection, rows: Sequence[Sequence[Any]], *more: Any) -> None:
        """Executes it, if there are any rows. `more` are arguments after those of the rows."""
        if rows:
            await connection.execute(self.text(), *arrays(self.kinds, rows), *more)

    async def fetch(self, connection: Connection, rows: Sequence[Sequence[Any]], *more: Any) -> Sequence[Any]:
        """What it gives for these rows."""
        if not rows:
            return ()
        found: Sequence[Any] = await connection.fetch(self.text(), *arrays(self.kinds, rows), *more)
        return found


def insert(table: str, kinds: str, names: str, after: str = "") -> Statement:
    """A statement that adds rows to a table."""
    return Statement(f"INSERT INTO {table} ({{names}}) SELECT {{names}} FROM {{rows}} {after}", kinds, names)


@cache
def together(statements: Sequence[Statement]) -> str:
    """One statement that does what all of these do, none of which sees what the others do. Arguments in order."""
    parts, first = [], 1
    for number, statement in enumerate(statements):
        parts.append(f"done{number} AS ({statement.text(first)})")
        first += len(statement.kinds)
    return f"WITH {', '.join(parts)} SELECT"
