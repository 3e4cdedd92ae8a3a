"""The way to one database: connections that keep no state between transactions, and what is tried again.

Whatever is written is written in a transaction of a few round trips. It begins with a lock that all writers share
(`GATE`); whoever has to be alone for a moment takes it for itself. Both go with the transaction, as every lock and
setting here does, so a pooler may give each transaction another connection.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

import asyncpg
from asyncpg import Connection, Pool

from dragoman.core.errors import Unavailable
from dragoman.stores.postgres.migrating import LOCK
from dragoman.stores.postgres.rows import prepare
from dragoman.stores.postgres.trouble import Uncertain, explain, has_collided, is_away, outage

log = logging.getLogger("dragoman.store")

GATE: Final = LOCK + 1
CONNECT: Final = 5.0
"""Seconds for one attempt to connect."""
ANSWER: Final = 60.0
"""Seconds for one statement."""
PATIENCE: Final = 10.0
"""Seconds for which a server that is away is asked again, before whoever waits is told."""
READ_PATIENCE: Final = 5.0
"""The same for those who only read."""
UNCERTAIN: Final = 60.0
"""The same for a commit that nobody answered."""
MARKED: Final = 600.0
"""Seconds for which the mark of a commit is kept."""
PAUSE: Final = 0.1
COLLISIONS: Final = 5
"""Attempts of a transaction that others undo."""

NOW: Final = "coalesce({}::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint)"
"""The store's time in milliseconds, of the server unless the argument says another."""

# Whatever the database's default: a statement has to see what was committed while it waited for a lock.
_BEGIN: Final = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"

# Rows are looked up by their keys, a few of many: no plan that a young table's statistics suggest may walk through it,
# and one plan suits whatever is given.
_PLANS: Final = "; ".join(
    f"SET LOCAL {setting}"
    for setting in (
        "plan_cache_mode = force_generic_plan",
        "enable_seqscan = off",
        "enable_hashjoin = off",
        "enable_mergejoin = off",
    )
)
BEGIN: Final = f"{_BEGIN}; {_PLANS}; SELECT pg_advisory_xact_lock_shared({GATE})"
ALONE: Final = f"{_BEGIN}; {_PLANS}; SELECT pg_advisory_xact_lock({GATE})"

Clock = Callable[[], int]
P = ParamSpec("P")
T = TypeVar("T")


def pool(url: str, *, most: int, pooled: bool, init: Callable[[Connection], Awaitable[None]] = prepare) -> Pool:
    """Connections, made when they are needed. `pooled`: behind a pooler that gives each transaction another one."""
    return asyncpg.create_pool(
        url,
        min_size=0,
        max_size=most,
        init=init,
        reset=_nothing,
        timeout=CONNECT,
        command_timeout=ANSWER,
        statement_cache_size=0 if pooled else 200,
        max_cached_statement_lifetime=0,
    )


async def _nothing(_: Connection) -> None:
    """What there is to undo when a connection is given back."""


