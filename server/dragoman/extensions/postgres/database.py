"""Connections to one database, without state between transactions, deadlines and retries.

A write is a transaction of a few round trips, or one planned statement. It begins with an advisory lock that all
writers share (WRITE_LOCK); a write that has to be alone takes it exclusively. All locks and settings end with their
transaction, so a pooler may give each transaction another connection. Deadlines are kept on this side, because a frozen
server keeps none; a connection whose statement has timed out is closed.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, Concatenate, Final, Generic, ParamSpec, TypeVar

import asyncpg
from asyncpg import Connection, Pool

from dragoman.core.errors import Unavailable
from dragoman.extensions.postgres.errors import (
    DATABASE_ERRORS,
    CommitOutcomeUnknown,
    explain,
    failure_of,
    is_disconnected,
    is_timeout,
    may_pass,
    verdict_of,
)
from dragoman.extensions.postgres.hosts import HostConnector
from dragoman.extensions.postgres.rows import prepare_connection
from dragoman.stores.shared.errors import Verdict

log = logging.getLogger("dragoman.store")

MIGRATION_LOCK: Final = 0x647261676F6D616E
"""The advisory lock of migrations: "dragoman" in ASCII."""
WRITE_LOCK: Final = MIGRATION_LOCK + 1
STATEMENT_TIMEOUT: Final = 5.0
"""Default seconds for one statement, for a connection attempt, and until a connection of the pool is free."""
LOCK_SHARE: Final = 0.8
"""The part of that time for which a statement waits for a lock: the server's error, which names the reason, has to
arrive before the deadline on this side."""
MAINTENANCE_TIMEOUT: Final = 60.0
"""The same for compaction and erasure: a statement may touch many rows, and no caller waits for it."""
UNKNOWN_COMMIT_TIMEOUT: Final = 300.0
"""Seconds for which a running turn waits for the outcome of its commit: well within `PostgresRetries.mark_ttl`."""
DATABASE_RETRY_INTERVAL: Final = 0.1


@dataclass(frozen=True, slots=True)
class PostgresRetries:
    """How long, in seconds, and how often transactions are retried."""

    write: float = 10.0
    """While connections fail, before the caller of a write gets the error."""
    read: float = 5.0
    """The same for reads."""
    mark_ttl: float = 600.0
    """For which the mark of a commit is kept, which tells a retry that it was done."""
    repeats: int = 5
    """Retries of a transaction that the server rolled back: it deadlocked, or was canceled."""


DEFAULT_RETRIES: Final = PostgresRetries()

SQL_NOW: Final = "coalesce({}::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint)"
"""The store's time in milliseconds: the argument, or the server's clock when it is NULL."""

# Whatever the database's default is: a statement has to see what was committed while it waited for a lock.
BEGIN: Final = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
BEGIN_READ: Final = "BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY"
_BEGIN_SNAPSHOT: Final = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"

# Statements look up a few rows of many by key. The statistics of a young table would suggest a sequential scan, and one
# generic plan suits all arguments.
_PLANNER_SETTINGS: Final = {
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
}
_SET_PLANNER: Final = "; ".join(f"SET LOCAL {name} = {value}" for name, value in _PLANNER_SETTINGS.items())
_LOCK_SHARED: Final = f"SELECT pg_advisory_xact_lock_shared({WRITE_LOCK})"
BEGIN_WRITE: Final = f"{BEGIN}; {_SET_PLANNER}; {_LOCK_SHARED}"
BEGIN_EXCLUSIVE_WRITE: Final = f"{BEGIN}; {_SET_PLANNER}; SELECT pg_advisory_xact_lock({WRITE_LOCK})"
_BEGIN_APPEND: Final = f"{BEGIN}; {_LOCK_SHARED}"
_APPEND_SETTINGS: Final = _PLANNER_SETTINGS | {"default_transaction_read_only": "off"}
"""Of the connection for appends. Behind a pooler it has none, and BEGIN_WRITE sets them for each transaction."""

Clock = Callable[[], int]
MayRetry = Callable[[Unavailable], bool]
"""Whether a write is tried again after this failure."""
P = ParamSpec("P")
T = TypeVar("T")


def create_pool(
    url: str,
    *,
    max_size: int,
    pooled: bool,
    timeout: float = STATEMENT_TIMEOUT,
    settings: Mapping[str, str] = MappingProxyType({}),
    init: Callable[[Connection], Awaitable[None]] = prepare_connection,
) -> Pool:
    """A pool that connects on demand. pooled: a pooler in between gives each transaction another connection.

    settings: of its sessions, besides `server_settings`; not behind a pooler, which would reject or share them.
    """
    return asyncpg.create_pool(
        url,
        connect=HostConnector().connect,
        min_size=0,
        max_size=max_size,
        init=init,
        reset=_no_reset,
        timeout=timeout,
        command_timeout=timeout,
        server_settings=None if pooled else server_settings(timeout) | dict(settings),
        statement_cache_size=0 if pooled else 200,
        max_cached_statement_lifetime=0,
    )


def server_settings(timeout: float) -> dict[str, str]:
    """Ends on the server what this side has given up: statements that wait for locks, and transactions of a frozen
    process, whose locks would block the other servers.

    `statement_timeout` is off, whatever the role's is: every statement has a deadline on this side, and during a COMMIT
    it would end the wait for a synchronous standby as if that had answered.
    """
    milliseconds = round(timeout * 1000)
    return {
        "default_transaction_isolation": "read committed",
        "statement_timeout": "0",
        "lock_timeout": str(max(round(milliseconds * LOCK_SHARE), 1)),
        "idle_in_transaction_session_timeout": str(milliseconds),
    }


MIGRATION_SETTINGS: Final = {"statement_timeout": "0", "lock_timeout": "0"}
"""Settings of the connection that migrates: it waits for the migration of another server, which takes its time."""


async def _no_reset(_: Connection) -> None:
    """Nothing has to be reset when a connection is released."""


class Database:
    """Access to one database from one event loop."""

    def __init__(
        self,
        url: str,
        clock: Clock | None,
        *,
        connections: int,
        pooled: bool,
        timeout: float = STATEMENT_TIMEOUT,
        retries: PostgresRetries = DEFAULT_RETRIES,
    ) -> None:
        """timeout: seconds for one statement, for a connection attempt, and until a connection is free."""
        self._clock = clock
        self.pooled = pooled
        self._timeout = timeout
        self.retries = retries
        # A pool of its own, so that many readers never keep an append waiting for a connection.
        self._append_pool = create_pool(url, max_size=1, pooled=pooled, timeout=timeout, settings=_APPEND_SETTINGS)
        self._kept: Connection | None = None
        """The connection for appends, between two of them: to give it back to its pool takes as long as a statement."""
        self._late = 0
        """Statements that got no response."""
        self._pool = create_pool(url, max_size=connections, pooled=pooled, timeout=timeout)

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
        await self._release_kept()
        for pool in (self._append_pool, self._pool):
            try:
                await asyncio.wait_for(pool.close(), self._timeout)
            except TimeoutError:
                pool.terminate()

    async def read(
        self, query: Callable[Concatenate[Connection, P], Awaitable[T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Reads with one statement. Raises Unavailable when the server cannot be reached."""
        # Behind a pooler, a statement outside of a transaction may run on another connection than its preparation.
        return await self._read(BEGIN_READ if self.pooled else "", query, *args, **kwargs)

    async def read_snapshot(
        self, query: Callable[Concatenate[Connection, P], Awaitable[T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Reads with several statements on one snapshot."""
        return await self._read(_BEGIN_SNAPSHOT, query, *args, **kwargs)

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

    async def commit(
        self,
        job: Callable[[Connection], Awaitable[T]],
        lock_numbers: Sequence[int],
        may_retry: MayRetry,
        plan: PlanStatement[T],
    ) -> T:
        """The same, on the connection for appends, with these advisory locks taken in this order.

        `plan` may have it done by one statement, which is a transaction of its own, in one round trip. If what it was
        planned from is outdated, `job` runs.
        """
        begin = BEGIN_WRITE if self.pooled else _BEGIN_APPEND
        locks = "".join(f"; SELECT pg_advisory_xact_lock({name})" for name in lock_numbers)
        return await self._write(self._append_pool, begin + locks, job, may_retry, plan)

    async def _read(self, begin_sql: str, query: Callable[..., Awaitable[T]], *args: Any, **kwargs: Any) -> T:
        async def once() -> T:
            async with self._connection(self._pool) as connection:
                try:
                    if begin_sql:
                        await connection.execute(begin_sql)
                    result = await query(connection, *args, **kwargs)
                    if begin_sql:
                        await connection.execute("COMMIT")
                except asyncio.CancelledError:
                    # Between the preparation of a statement and its execution, asyncpg leaves the server in an implicit
                    # transaction, which the next user of the connection would continue.
                    _terminate(connection)
                    raise
                except Exception as error:
                    if begin_sql or is_disconnected(error):
                        await _roll_back(connection, error)
                    raise
                return result

        return await _retry(once, _retries_for(self.retries.read), self.retries.repeats, is_write=False)

    async def delete_commit_marks(self) -> None:
        """Deletes the marks of commits that are too old to be retried."""
        await self.write(partial(_delete_commit_marks, time.time() - self.retries.mark_ttl))

    @asynccontextmanager
    async def _connection(self, pool: Pool) -> AsyncIterator[Connection]:
        """A connection. If a statement gets no response, no other connection of that time is used again: its server may
        hang, and each would use up the time of a caller before another server is tried."""
        connection, late, failed = None, self._late, True
        if pool is self._append_pool:
            connection, self._kept = self._kept, None
        if connection is None or connection.is_closed():
            async with asyncio.timeout(self._timeout):
                connection = await pool.acquire()
        try:
            yield connection
            failed = False
        except DATABASE_ERRORS as error:
            if verdict_of(error) is Verdict.LATE:
                self._late += 1
                await self._append_pool.expire_connections()
                await self._pool.expire_connections()
                await self._release_kept()
            raise
        finally:
            if pool is self._append_pool and not failed and late == self._late:
                self._kept = connection
            else:
                with suppress(Exception):  # a transaction that was committed is not repeated because of this
                    await pool.release(connection, timeout=self._timeout)

    async def _release_kept(self) -> None:
        connection, self._kept = self._kept, None
        if connection is not None:
            with suppress(Exception):
                await self._append_pool.release(connection, timeout=self._timeout)

    async def _write(
        self,
        pool: Pool,
        begin_sql: str,
        job: Callable[[Connection], Awaitable[T]],
        may_retry: MayRetry | None = None,
        plan: PlanStatement[T] | None = None,
    ) -> T:
        mark = _commit_mark(time.time(), secrets.token_bytes(10))
        marked = f"{begin_sql}; INSERT INTO commits VALUES ('\\x{mark.hex()}')"
        unknown_results: list[T] = []

        async def once() -> T:
            nonlocal plan
            async with self._connection(pool) as connection:
                if plan is not None:
                    planned, plan = await plan(connection, mark), None
                    if planned is not None:
                        with suppress(asyncpg.DivisionByZeroError, asyncpg.UniqueViolationError):
                            return await self._run_planned(connection, planned, unknown_results)
                try:
                    return await run_transaction(connection, marked, job, unknown_results)
                except asyncpg.UniqueViolationError as error:
                    if unknown_results and error.constraint_name == "commits_pkey":  # the earlier commit succeeded
                        return unknown_results[-1]
                    raise

        retries = may_retry or _retries_for(self.retries.write)
        return await _retry(once, retries, self.retries.repeats, unknown_results=unknown_results)

    async def _run_planned(self, connection: Connection, planned: PlannedStatement[T], unknown_results: list[T]) -> T:
        async def run(connection: Connection) -> T:
            planned.on_response(await connection.fetchval(planned.sql, *planned.arguments))
            return planned.result

        if self.pooled:  # a statement is prepared and executed by two messages, which may reach two servers
            return await run_transaction(connection, BEGIN_WRITE, run, unknown_results)
        with _commit_outcome(connection, planned.result, unknown_results):
            return await run(connection)


@dataclass(slots=True)
class PlannedStatement(Generic[T]):
    """A statement that does a whole write, and its result. If what it was planned from is outdated, it divides by zero
    or inserts a row that exists, and so changes nothing; else `on_response` gets the store's time in milliseconds."""

    sql: str
    arguments: Sequence[Any]
    result: T
    on_response: Callable[[int], None]


PlanStatement = Callable[[Connection, bytes], Awaitable[PlannedStatement[T] | None]]
"""Plans one statement that writes this mark; None if the write takes several statements."""


def _retries_for(seconds: float) -> MayRetry:
    """Retries for so long while connections fail. A server that does not respond has used up the time of its caller."""
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    return lambda unavailable: not is_timeout(unavailable.__cause__) and loop.time() < until


async def _retry(
    attempt: Callable[[], Awaitable[T]],
    may_retry: MayRetry,
    max_repeats: int,
    *,
    is_write: bool = True,
    unknown_results: Sequence[T] = (),
) -> T:
    """The result of the first attempt that succeeds. Raises Unavailable or StoreFault for the last one.

    unknown_results: not empty while an earlier attempt may have been committed.
    """
    repeats = 0
    while True:
        try:
            return await attempt()
        except DATABASE_ERRORS as error:
            verdict = verdict_of(error)
            if verdict is Verdict.REPEAT and repeats < max_repeats:
                repeats += 1
                continue
            failure = failure_of(error, is_write=is_write, is_unknown=bool(unknown_results))
            if not isinstance(failure, Unavailable):
                raise failure from error
            if not ((may_pass(error) or failure.outcome_unknown) and may_retry(failure)):
                raise failure from error
            log.debug("the store cannot be reached; retrying: %s", explain(error))
        await asyncio.sleep(DATABASE_RETRY_INTERVAL)


async def run_transaction(
    connection: Connection, begin_sql: str, job: Callable[[Connection], Awaitable[T]], unknown_results: list[T]
) -> T:
    """Runs one transaction. Raises CommitOutcomeUnknown when the commit gets no response.

    `unknown_results` then gets the result. A retry with the same mark fails on that mark if the commit succeeded, and
    waits for it if it is still in progress; if it can write the mark, the commit failed, and the list is emptied.
    """
    try:
        await connection.execute(begin_sql)
        unknown_results.clear()
        result = await job(connection)
    except BaseException as error:
        await _roll_back(connection, error)
        raise
    with _commit_outcome(connection, result, unknown_results):
        status: Any = await connection.execute("COMMIT")
    if status != "COMMIT":  # the job swallowed an error
        raise RuntimeError(f"the transaction was rolled back: {status}")
    return result


@contextmanager
def _commit_outcome(connection: Connection, result: T, unknown_results: list[T]) -> Iterator[None]:
    """Around a statement that commits. Raises CommitOutcomeUnknown, and adds the result, when it gets no response."""
    try:
        yield
    except (Exception, asyncio.CancelledError) as error:
        if isinstance(error, asyncio.CancelledError) or is_disconnected(error):
            # At once, before the driver asks the server to cancel the statement: that would end its wait for a
            # synchronous standby, and an unreplicated commit would count as done.
            _terminate(connection)
        if is_disconnected(error):
            unknown_results.append(result)
            raise CommitOutcomeUnknown(str(error)) from error
        raise


async def _roll_back(connection: Connection, error: BaseException) -> None:
    """Ends a failed transaction. Closes a connection that cannot be used any more."""
    if is_disconnected(error):
        _terminate(connection)
        return
    try:
        await connection.execute("ROLLBACK")
    except BaseException as failure:  # also canceled: an open transaction must not return to the pool
        _terminate(connection)
        if not isinstance(failure, Exception):
            raise


def _terminate(connection: Connection) -> None:
    with suppress(asyncpg.InterfaceError):  # closed before, and so no longer of the pool
        connection.terminate()


def _commit_mark(seconds: float, random_bytes: bytes) -> bytes:
    return int(seconds * 1000).to_bytes(6, "big") + random_bytes


async def _delete_commit_marks(before: float, connection: Connection) -> None:
    await connection.execute("DELETE FROM commits WHERE mark < $1", _commit_mark(before, b""))


SIDE_CONNECTION_RETRIES: Final = 1
"""Retries after a lost connection: it may have been closed since its last use."""


class SideConnection:
    """One connection, opened when it is first used. Every method blocks; thread-safe."""

    def __init__(self, url: str, name: str, *, pooled: bool = False, timeout: float = STATEMENT_TIMEOUT) -> None:
        """timeout: seconds for one statement, for a connection attempt, and until the connection is free."""
        self._url = url
        self._connector = HostConnector()
        self._timeout = timeout
        self._settings = None if pooled else server_settings(timeout)
        self._thread = ThreadPoolExecutor(1, name)
        self._thread.submit(int)  # starts the thread now: later there may be no memory for it
        self._runner: asyncio.Runner | None = None
        self._connection: Connection | None = None

    def run(self, job: Callable[[Connection], Awaitable[T]]) -> T:
        """Runs a job in a transaction; it may run several times. Raises Unavailable or StoreFault."""
        return self._thread.submit(self._run, job, time.monotonic() + self._timeout).result()

    def close(self) -> None:
        """Closes the connection and ends the thread. Idempotent."""
        with suppress(RuntimeError):  # closed before
            self._thread.submit(self._close).result()
        self._thread.shutdown()

    def _run(self, job: Callable[[Connection], Awaitable[T]], deadline: float) -> T:
        self._runner = self._runner or asyncio.Runner()
        retries_left = SIDE_CONNECTION_RETRIES

        def may_retry(failure: Unavailable) -> bool:
            nonlocal retries_left
            retries_left -= 1
            return retries_left >= 0 and not is_timeout(failure.__cause__)

        async def once() -> T:
            if time.monotonic() > deadline:
                raise TimeoutError("earlier requests got no response")
            return await run_transaction(await self._connected(), BEGIN, job, [])

        return self._runner.run(_retry(once, may_retry, DEFAULT_RETRIES.repeats))

    async def _connected(self) -> Connection:
        """The open connection, or a new one."""
        connection = self._connection
        if connection is None or connection.is_closed():
            self._connection = None
            connection = await self._connector.connect(
                self._url,
                timeout=self._timeout,
                command_timeout=self._timeout,
                statement_cache_size=0,
                server_settings=self._settings,
            )
            try:
                await prepare_connection(connection)
            except BaseException:
                _terminate(connection)
                raise
            self._connection = connection
        return connection

    def _close(self) -> None:
        if self._runner is not None:
            if self._connection is not None and not self._connection.is_closed():
                with suppress(Exception):
                    self._runner.run(self._connection.close(timeout=self._timeout))
            self._runner.close()
            self._runner = self._connection = None
