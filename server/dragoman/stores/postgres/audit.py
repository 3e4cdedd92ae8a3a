"""The audit log: a row for each entry. Who adds some holds a lock of its own meanwhile, so that there is one chain."""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from typing import Any, Final

from asyncpg import Connection

from dragoman.core.audit import GENESIS, SALT, Entry, Kept, chained, principal_of, text_of
from dragoman.stores.postgres.database import GATE, Database

LOCK: Final = GATE + 100
"""Held by who adds entries."""

_COLUMNS: Final = "number, at, action, outcome, about, who, salt, seal, hash"
_LAST: Final = "SELECT number, hash FROM audit ORDER BY number DESC LIMIT 1"
_ADD: Final = f"INSERT INTO audit ({_COLUMNS}, principal) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)"
_READ: Final = f"SELECT {_COLUMNS} FROM audit WHERE number > $1 ORDER BY number LIMIT $2"
_KEPT: Final = (
    "SELECT min(number) FROM (SELECT number, at FROM audit ORDER BY number LIMIT $1) AS oldest WHERE at >= $2"
)
_LEFT: Final = "SELECT max(number) FROM (SELECT number FROM audit ORDER BY number LIMIT $1) AS oldest"
_CUT: Final = "DELETE FROM audit WHERE number < $1"
_ERASE: Final = "UPDATE audit SET who = NULL, salt = NULL, principal = '' WHERE principal = $1"


class PostgresAuditLog:
    """Implements `dragoman.ports.AuditLog` on a database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, entries: Sequence[Entry]) -> None:
        salts = [secrets.token_bytes(SALT) for _ in entries]
        await self._database.change(_add, entries, salts)

    async def read(self, after: int, limit: int = 256) -> list[Kept]:
        return await self._database.look(_read, after, limit)

    async def cut(self, before: int, limit: int = 1024) -> int:
        return await self._database.change(_cut, before, limit)


async def erase(connection: Connection, principal: str) -> None:
    """Takes away who did what a principal did."""
    await connection.execute(_ERASE, principal)


async def _add(connection: Connection, entries: Sequence[Entry], salts: Sequence[bytes]) -> None:
    await connection.execute(f"SELECT pg_advisory_xact_lock({LOCK})")
    number, former = await connection.fetchrow(_LAST) or (0, GENESIS)
    await connection.executemany(_ADD, [_row(kept) for kept in chained(former, number, entries, salts)])


def _row(kept: Kept) -> tuple[Any, ...]:
    entry = kept.entry
    return (
        *(kept.number, entry.at, entry.action, entry.outcome, text_of(entry.about), text_of(entry.who)),
        *(kept.salt, kept.seal, kept.hash, principal_of(entry)),
    )


async def _read(connection: Connection, after: int, limit: int) -> list[Kept]:
    return [_kept(found) for found in await connection.fetch(_READ, after, limit)]


def _kept(found: Sequence[Any]) -> Kept:
    number, at, action, outcome, about, who, salt, seal, hash = found
    entry = Entry(at, action, outcome, json.loads(about), json.loads(who) if who is not None else {})
    return Kept(number, entry, salt, seal, hash)


async def _cut(connection: Connection, before: int, limit: int) -> int:
    stays = await connection.fetchval(_KEPT, limit + 1, before)
    if stays is None:  # all that was looked at is old; the last of it stays, it may be the last of all
        stays = await connection.fetchval(_LEFT, limit + 1)
    if stays is None:
        return 0
    return int(str(await connection.execute(_CUT, stays)).removeprefix("DELETE "))
