"""Runs queries of both stores (`stores.shared.queries`) on PostgreSQL."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from functools import lru_cache
from typing import Any, Final, Generic, ParamSpec, TypeVar

from asyncpg import Connection

from dragoman.core.errors import Unavailable
from dragoman.extensions.postgres.database import Database
from dragoman.stores.shared.queries import Query

P = ParamSpec("P")
T = TypeVar("T")
K = TypeVar("K")

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


MAX_GROUP_READS: Final = 32
"""Reads of one statement: their results are in memory together."""
MAX_RUNNING_GROUPS: Final = 2


class GroupedReads(Generic[K, T]):
    """Reads of one kind. Those that come together, or while others run, are one statement.

    A statement costs as much as ten rows: with 16 turns that begin at once, each read one by one, a process with
    `--role worker` ran 210 turns a second.
    """

    def __init__(self, database: Database, query: Callable[[Connection, Sequence[K]], Awaitable[Sequence[T]]]) -> None:
        """query: reads these keys on one snapshot, by one statement; returns a result for each, in their order."""
        self._database = database
        self._query = query
        self._waiting: list[tuple[K, asyncio.Future[T]]] = []
        self._running: set[asyncio.Task[None]] = set()

    def read(self, key: K) -> asyncio.Future[T]:
        """Raises what `Database.read` raises."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.append((key, future))
        self._start()
        return future

    def _start(self) -> None:
        if self._waiting and len(self._running) < MAX_RUNNING_GROUPS:
            task = asyncio.get_running_loop().create_task(self._run())
            self._running.add(task)
            task.add_done_callback(self._on_done)

    def _on_done(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._start()

    async def _run(self) -> None:
        group, self._waiting = self._waiting[:MAX_GROUP_READS], self._waiting[MAX_GROUP_READS:]
        group = [(key, future) for key, future in group if not future.done()]
        if group and not await self._read(group, is_last=len(group) == 1):
            for one in group:  # one of them may be the reason
                await self._read([one], is_last=True)

    async def _read(self, group: Sequence[tuple[K, asyncio.Future[T]]], *, is_last: bool) -> bool:
        try:
            results = await self._database.read(self._query, [key for key, _ in group])
        except BaseException as error:
            failure = error if isinstance(error, Exception) else Unavailable("the store is being closed")
            if not is_last and not isinstance(failure, Unavailable):
                return False
            for _, future in group:
                if not future.done():
                    future.set_exception(failure)
            return True
        for (_, future), result in zip(group, results, strict=True):
            if not future.done():
                future.set_result(result)
        return True
