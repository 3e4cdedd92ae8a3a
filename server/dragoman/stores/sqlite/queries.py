"""Runs queries of both stores (`stores.shared.queries`) on SQLite's connections."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, ParamSpec, TypeVar

from dragoman.stores.shared.queries import Query
from dragoman.stores.sqlite.hot.writer import SqliteWriter

P = ParamSpec("P")
T = TypeVar("T")

Read = Callable[..., Awaitable[Any]]
"""Runs a function of a reader's connection and further arguments, in one transaction."""


def run_query(connection: sqlite3.Connection, query: Query[T]) -> T:
    """The result of a query. Raises what it raises, or sqlite3.Error."""
    result: Any = None
    try:
        while True:
            statement = query.send(result)
            cursor = connection.execute(statement.sql, statement.values)
            result = cursor.rowcount if statement.changes else cursor.fetchall()
    except StopIteration as done:
        found: T = done.value
        return found


class SqliteQueryRunner:
    """Implements `QueryRunner`: reads on the readers, writes in the writer's commits."""

    def __init__(
        self, read: Read, writer: SqliteWriter, clock: Callable[[], int], *, secure_delete: bool = False
    ) -> None:
        """secure_delete: see `overwriting_deleted_rows`."""
        self._read = read
        self._writer = writer
        self._clock = clock
        self._secure_delete = secure_delete

    async def read(self, query: Callable[P, Query[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        found: T = await self._read(lambda connection: run_query(connection, query(*args, **kwargs)))
        return found

    def write(self, query: Callable[P, Query[T]], *args: P.args, **kwargs: P.kwargs) -> asyncio.Future[T]:
        return self._writer.submit(lambda connection: self._run(connection, query(*args, **kwargs)))

    def write_low_priority(self, query: Callable[P, Query[T]], *args: P.args, **kwargs: P.kwargs) -> asyncio.Future[T]:
        return self._writer.submit(lambda connection: self._run(connection, query(*args, **kwargs)), low_priority=True)

    async def now(self) -> int:
        return self._clock()

    def _run(self, connection: sqlite3.Connection, query: Query[T]) -> T:
        with overwriting_deleted_rows(connection) if self._secure_delete else nullcontext():
            return run_query(connection, query)


@contextmanager
def overwriting_deleted_rows(connection: sqlite3.Connection) -> Iterator[None]:
    """Fills what is deleted with zeros; otherwise it would stay readable in free pages of the file."""
    (before,) = connection.execute("PRAGMA secure_delete").fetchone()
    connection.execute("PRAGMA secure_delete = ON")
    try:
        yield
    finally:
        connection.execute(f"PRAGMA secure_delete = {before}")
