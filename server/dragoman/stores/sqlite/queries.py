"""Methods that run on SQLite's connections, and queries of both stores (`stores.shared.queries`)."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from dragoman.stores.shared.queries import Query

P = ParamSpec("P")
T = TypeVar("T")


class Submit(Protocol):
    """Runs a function of the writer's connection in the next commit, or when nothing else waits."""

    def __call__(
        self, job: Callable[[sqlite3.Connection], Any], *, low_priority: bool = False
    ) -> asyncio.Future[Any]: ...


class Read(Protocol):
    """Runs a function of a reader's connection and further arguments, in one transaction."""

    def __call__(
        self, read: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> Awaitable[T]: ...


class SqliteAccess:
    """Base of adapters whose methods run on connections of the store (`on_reader`, `in_commit`)."""

    def __init__(self, read: Read, submit: Submit, clock: Callable[[], int]) -> None:
        self._read = read
        self._submit = submit
        self._clock = clock


S = TypeVar("S", bound=SqliteAccess)


def on_reader(
    method: Callable[Concatenate[S, sqlite3.Connection, P], T],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """Makes a method that reads from a connection one that gets a reader's."""

    async def read(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._read(partial(method, self), *args, **kwargs)

    return read


def in_commit(
    method: Callable[Concatenate[S, sqlite3.Connection, P], T],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """Makes a method that writes to a connection one that runs in the writer's next commit."""

    async def write(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        result: T = await self._submit(lambda connection: method(self, connection, *args, **kwargs))
        return result

    return write


def marks(values: Collection[object]) -> str:
    """Placeholders for so many values."""
    return ", ".join("?" * len(values))


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


class SqliteQueryRunner(SqliteAccess):
    """Implements `QueryRunner`: reads on the readers, writes in the writer's commits."""

    secure_delete = False
    """See `overwriting_deleted_rows`."""

    def read(self, query: Callable[P, Query[T]], *args: P.args, **kwargs: P.kwargs) -> Awaitable[T]:
        return self._read(lambda connection: run_query(connection, query(*args, **kwargs)))

    def write(self, query: Callable[P, Query[T]], *args: P.args, **kwargs: P.kwargs) -> asyncio.Future[T]:
        return self._submit(lambda connection: self._run(connection, query(*args, **kwargs)))

    def write_low_priority(self, query: Callable[P, Query[T]], *args: P.args, **kwargs: P.kwargs) -> asyncio.Future[T]:
        return self._submit(lambda connection: self._run(connection, query(*args, **kwargs)), low_priority=True)

    async def now(self) -> int:
        return self._clock()

    def _run(self, connection: sqlite3.Connection, query: Query[T]) -> T:
        with overwriting_deleted_rows(connection) if self.secure_delete else nullcontext():
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
