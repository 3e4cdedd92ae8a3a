"""API keys: a row for each, for as long as the store lives."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import fields
from typing import Any, Final

from asyncpg import Connection

from dragoman.core.apikeys import ApiKey
from dragoman.stores.postgres.database import Database

_COLUMNS: Final = tuple(field.name for field in fields(ApiKey))
_NAMES: Final = ", ".join(_COLUMNS)
_MARKS: Final = ", ".join(f"${number}" for number in range(1, len(_COLUMNS) + 1))
_ADD: Final = f"INSERT INTO api_keys ({_NAMES}) VALUES ({_MARKS}) ON CONFLICT (id) DO NOTHING"
_FIND: Final = f"SELECT {_NAMES} FROM api_keys WHERE id = $1"
_LIST: Final = f"SELECT {_NAMES} FROM api_keys ORDER BY created DESC, id"
_ROTATE: Final = f"""
UPDATE api_keys SET former = digest, former_until = $2, digest = $3, rotated = $4, expires = coalesce($5, expires)
WHERE id = $1 AND revoked = 0 RETURNING {_NAMES}
"""
_REVOKE: Final = "UPDATE api_keys SET revoked = $2 WHERE id = $1 AND revoked = 0"
_FORGET: Final = "DELETE FROM api_keys WHERE principal = $1 AND revoked <> 0"
_TOUCH: Final = "UPDATE api_keys SET used = greatest(used, $2) WHERE id = $1"


class PostgresApiKeys:
    """Implements `dragoman.ports.ApiKeys` on a database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, key: ApiKey) -> None:
        row = [getattr(key, name) for name in _COLUMNS]
        row[_COLUMNS.index("grants")] = json.dumps(sorted(key.grants))
        if await self._database.change(_execute, _ADD, *row) == "INSERT 0 0":
            raise ValueError(f'there is a key "{key.id}" already')

    async def find(self, id: str) -> ApiKey | None:
        return await self._database.look(_find, id)

    async def list(self) -> list[ApiKey]:
        return await self._database.look(_list)

    async def rotate(
        self, id: str, digest: bytes, *, now: int, until: int, expires: int | None = None
    ) -> ApiKey | None:
        return await self._database.change(_rotate, id, until, digest, now, expires)

    async def revoke(self, id: str, *, now: int) -> ApiKey | None:
        return await self._database.change(_revoke, id, now)

    async def touch(self, id: str, *, now: int) -> None:
        await self._database.change(_execute, _TOUCH, id, now)


async def forget(connection: Connection, principal: str) -> None:
    """Takes away the revoked keys of a principal of which nothing is to stay; the others are still in use."""
    await connection.execute(_FORGET, principal)


async def _execute(connection: Connection, sql: str, *values: Any) -> str:
    return str(await connection.execute(sql, *values))


async def _find(connection: Connection, id: str) -> ApiKey | None:
    row = await connection.fetchrow(_FIND, id)
    return None if row is None else _key(row)


async def _list(connection: Connection) -> list[ApiKey]:
    return [_key(row) for row in await connection.fetch(_LIST)]


async def _rotate(connection: Connection, *values: Any) -> ApiKey | None:
    row = await connection.fetchrow(_ROTATE, *values)
    return None if row is None else _key(row)


async def _revoke(connection: Connection, id: str, now: int) -> ApiKey | None:
    await connection.execute(_REVOKE, id, now)
    return await _find(connection, id)


def _key(row: Sequence[Any]) -> ApiKey:
    kept = dict(zip(_COLUMNS, row, strict=True))
    return ApiKey(**{**kept, "grants": frozenset(json.loads(kept["grants"]))})
