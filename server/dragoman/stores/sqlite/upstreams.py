"""Agents upstream that were added: a row for each."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from typing import Any, Final

from dragoman.ports import Added

_ADD: Final = "INSERT OR IGNORE INTO upstreams (agent, entry, since) VALUES (?, ?, ?)"
_LIST: Final = "SELECT agent, entry, since FROM upstreams ORDER BY since, agent"
_REMOVE: Final = "DELETE FROM upstreams WHERE agent = ?"

Read = Callable[..., Awaitable[Any]]
"""Runs a function of a reader's connection and further arguments."""

Write = Callable[[Callable[[sqlite3.Connection], Any]], asyncio.Future[Any]]
"""Runs a function of the writer's connection in the next commit."""


class SqliteUpstreams:
    """Implements `dragoman.ports.Upstreams` on the store's file."""

    def __init__(self, read: Read, write: Write) -> None:
        self._read = read
        self._write = write

    async def add(self, added: Added) -> bool:
        row = (added.agent, added.entry, added.since)
        return bool(await self._write(lambda connection: connection.execute(_ADD, row).rowcount))

    async def list(self) -> list[Added]:
        found: list[Added] = await self._read(_list)
        return found

    async def remove(self, agent: str) -> bool:
        return bool(await self._write(lambda connection: connection.execute(_REMOVE, (agent,)).rowcount))


def _list(connection: sqlite3.Connection) -> list[Added]:
    return [Added(*row) for row in connection.execute(_LIST)]
