"""API keys: a row for each, for as long as the store lives."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Awaitable, Callable
from dataclasses import fields
from typing import Any, Final

from dragoman.core.apikeys import ApiKey

_COLUMNS: Final = tuple(field.name for field in fields(ApiKey))
_NAMES: Final = ", ".join(_COLUMNS)
_ADD: Final = f"INSERT INTO api_keys ({_NAMES}) VALUES ({', '.join('?' * len(_COLUMNS))})"
_FIND: Final = f"SELECT {_NAMES} FROM api_keys WHERE id = ?"
_LIST: Final = f"SELECT {_NAMES} FROM api_keys ORDER BY created DESC, id"
_ROTATE: Final = (
    "UPDATE api_keys SET former = digest, former_until = ?, digest = ?, rotated = ?, expires = coalesce(?, expires) "
    "WHERE id = ? AND NOT revoked"
)
_REVOKE: Final = "UPDATE api_keys SET revoked = ? WHERE id = ? AND NOT revoked"
_FORGET: Final = "DELETE FROM api_keys WHERE principal = ? AND revoked"
_TOUCH: Final = "UPDATE api_keys SET used = max(used, ?) WHERE id = ?"

Read = Callable[..., Awaitable[Any]]
"""Runs a function of a reader's connection and further arguments."""

Write = Callable[[Callable[[sqlite3.Connection], Any]], asyncio.Future[Any]]
"""Runs a function of the writer's connection in the next commit."""


class SqliteApiKeys:
    """Implements `dragoman.ports.ApiKeys` on the store's file."""

    def __init__(self, read: Read, write: Write, write_at_leisure: Write) -> None:
        self._read = read
        self._write = write
        self._write_at_leisure = write_at_leisure

    async def add(self, key: ApiKey) -> None:
        row = [getattr(key, name) for name in _COLUMNS]
        row[_COLUMNS.index("grants")] = json.dumps(sorted(key.grants))
        if not await self._write(lambda connection: _add(connection, row)):
            raise ValueError(f'there is a key "{key.id}" already')

    async def find(self, id: str) -> ApiKey | None:
        found: ApiKey | None = await self._read(_find, id)
        return found

    async def list(self) -> list[ApiKey]:
        found: list[ApiKey] = await self._read(_list)
        return found

    async def rotate(
        self, id: str, digest: bytes, *, now: int, until: int, expires: int | None = None
    ) -> ApiKey | None:
        def job(connection: sqlite3.Connection) -> ApiKey | None:
            changed = connection.execute(_ROTATE, (until, digest, now, expires, id)).rowcount
            return _find(connection, id) if changed else None

        found: ApiKey | None = await self._write(job)
        return found

    async def revoke(self, id: str, *, now: int) -> ApiKey | None:
        def job(connection: sqlite3.Connection) -> ApiKey | None:
            connection.execute(_REVOKE, (now, id))
            return _find(connection, id)

        found: ApiKey | None = await self._write(job)
        return found

    async def touch(self, id: str, *, now: int) -> None:
        await self._write_at_leisure(lambda connection: connection.execute(_TOUCH, (now, id)))


def forget(connection: sqlite3.Connection, principal: str) -> None:
    """Takes away the revoked keys of a principal of which nothing is to stay; the others are still in use."""
    connection.execute(_FORGET, (principal,))


def _add(connection: sqlite3.Connection, row: list[Any]) -> bool:
    if _find(connection, row[0]) is not None:
        return False
    connection.execute(_ADD, row)
    return True


def _find(connection: sqlite3.Connection, id: str) -> ApiKey | None:
    row = connection.execute(_FIND, (id,)).fetchone()
    return None if row is None else _key(row)


def _list(connection: sqlite3.Connection) -> list[ApiKey]:
    return [_key(row) for row in connection.execute(_LIST)]


def _key(row: tuple[Any, ...]) -> ApiKey:
    kept = dict(zip(_COLUMNS, row, strict=True))
    return ApiKey(**{**kept, "grants": frozenset(json.loads(kept["grants"]))})
