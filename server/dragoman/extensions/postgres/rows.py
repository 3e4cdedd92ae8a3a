"""Statements over many rows, sent as one array for each column: one round trip, however many rows.

A text of PostgreSQL cannot contain U+0000, which a caller may put into an id. So U+0000 and U+0001 are stored as two
characters that sort like the original, invisible outside of this package: single values go through a codec of the
connection, arrays through `column_arrays`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import orjson
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


# Not BETWEEN: the planner guesses that a range has one row of 200, and reads all tasks between an old and a new one.
_OWN: Final = re.compile(r"([\w.]+) {own}")


@dataclass(frozen=True, slots=True)
class PostgresBulkStatement:
    """A statement over rows: `{rows}` in its SQL stands for a table `r` of them.

    `{own}` after a column compares it with the range of the rows' task keys: two more arguments, after those of the
    rows. They are known before the statement reads anything, and limit it to the partitions of these tasks.

    types: a letter of COLUMN_TYPES for each column. names: of the columns. as_json: all but contents are sent as one
    JSON document. asyncpg spends about 8 us on each array of any length, and a new task has 31 columns; but the planner
    expects more rows.
    """

    sql: str
    types: str
    names: str
    as_json: bool = False

    @cache  # noqa: B019 - statements are constants
    def sql_text(self, first: int = 1) -> str:
        """The SQL, with arguments numbered from `first`."""
        arrays = [kind for kind, name in self._columns if self._is_array(kind, name)]
        marks = ", ".join(f"${n}::{COLUMN_TYPES[kind]}[]" for n, kind in enumerate(arrays, first + self.as_json))
        rows, names = f"unnest({marks})", self.names
        if self.as_json:
            fields = [(name, kind) for kind, name in self._columns if not self._is_array(kind, name)]
            document = ", ".join(f"{name} {COLUMN_TYPES[kind]}" for name, kind in fields)
            rows = f"json_to_recordset(${first}::json) AS ({document})" + (f", {rows}" if arrays else "")
            rows = f"ROWS FROM ({rows})"
            names = ", ".join(name for name, _ in fields)
            names += "".join(f", {name}" for kind, name in self._columns if self._is_array(kind, name))
        sql = self.sql.replace("{rows}", f"{rows} AS r({names})").replace("{names}", self.names)
        last = first + self.argument_count() - 1
        return _OWN.sub(rf"\1 >= ${last - 1}::bytea AND (\1 < ${last}::bytea OR \1 = ${last}::bytea)", sql)

    @property
    def _has_own(self) -> bool:
        return "{own}" in self.sql

    @property
    def _columns(self) -> Iterable[tuple[str, str]]:
        """The letter and the name of each column."""
        return zip(self.types, self.names.split(", "), strict=True)

    def _is_array(self, kind: str, name: str) -> bool:
        return not self.as_json or (kind == "y" and name not in KEY_COLUMNS)

    @cache  # noqa: B019 - statements are constants
    def argument_count(self) -> int:
        """How many arguments the rows and `{own}` become."""
        arrays = sum(self._is_array(kind, name) for kind, name in self._columns)
        return self.as_json + arrays + (2 if self._has_own else 0)

    def columns(self, rows: Sequence[Sequence[Any]]) -> list[Any]:
        """The arguments for these rows."""
        found = _document(self.types, self.names, rows) if self.as_json else column_arrays(self.types, rows)
        if self._has_own:
            task = self.names.split(", ").index("task")
            keys = [row[task] for row in rows]
            found += [min(keys), max(keys)]
        return found

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


KEY_COLUMNS: Final = frozenset(("task", "hash"))
"""Columns of bytes that are so short that JSON has them in hexadecimal."""


@cache
def _layout(types: str, names: str) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """All columns; those of keys; those of contents."""
    columns = tuple(names.split(", "))
    kinds = dict(zip(columns, types, strict=True))
    return (
        columns,
        tuple(name for name in columns if kinds[name] == "y" and name in KEY_COLUMNS),
        tuple(name for name in columns if kinds[name] == "y" and name not in KEY_COLUMNS),
    )


def _document(types: str, names: str, rows: Sequence[Sequence[Any]]) -> list[Any]:
    """Rows as arguments: a JSON document, and an array for each column of contents."""
    columns, keys, contents = _layout(types, names)
    found = [dict(zip(columns, row, strict=True)) for row in rows]
    for row in found:
        for name in keys:
            row[name] = "\\x" + row[name].hex()
    arrays = [[row.pop(name) for row in found] for name in contents]
    text = orjson.dumps(found)
    if b"\\u000" in text:  # perhaps a character to escape
        text = orjson.dumps(
            [{name: escape(value) if isinstance(value, str) else value for name, value in row.items()} for row in found]
        )
    return [text.decode(), *arrays]


def insert_statement(table: str, types: str, names: str, after: str = "") -> PostgresBulkStatement:
    """A statement that inserts rows into a table; `after` follows, such as ON CONFLICT."""
    return PostgresBulkStatement(
        f"INSERT INTO {table} ({{names}}) SELECT {{names}} FROM {{rows}} {after}", types, names, as_json=True
    )


@cache
def combine_statements(
    statements: Sequence[PostgresBulkStatement], first: int = 1, before: str = "", result: str = ""
) -> str:
    """One statement that runs all of these on the same snapshot. Their arguments follow each other, from `first` on.

    before: further common table expressions, which come first. result: what it selects; `done0` is the first one.
    """
    parts = [before] if before else []
    for number, statement in enumerate(statements):
        parts.append(f"done{number} AS ({statement.sql_text(first)})")
        first += statement.argument_count()
    return f"WITH {', '.join(parts)} SELECT {result}"


_TYPES: Final = {"str": "t", "int": "i", "bool": "b"}
RECORD_TYPES: Final = "".join(_TYPES[kind] for kind in TASK_COLUMNS.values())
MUTABLE_TYPES: Final = "".join(_TYPES[TASK_COLUMNS[name]] for name in MUTABLE_COLUMNS.split(", "))
"""The types of RECORD_COLUMNS and MUTABLE_COLUMNS."""