class Database:
    """One database for one event loop."""

    def __init__(self, url: str, clock: Clock | None, *, connections: int, pooled: bool) -> None:
        self._clock = clock
        self._pooled = pooled
        # Those who read in great numbers never keep a commit from its connection.
        self._writing = pool(url, most=1, pooled=pooled)
        self._others = pool(url, most=connections, pooled=pooled)

    @property
    def at(self) -> int | None:
        """The time, where it is not the server's that counts: the argument of NOW."""
        return self._clock() if self._clock else None

    async def now(self, connection: Connection) -> int:
        """The store's time in milliseconds."""
        found: int = await connection.fetchval(f"SELECT {NOW.format('$1')}", self.at)
        return found

    async def open(self) -> None:
        """Begins. Nothing is connected before it is needed."""
        await self._writing
        await self._others

    async def close(self) -> None:
        """Closes its connections."""
        for one in (self._writing, self._others):
            try:
                await asyncio.wait_for(one.close(), CONNECT)
            except TimeoutError:
                one.terminate()

    async def look(
        self, read: Callable[Concatenate[Connection, P], Awaitable[T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Reads with one statement. Raises Unavailable when the server is away."""
        # Behind a pooler, a statement outside of a transaction and its preparation may meet two servers.
        return await self._look("read_committed" if self._pooled else "", read, *args, **kwargs)

    async def snapshot(
        self, read: Callable[Concatenate[Connection, P], Awaitable[T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Reads with more than one statement, all of which see the same moment."""

        return await self._look("repeatable_read", read, *args, **kwargs)

    async def change(
        self, write: Callable[Concatenate[Connection, P], Awaitable[T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Writes in one transaction, which may be begun more than once. Raises Unavailable when the server is away."""
        return await self._change(self._others, BEGIN, lambda connection: write(connection, *args, **kwargs))

    async def change_alone(
        self, write: Callable[Concatenate[Connection, P], Awaitable[T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """The same, while nobody else writes."""
        return await self._change(self._others, ALONE, lambda connection: write(connection, *args, **kwargs))

    async def commit(self, write: Callable[[Connection], Awaitable[T]], names: Sequence[int]) -> T:
        """The same, on the connection that is kept for appends, and with these locks, in this order."""
        locks = "".join(f"; SELECT pg_advisory_xact_lock({name})" for name in names)
        return await self._change(self._writing, BEGIN + locks, write)

    async def _look(self, isolation: str, read: Callable[..., Awaitable[T]], *args: Any, **kwargs: Any) -> T:
        async def once() -> T:
            async with self._others.acquire() as connection:
                if not isolation:
                    return await read(connection, *args, **kwargs)
                async with connection.transaction(isolation=isolation, readonly=True):
                    return await read(connection, *args, **kwargs)

        try:
            return await self._patiently(once, READ_PATIENCE)
        except Exception as error:
            raise outage(error, wrote=False) from error

    async def forget_marks(self) -> None:
        """Removes the marks of commits that nobody can ask about any more."""
        await self.change(_forget_marks)

    async def _change(self, connections: Pool, begin: str, write: Callable[[Connection], Awaitable[T]]) -> T:
        marked = f"{begin}; INSERT INTO commits VALUES ('\\x{_mark(time.time(), secrets.token_bytes(10)).hex()}')"
        unanswered: list[T] = []

        async def once() -> T:
            connection = await connections.acquire()
            try:
                return await transact(connection, marked, write, unanswered)
            except asyncpg.UniqueViolationError as error:
                if unanswered and error.constraint_name == "commits_pkey":  # it was done, after all
                    return unanswered[-1]
                raise
            finally:
                with suppress(Exception):  # what is committed is not tried again because of this
                    await connections.release(connection)

        try:
            return await self._patiently(once, PATIENCE)
        except Exception as error:
            told = outage(Uncertain(str(error)) if unanswered and is_away(error) else error)
            if isinstance(told, Unavailable):
                told.uncertain = bool(unanswered)
            raise told from error

    async def _patiently(self, once: Callable[[], Awaitable[T]], patience: float) -> T:
        loop = asyncio.get_running_loop()
        begun, collisions = loop.time(), 0
        until = begun + patience
        while True:
            try:
                return await once()
            except Exception as error:
                if has_collided(error) and collisions < COLLISIONS:
                    collisions += 1
                elif isinstance(error, Uncertain) and loop.time() < begun + UNCERTAIN:
                    until = begun + UNCERTAIN
                elif is_away(error) and loop.time() < until:
                    log.debug("the store is away; it is asked again: %s", explain(error))
                    await asyncio.sleep(PAUSE)
                else:
                    raise


async def transact(
    connection: Connection, begin: str, write: Callable[[Connection], Awaitable[T]], unanswered: list[T]
) -> T:
    """One transaction. Raises Uncertain when the connection breaks in the commit, and notes what it would have given.

    Begun once more with the same mark it fails on that if it was done; it waits for it if it is still being done.
    """
    try:
        await connection.execute(begin)
        result = await write(connection)
    except BaseException:
        if not connection.is_closed():
            with suppress(Exception):
                await connection.execute("ROLLBACK")
        raise
    try:
        said: Any = await connection.execute("COMMIT")
    except Exception as error:
        if is_away(error):
            unanswered.append(result)
            raise Uncertain(str(error)) from error
        raise
    if said != "COMMIT":  # what failed in it was swallowed
        raise RuntimeError(f"the transaction was undone: {said}")
    return result


def _mark(seconds: float, entropy: bytes) -> bytes:
    return int(seconds * 1000).to_bytes(6, "big") + entropy


async def _forget_marks(connection: Connection) -> None:
    await connection.execute("DELETE FROM commits WHERE mark < $1", _mark(time.time() - MARKED, b""))
