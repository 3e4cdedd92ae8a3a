"""Cancels that were asked for: a row for each, which holds until its task has ended the turn."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Collection
from typing import Any, Final

from dragoman.core.log import TaskRef
from dragoman.core.names import Owner

_ASK: Final = """
INSERT INTO cancels (owner, task, until)
SELECT t.owner, t.task, t.inbox FROM owners o JOIN tasks t ON t.owner = o.owner
WHERE o.scope = ? AND o.principal = ? AND t.task = ? AND (t.session > 0 OR t.ready)
ON CONFLICT (owner, task) DO UPDATE SET until = excluded.until
"""
_HOLDS: Final = "t.answered < c.until AND (t.session > 0 OR t.ready)"
_OF: Final = f"""
SELECT o.scope, o.principal, c.task FROM cancels c JOIN tasks t ON t.owner = c.owner AND t.task = c.task
JOIN owners o ON o.owner = c.owner WHERE {_HOLDS}
"""
_OVER: Final = f"""
DELETE FROM cancels WHERE NOT EXISTS (
    SELECT 1 FROM cancels c JOIN tasks t ON t.owner = c.owner AND t.task = c.task
    WHERE c.owner = cancels.owner AND c.task = cancels.task AND {_HOLDS})
"""
_ANY: Final = "SELECT EXISTS (SELECT 1 FROM cancels)"

Read = Callable[..., Awaitable[Any]]
"""Runs a function of a reader's connection and further arguments."""

Write = Callable[[Callable[[sqlite3.Connection], Any]], asyncio.Future[Any]]
"""Runs a function of the writer's connection in the next commit."""


class SqliteCancels:
    """Implements `dragoman.ports.Cancels` on the store's file."""

    def __init__(self, read: Read, write: Write, low: Write) -> None:
        """`low` is the way of what may wait."""
        self._read = read
        self._write = write
        self._low = low

    async def ask(self, task: TaskRef) -> None:
        owner, key = task
        await self._write(lambda connection: connection.execute(_ASK, (owner.scope, owner.principal, key)).rowcount)

    async def of(self, session: int) -> list[TaskRef]:
        found: list[TaskRef] = await self._read(_of, " AND t.session = ?", session)
        return found

    async def among(self, tasks: Collection[TaskRef]) -> set[TaskRef]:
        return set(tasks).intersection(await self._read(_of, ""))

    async def tidy(self) -> None:
        """Forgets those that are over."""
        if await self._read(_any):
            await self._low(lambda connection: connection.execute(_OVER).rowcount)


def _of(connection: sqlite3.Connection, more: str, *values: int) -> list[TaskRef]:
    rows = connection.execute(_OF + more, values)
    return [TaskRef(Owner(scope, principal), key) for scope, principal, key in rows]


def _any(connection: sqlite3.Connection) -> bool:
    return bool(connection.execute(_ANY).fetchone()[0])
