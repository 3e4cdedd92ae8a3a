"""The audit log: a row for each entry, in the store's file."""

from __future__ import annotations

import json
import secrets
import sqlite3
from collections.abc import Sequence
from typing import Any, Final

from dragoman.core.audit import GENESIS, SALT, Entry, Kept, chained, principal_of, text_of
from dragoman.stores.sqlite.apikeys import Read, Write

_COLUMNS: Final = "number, at, action, outcome, about, who, salt, seal, hash"
_LAST: Final = "SELECT number, hash FROM audit ORDER BY number DESC LIMIT 1"
_ADD: Final = f"INSERT INTO audit ({_COLUMNS}, principal) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_READ: Final = f"SELECT {_COLUMNS} FROM audit WHERE number > ? ORDER BY number LIMIT ?"
_KEPT: Final = "SELECT min(number) FROM (SELECT number, at FROM audit ORDER BY number LIMIT ?) WHERE at >= ?"
_LEFT: Final = "SELECT max(number) FROM (SELECT number FROM audit ORDER BY number LIMIT ?)"
_CUT: Final = "DELETE FROM audit WHERE number < ?"
_ERASE: Final = "UPDATE audit SET who = NULL, salt = NULL, principal = '' WHERE principal = ?"


class SqliteAuditLog:
    """Implements `dragoman.ports.AuditLog` on the store's file."""

    def __init__(self, read: Read, write: Write) -> None:
        self._read = read
        self._write = write

    async def add(self, entries: Sequence[Entry]) -> None:
        salts = [secrets.token_bytes(SALT) for _ in entries]
        await self._write(lambda connection: _add(connection, entries, salts))

    async def read(self, after: int, limit: int = 256) -> list[Kept]:
        found: list[Kept] = await self._read(_read, after, limit)
        return found

    async def cut(self, before: int, limit: int = 1024) -> int:
        done: int = await self._write(lambda connection: _cut(connection, before, limit))
        return done


def erase(connection: sqlite3.Connection, principal: str) -> None:
    """Takes away who did what a principal did."""
    connection.execute(_ERASE, (principal,))


def _add(connection: sqlite3.Connection, entries: Sequence[Entry], salts: Sequence[bytes]) -> None:
    number, former = connection.execute(_LAST).fetchone() or (0, GENESIS)
    rows = [_row(kept) for kept in chained(former, number, entries, salts)]
    connection.executemany(_ADD, rows)


def _row(kept: Kept) -> tuple[Any, ...]:
    entry = kept.entry
    return (
        *(kept.number, entry.at, entry.action, entry.outcome, text_of(entry.about), text_of(entry.who)),
        *(kept.salt, kept.seal, kept.hash, principal_of(entry)),
    )


def _read(connection: sqlite3.Connection, after: int, limit: int) -> list[Kept]:
    return [_kept(found) for found in connection.execute(_READ, (after, limit))]


def _kept(found: Sequence[Any]) -> Kept:
    number, at, action, outcome, about, who, salt, seal, hash = found
    entry = Entry(at, action, outcome, json.loads(about), json.loads(who) if who is not None else {})
    return Kept(number, entry, salt, seal, hash)


def _cut(connection: sqlite3.Connection, before: int, limit: int) -> int:
    (stays,) = connection.execute(_KEPT, (limit + 1, before)).fetchone()
    if stays is None:  # all that was looked at is old; the last of it stays, it may be the last of all
        (stays,) = connection.execute(_LEFT, (limit + 1,)).fetchone()
    return connection.execute(_CUT, (stays,)).rowcount if stays is not None else 0
