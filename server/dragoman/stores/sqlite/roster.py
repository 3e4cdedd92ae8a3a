"""The agents of workers: a row for each, until somebody strikes it out."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from typing import Any, Final

from dragoman.ports import Enrolled

_ENROL: Final = (
    "INSERT INTO roster (agent, principal, registration, since, seen) VALUES (?, ?, ?, ?, ?) "
    "ON CONFLICT (agent) DO UPDATE SET registration = excluded.registration, seen = excluded.seen "
    "WHERE principal = excluded.principal"
)
_FIND: Final = "SELECT agent, principal, registration, since, seen FROM roster WHERE agent = ?"
_LIST: Final = "SELECT agent, principal, registration, since, seen FROM roster ORDER BY agent"
_STRIKE: Final = "DELETE FROM roster WHERE agent = ?"

Read = Callable[..., Awaitable[Any]]
"""Runs a function of a reader's connection and further arguments."""

Write = Callable[[Callable[[sqlite3.Connection], Any]], asyncio.Future[Any]]
"""Runs a function of the writer's connection in the next commit."""


class SqliteRoster:
    """Implements `dragoman.ports.Roster` on the store's file."""

    def __init__(self, read: Read, write: Write) -> None:
        self._read = read
        self._write = write

    async def enrol(self, entry: Enrolled) -> Enrolled:
        def job(connection: sqlite3.Connection) -> Enrolled:
            connection.execute(_ENROL, (entry.agent, entry.principal, entry.registration, entry.since, entry.seen))
            return Enrolled(*connection.execute(_FIND, (entry.agent,)).fetchone())

        kept: Enrolled = await self._write(job)
        return kept

    async def list(self) -> list[Enrolled]:
        found: list[Enrolled] = await self._read(_list)
        return found

    async def strike(self, agent: str) -> bool:
        return bool(await self._write(lambda connection: connection.execute(_STRIKE, (agent,)).rowcount))


def _list(connection: sqlite3.Connection) -> list[Enrolled]:
    return [Enrolled(*row) for row in connection.execute(_LIST)]
