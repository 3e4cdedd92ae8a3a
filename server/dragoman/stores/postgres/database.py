"""Connections to one database, without state between transactions, and retries.

A write is a transaction of a few round trips. It begins with an advisory lock that all writers share (WRITE_LOCK); a
write that has to be alone takes it exclusively. All locks and settings end with their transaction, so a pooler may
give each transaction another connection.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

import asyncpg
from asyncpg import Connection, Pool

from dragoman.core.errors import Unavailable
from dragoman.stores.postgres.errors import CommitOutcomeUnknown, explain, is_collision, is_unreachable, map_error
from dragoman.stores.postgres.rows import prepare_connection
from dragoman.stores.postgres.schema import MIGRATION_LOCK

log = logging.getLogger("dragoman.store")

WRITE_LOCK: Final = MIGRATION_LOCK + 1
DATABASE_CONNECT_TIMEOUT: Final = 5.0
"""Seconds for one attempt to connect."""
STATEMENT_TIMEOUT: Final = 60.0
"""Seconds for one statement."""
WRITE_RETRY_TIMEOUT: Final = 10.0
"""Seconds for which a write is retried while the server is unreachable, before its caller gets the error."""
READ_RETRY_TIMEOUT: Final = 5.0
"""The same for reads."""
UNKNOWN_COMMIT_TIMEOUT: Final = 60.0
"""The same for a commit whose outcome is unknown."""
COMMIT_MARK_TTL: Final = 600.0
"""Seconds for which the mark of a commit is kept."""
DATABASE_RETRY_INTERVAL: Final = 0.1
MAX_COLLISION_RETRIES: Final = 5
"""Retries of a transaction that deadlocks or fails to serialize."""

SQL_NOW: Final = "coalesce({}::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint)"
"""The store's time in milliseconds: the argument, or the server's clock when it is NULL."""

# Whatever the database's default is: a statement has to see what was committed while it waited for a lock.
_BEGIN: Final = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"

# Statements look up a few rows of many by key. The statistics of a young table would suggest a sequential scan, and one
# generic plan suits all arguments.
_PLANNER_SETTINGS: Final = "; ".join(
    f"SET LOCAL {setting}"
    for setting in (
        "plan_cache_mode = force_generic_plan",
        "enable_seqscan = off",
        "enable_hashjoin = off",
        "enable_mergejoin = off",
    )
)
BEGIN_WRITE: Final = f"{_BEGIN}; {_PLANNER_SETTINGS}; SELECT pg_advisory_xact_lock_shared({WRITE_LOCK})"
BEGIN_EXCLUSIVE_WRITE: Final = f"{_BEGIN}; {_PLANNER_SETTINGS}; SELECT pg_advisory_xact_lock({WRITE_LOCK})"

Clock = Callable[[], int]
P = ParamSpec("P")
T = TypeVar("T")


def create_pool(
    url: str, *, max_size: int, pooled: bool, init: Callable[[Connection], Awaitable[None]] = prepare_connection
) -> Pool:
    """A pool that connects on demand. pooled: a pooler in between gives each transaction another connection."""
    return asyncpg.create_pool(
        url,
        min_size=0,
        max_size=max_size,
        init=init,
        reset=_no_reset,
        timeout=DATABASE_CONNECT_TIMEOUT,
        command_timeout=STATEMENT_TIMEOUT,
        statement_cache_size=0 if pooled else 200,
        max_cached_statement_lifetime=0,
    )


async def _no_reset(_: Connection) -> None:
    """Nothing has to be reset when a connection is released."""


class Database:
    """Access to one database from one event loop."""

    def __init__(self, url: str, clock: Clock | None, *, connections: int, pooled: bool) -> None:
        self._clock = clock
        self._pooled = pooled
        # A pool of its own, so that many readers never keep an append waiting for a connection.
        self._append_pool = create_pool(url, max_size=1, pooled=pooled)
        self._pool = create_pool(url, max_size=connections, pooled=pooled)

    @property
    def fixed_now(self) -> int | None:
        """The argument of SQL_NOW: the fixed clock's time in milliseconds, or None for the server's."""
        return self._clock() if self._clock else None

    async def now(self, connection: Connection) -> int:
        """The store's time in milliseconds."""
        found: int = await connection.fetchval(f"SELECT {SQL_NOW.format('$1')}", self.fixed_now)
        return found

    async def open(self) -> None:
        """Opens the pools. They connect on demand."""
        await self._append_pool
        await self._pool

    async def close(self) -> None:
        """Closes its connections."""
        for pool in (self._append_pool, self._pool):
            try:
                await asyncio.wait_for(pool.close(), DATABASE_CONNECT_TIMEOUT)
            except TimeoutError:
                pool.terminate()

    async def read(
        self, query: Callable[Concatenate[Connection, P], Awaitable[T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Reads with one statement. Raises Unavailable when the server cannot be reached."""
        # Behind a pooler, a statement outside of a transaction may run on another connection than its preparation.
        return await self._read("read_committed" if self._pooled else "", query, *args, **kwargs)

    async def read_snapshot(
        self, query: Callable[Concatenate[Connection, P], Awaitable[T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Reads with several statements on one snapshot."""
        return await self._read("repeatable_read", query, *args, **kwargs)

    async def write(
        self, job: Callable[Concatenate[Connection, P], Awaitable[T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Writes in one transaction. `job` may run several times. Raises Unavailable when the server is unreachable."""
        return await self._write(self._pool, BEGIN_WRITE, lambda connection: job(connection, *args, **kwargs))

    async def write_exclusively(
        self, job: Callable[Concatenate[Connection, P], Awaitable[T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """The same, while no other process writes."""
        return await self._write(self._pool, BEGIN_EXCLUSIVE_WRITE, lambda connection: job(connection, *args, **kwargs))

    async def commit(self, job: Callable[[Connection], Awaitable[T]], lock_numbers: Sequence[int]) -> T:
        """The same, on the connection for appends, with these advisory locks taken in this order."""
        locks = "".join(f"; SELECT pg_advisory_xact_lock({name})" for name in lock_numbers)
        return await self._write(self._append_pool, BEGIN_WRITE + locks, job)

    async def _read(self, isolation: str, query: Callable[..., Awaitable[T]], *args: Any, **kwargs: Any) -> T:
        async def once() -> T:
            async with self._pool.acquire() as connection:
                if not isolation:
                    return await query(connection, *args, **kwargs)
                async with connection.transaction(isolation=isolation, readonly=True):
                    return await query(connection, *args, **kwargs)

        try:
            return await self._retry(once, READ_RETRY_TIMEOUT)
        except Exception as error:
            raise map_error(error, is_write=False) from error

    async def delete_commit_marks(self) -> None:
        """Deletes the marks of commits that are too old to be retried."""
        await self.write(_delete_commit_marks)

    async def _write(self, pool: Pool, begin_sql: str, job: Callable[[Connection], Awaitable[T]]) -> T:
        marked = (
            f"{begin_sql}; INSERT INTO commits VALUES ('\\x{_commit_mark(time.time(), secrets.token_bytes(10)).hex()}')"
        )
        unknown_results: list[T] = []

        async def once() -> T:
            connection = await pool.acquire()
            try:
                return await run_transaction(connection, marked, job, unknown_results)
            except asyncpg.UniqueViolationError as error:
                if unknown_results and error.constraint_name == "commits_pkey":  # the earlier commit succeeded
                    return unknown_results[-1]
                raise
            finally:
                with suppress(Exception):  # a committed write is not retried because of this
                    await pool.release(connection)

        try:
            return await self._retry(once, WRITE_RETRY_TIMEOUT)
        except Exception as error:
            is_unknown = bool(unknown_results)
            mapped = map_error(CommitOutcomeUnknown(str(error)) if is_unknown and is_unreachable(error) else error)
            if isinstance(mapped, Unavailable):
                mapped.outcome_unknown = is_unknown
            raise mapped from error

    async def _retry(self, attempt: Callable[[], Awaitable[T]], seconds: float) -> T:
        loop = asyncio.get_running_loop()
        started, collisions = loop.time(), 0
        until = started + seconds
        while True:
            try:
                return await attempt()
            except Exception as error:
                if is_collision(error) and collisions < MAX_COLLISION_RETRIES:
                    collisions += 1
                elif isinstance(error, CommitOutcomeUnknown) and loop.time() < started + UNKNOWN_COMMIT_TIMEOUT:
                    until = started + UNKNOWN_COMMIT_TIMEOUT
                elif is_unreachable(error) and loop.time() < until:
                    log.debug("the store cannot be reached; retrying: %s", explain(error))
                    await asyncio.sleep(DATABASE_RETRY_INTERVAL)
                else:
                    raise


async def run_transaction(
    connection: Connection, begin_sql: str, job: Callable[[Connection], Awaitable[T]], unknown_results: list[T]
) -> T:
    """Runs one transaction. Raises CommitOutcomeUnknown when the connection breaks during the commit.

    `unknown_results` then gets the result. A retry with the same mark fails on that mark if the commit succeeded, and
    waits for it if it is still in progress.
    """
    try:
        await connection.execute(begin_sql)
        result = await job(connection)
    except BaseException:
        if not connection.is_closed():
            with suppress(Exception):
                await connection.execute("ROLLBACK")
        raise
    try:
        status: Any = await connection.execute("COMMIT")
    except Exception as error:
        if is_unreachable(error):
            unknown_results.append(result)
            raise CommitOutcomeUnknown(str(error)) from error
        raise
    if status != "COMMIT":  # the job swallowed an error
        raise RuntimeError(f"the transaction was rolled back: {status}")
    return result


def _commit_mark(seconds: float, random_bytes: bytes) -> bytes:
    return int(seconds * 1000).to_bytes(6, "big") + random_bytes


async def _delete_commit_marks(connection: Connection) -> None:
    await connection.execute("DELETE FROM commits WHERE mark < $1", _commit_mark(time.time() - COMMIT_MARK_TTL, b""))


SIDE_CONNECTION_ATTEMPTS: Final = 2
"""Two: the connection may have been closed since its last use."""


class SideConnection:
    """One connection, opened when it is first used. Every method blocks; thread-safe."""

    def __init__(self, url: str, name: str) -> None:
        self._url = url
        self._thread = ThreadPoolExecutor(1, name)
        self._thread.submit(int)  # starts the thread now: later there may be no memory for it
        self._runner: asyncio.Runner | None = None
        self._connection: Connection | None = None

    def run(self, job: Callable[[Connection], Awaitable[T]]) -> T:
        """Runs a job in a transaction. Raises Unavailable when the server cannot be reached."""
        return self._thread.submit(self._run, job).result()

    def close(self) -> None:
        """Closes the connection and ends the thread. Idempotent."""
        with suppress(RuntimeError):  # closed before
            self._thread.submit(self._close).result()
        self._thread.shutdown()

    def _run(self, job: Callable[[Connection], Awaitable[T]]) -> T:
        self._runner = self._runner or asyncio.Runner()
        for attempt in range(SIDE_CONNECTION_ATTEMPTS):
            try:
                return self._runner.run(self._run_once(job))
            except Exception as error:
                if attempt + 1 == SIDE_CONNECTION_ATTEMPTS or not is_unreachable(error):
                    raise map_error(error) from error
        raise AssertionError("the last attempt returns or raises")

    async def _run_once(self, job: Callable[[Connection], Awaitable[T]]) -> T:
        connection = self._connection
        if connection is None or connection.is_closed():
            connection = self._connection = await asyncpg.connect(
                self._url, timeout=DATABASE_CONNECT_TIMEOUT, command_timeout=STATEMENT_TIMEOUT, statement_cache_size=0
            )
            await prepare_connection(connection)
        async with connection.transaction():
            return await job(connection)

    def _close(self) -> None:
        if self._runner is not None:
            if self._connection is not None and not self._connection.is_closed():
                with suppress(Exception):
                    self._runner.run(self._connection.close(timeout=DATABASE_CONNECT_TIMEOUT))
            self._runner.close()
            self._runner = self._connection = None
