"""A connection for those who may not wait for the event loop, on a thread and a loop of its own.

A session is renewed so: a loop that an agent blocks must not look like a dead process. So are the bytes of a link
looked up, which is asked for from a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final, TypeVar

import asyncpg
from asyncpg import Connection

from dragoman.stores.postgres.database import ANSWER, CONNECT
from dragoman.stores.postgres.rows import prepare
from dragoman.stores.postgres.trouble import is_away, outage

T = TypeVar("T")

ATTEMPTS: Final = 2
"""The connection may have been closed since it was used last."""


class Aside:
    """One connection, made when it is first used. Every method blocks; safe from any thread."""

    def __init__(self, url: str, name: str) -> None:
        self._url = url
        self._thread = ThreadPoolExecutor(1, name)
        self._runner: asyncio.Runner | None = None
        self._connection: Connection | None = None

    def run(self, job: Callable[[Connection], Awaitable[T]]) -> T:
        """Does something in a transaction. Raises Unavailable when the server is away."""
        return self._thread.submit(self._run, job).result()

    def close(self) -> None:
        """Closes the connection and ends the thread. May be called twice."""
        with suppress(RuntimeError):  # closed before
            self._thread.submit(self._close).result()
        self._thread.shutdown()

    def _run(self, job: Callable[[Connection], Awaitable[T]]) -> T:
        self._runner = self._runner or asyncio.Runner()
        for attempt in range(ATTEMPTS):
            try:
                return self._runner.run(self._once(job))
            except Exception as error:
                if attempt + 1 == ATTEMPTS or not is_away(error):
                    raise outage(error) from error
        raise AssertionError("the last attempt returns or raises")

    async def _once(self, job: Callable[[Connection], Awaitable[T]]) -> T:
        connection = self._connection
        if connection is None or connection.is_closed():
            connection = self._connection = await asyncpg.connect(
                self._url, timeout=CONNECT, command_timeout=ANSWER, statement_cache_size=0
            )
            await prepare(connection)
        async with connection.transaction():
            return await job(connection)

    def _close(self) -> None:
        if self._runner is not None:
            if self._connection is not None and not self._connection.is_closed():
                with suppress(Exception):
                    self._runner.run(self._connection.close(timeout=CONNECT))
            self._runner.close()
            self._runner = self._connection = None
