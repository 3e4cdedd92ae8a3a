"""The agents of workers: a row for each, until somebody strikes it out."""

from __future__ import annotations

from typing import Final

from asyncpg import Connection

from dragoman.ports import Enrolled
from dragoman.stores.postgres.database import Database

_COLUMNS: Final = "agent, principal, registration, since, seen"
_ENROL: Final = f"""
INSERT INTO roster ({_COLUMNS}) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (agent) DO UPDATE SET registration = excluded.registration, seen = excluded.seen
    WHERE roster.principal = excluded.principal
"""
_FIND: Final = f"SELECT {_COLUMNS} FROM roster WHERE agent = $1"
_LIST: Final = f"SELECT {_COLUMNS} FROM roster ORDER BY agent"
_STRIKE: Final = "DELETE FROM roster WHERE agent = $1"


class PostgresRoster:
    """Implements `dragoman.ports.Roster` on a database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def enrol(self, entry: Enrolled) -> Enrolled:
        return await self._database.change(_enrol, entry)

    async def list(self) -> list[Enrolled]:
        return await self._database.look(_list)

    async def strike(self, agent: str) -> bool:
        return await self._database.change(_strike, agent)


async def _enrol(connection: Connection, entry: Enrolled) -> Enrolled:
    await connection.execute(_ENROL, entry.agent, entry.principal, entry.registration, entry.since, entry.seen)
    return Enrolled(*await connection.fetchrow(_FIND, entry.agent))


async def _list(connection: Connection) -> list[Enrolled]:
    return [Enrolled(*row) for row in await connection.fetch(_LIST)]


async def _strike(connection: Connection, agent: str) -> bool:
    return str(await connection.execute(_STRIKE, agent)) != "DELETE 0"
