"""Cancels that were asked for: a row for each, which holds until its task has ended the turn."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from asyncpg import Connection

from dragoman.core.log import TaskRef
from dragoman.core.names import Owner
from dragoman.stores.postgres.database import Database

_ASK: Final = """
INSERT INTO cancels (owner, task, until)
SELECT t.owner, t.task, t.inbox FROM owners o JOIN tasks t ON t.owner = o.owner
WHERE o.scope = $1 AND o.principal = $2 AND t.task = $3 AND (t.session > 0 OR t.ready)
ON CONFLICT (owner, task) DO UPDATE SET until = excluded.until
"""
_HOLDS: Final = "t.answered < c.until AND (t.session > 0 OR t.ready)"
_OF: Final = f"""
SELECT o.scope, o.principal, c.task FROM cancels c JOIN tasks t ON t.owner = c.owner AND t.task = c.task
JOIN owners o ON o.owner = c.owner WHERE {_HOLDS}
"""
# In one order, so that two who tidy at once never wait for each other in a circle.
_OVER: Final = f"""
DELETE FROM cancels WHERE (owner, task) IN (
    SELECT c.owner, c.task FROM cancels c WHERE NOT EXISTS (
        SELECT 1 FROM tasks t WHERE t.owner = c.owner AND t.task = c.task AND {_HOLDS})
    ORDER BY c.owner, c.task FOR UPDATE OF c)
"""
_ANY: Final = "SELECT EXISTS (SELECT 1 FROM cancels)"


class PostgresCancels:
    """Implements `dragoman.ports.Cancels` on a database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def ask(self, task: TaskRef) -> None:
        owner, key = task
        await self._database.change(_execute, _ASK, owner.scope, owner.principal, key)

    async def of(self, session: int) -> list[TaskRef]:
        return await self._database.look(_of, " AND t.session = $1", session)

    async def among(self, tasks: Collection[TaskRef]) -> set[TaskRef]:
        return set(tasks).intersection(await self._database.look(_of, ""))

    async def tidy(self) -> None:
        """Forgets those that are over."""
        if await self._database.look(_any):
            await self._database.change(_execute, _OVER)


async def _execute(connection: Connection, sql: str, *values: Any) -> None:
    await connection.execute(sql, *values)


async def _of(connection: Connection, more: str, *values: int) -> list[TaskRef]:
    rows = await connection.fetch(_OF + more, *values)
    return [TaskRef(Owner(row[0], row[1]), row[2]) for row in rows]


async def _any(connection: Connection) -> bool:
    return bool(await connection.fetchval(_ANY))
