"""Runs queries of both stores (`stores.shared.queries`) on PostgreSQL."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from functools import lru_cache
from typing import Any, Final, ParamSpec, TypeVar

from asyncpg import Connection

from dragoman.extensions.postgres.database import Database
from dragoman.stores.shared.queries import Query

P = ParamSpec("P")
T = TypeVar("T")

_MARK: Final = re.compile(r"\?(\d)")


@lru_cache(maxsize=1024)
def _numbered(sql: str) -> str:
    """A statement with the arguments of PostgreSQL: `$1` for `?1`."""
    return _MARK.sub(r"$\1", sql)


async def run_query(connection: Connection, query: Query[T]) -> T:
    """The result of a query. Raises what it raises, or errors of the database."""
    result: Any = None
    try:
        while True:
            statement = query.send(result)
            sql = _numbered(statement.sql)
            if statement.changes:
                result = int((await connection.execute(sql, *statement.values)).rpartition(" ")[2])
            else:
                result = await connection.fetch(sql, *statement.values)
    except StopIteration as done:
        found: T = done.value
        return found


class PostgresQueryRunner:
    """Implements `QueryRunner`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def read(self, query: Callable[P, Query[T]], *args: P.args, **kwargs: P.kwargs) -> Awaitable[T]:
        return self._database.read(lambda connection: run_query(connection, query(*args, **kwargs)))

    def write(self, query: Callable[P, Query[T]], *args: P.args, **kwargs: P.kwargs) -> Awaitable[T]:
        return self._database.write(lambda connection: run_query(connection, query(*args, **kwargs)))

    write_low_priority = write

    def now(self) -> Awaitable[int]:
        return self._database.read(self._database.now)
