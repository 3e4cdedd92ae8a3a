"""All rows of a store, for comparisons before and after a call."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Set
from contextlib import closing
from typing import Any, Final

from dragoman.stores.sqlite.hot.figures import list_tasks

Row = tuple[tuple[str, str], ...]
"""Columns and their values."""

Dump = Mapping[str, frozenset[Row]]
"""Rows by table."""

_OWN_TABLES: Final = frozenset(("sessions", "sqlite_sequence", "commits"))
"""Tables that a server writes without a call."""

_OWN_VALUE: Final = "clock.last"
"""The end of the name of a value that a server writes without a call."""


async def dump_store(url: str) -> Dump:
    """The rows of a store: those that the server writes on its own are left out. New tasks are listed before, as by any
    search, which is no change that a caller sees."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
            list_tasks(connection)
            connection.commit()
            connection.row_factory = sqlite3.Row
            names = [name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
            tables = {name: connection.execute(f"SELECT * FROM {name}").fetchall() for name in names}
            return _without_own(tables)
    import asyncpg  # most of the tests run without the extra

    connection = await asyncpg.connect(url)
    try:
        names = [
            row[0]
            for row in await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()")
        ]
        return _without_own({name: await connection.fetch(f"SELECT * FROM {name}") for name in names})
    finally:
        await connection.close()


def _without_own(tables: Mapping[str, Any]) -> Dump:
    return {
        name: frozenset(
            tuple(zip(row.keys(), map(repr, row.values()), strict=True))
            for row in map(dict, rows)
            if not str(row.get("name", "")).endswith(_OWN_VALUE)
        )
        for name, rows in tables.items()
        if name not in _OWN_TABLES
    }


def changed_tables(before: Dump, after: Dump, *, without: Set[str] = frozenset({"audit"})) -> set[str]:
    """The tables whose rows differ."""
    return {name for name in before if name not in without and before[name] != after[name]}


def outside_of(dump: Dump, scope: str) -> Dump:
    """The rows that do not belong to a scope."""
    owners = {dict(row)["owner"] for row in dump["owners"] if dict(row)["scope"] == repr(scope)}

    def belongs(row: Row) -> bool:
        columns = dict(row)
        return columns.get("owner") in owners or columns.get("scope") == repr(scope)

    return {name: frozenset(row for row in rows if not belongs(row)) for name, rows in dump.items()}
