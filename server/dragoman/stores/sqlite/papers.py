"""Small texts by name, in the store's file."""

from __future__ import annotations

import sqlite3
from typing import Final

from dragoman.stores.sqlite.apikeys import Read, Write

_NAME: Final = "paper {}"
"""What a text is called in `meta`, which also has what the store knows of itself."""
_READ: Final = "SELECT value FROM meta WHERE name = ?"
_WRITE: Final = "INSERT INTO meta (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value"


class SqlitePapers:
    """Implements `dragoman.ports.Papers` on the store's file."""

    def __init__(self, read: Read, write: Write) -> None:
        self._read = read
        self._write = write

    async def read(self, name: str) -> str:
        found: str = await self._read(_read, name)
        return found

    async def write(self, name: str, text: str, *, former: str) -> bool:
        def job(connection: sqlite3.Connection) -> bool:
            if _read(connection, name) != former:
                return False
            connection.execute(_WRITE, (_NAME.format(name), text))
            return True

        done: bool = await self._write(job)
        return done


def _read(connection: sqlite3.Connection, name: str) -> str:
    row = connection.execute(_READ, (_NAME.format(name),)).fetchone()
    return row[0] if row else ""
