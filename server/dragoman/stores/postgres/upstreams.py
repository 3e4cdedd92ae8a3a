"""Agents upstream that were added: a row for each."""

from __future__ import annotations

from typing import Final

from asyncpg import Connection

from dragoman.ports import Added
from dragoman.stores.postgres.database import Database

_ADD: Final = "INSERT INTO upstreams (agent, entry, since) VALUES ($1, $2, $3) ON CONFLICT (agent) DO NOTHING"
_LIST: Final = "SELECT agent, entry, since FROM upstreams ORDER BY since, agent"
_REMOVE: Final = "DELETE FROM upstreams WHERE agent = $1"


class PostgresUpstreams:
    """Implements `dragoman.ports.Upstreams` on a database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, added: Added) -> bool:
        return await self._database.change(_add, added)

    async def list(self) -> list[Added]:
        return await self._database.look(_list)

    async def remove(self, agent: str) -> bool:
        return await self._database.change(_remove, agent)


async def _add(connection: Connection, added: Added) -> bool:
    return str(await connection.execute(_ADD, added.agent, added.entry, added.since)) != "INSERT 0 0"


async def _list(connection: Connection) -> list[Added]:
    return [Added(*row) for row in await connection.fetch(_LIST)]


async def _remove(connection: Connection, agent: str) -> bool:
    return str(await connection.execute(_REMOVE, agent)) != "DELETE 0"
