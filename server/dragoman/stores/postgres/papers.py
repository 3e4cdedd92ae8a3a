"""Small texts by name, in the database."""

from __future__ import annotations

from typing import Final

from asyncpg import Connection

from dragoman.stores.postgres.database import Database

_NAME: Final = "paper {}"
"""What a text is called in `meta`, which also has what the store knows of itself."""
_READ: Final = "SELECT value FROM meta WHERE name = $1"
_ADD: Final = "INSERT INTO meta VALUES ($1, $2) ON CONFLICT (name) DO NOTHING RETURNING name"
_CHANGE: Final = "UPDATE meta SET value = $2 WHERE name = $1 AND value = $3 RETURNING name"


class PostgresPapers:
    """Implements `dragoman.ports.Papers` on a database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def read(self, name: str) -> str:
        return await self._database.look(_read, name)

    async def write(self, name: str, text: str, *, former: str) -> bool:
        return await self._database.change(_write, name, text, former)


async def _read(connection: Connection, name: str) -> str:
    return str(await connection.fetchval(_READ, _NAME.format(name)) or "")


async def _write(connection: Connection, name: str, text: str, former: str) -> bool:
    if former:
        return await connection.fetchval(_CHANGE, _NAME.format(name), text, former) is not None
    return await connection.fetchval(_ADD, _NAME.format(name), text) is not None
