"""The small tables of a store: API keys, audit log, key-value pairs, workers, upstreams, pushes."""

from __future__ import annotations

import asyncio
import secrets
import sqlite3
from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial
from typing import Any, Final

from dragoman.core.access.caller_credentials import ApiKey
from dragoman.core.audit import GENESIS_HASH, SALT_BYTES, AuditEntry, AuditRecord, chain_entries
from dragoman.core.push.configuration import PushConfig
from dragoman.core.push.delivery import DEFAULT_LONGEST_DELAY_MS, DeliveryAttempt, DeliveryReport, PushRecord
from dragoman.core.task.log import TaskRef
from dragoman.ports import AddedUpstream, PushConfigKey, RegisteredAgent
from dragoman.stores.shared.rows import (
    API_KEY_COLUMNS,
    API_KEY_FIELDS,
    AUDIT_COLUMNS,
    api_key_from_row,
    api_key_values,
    audit_record_from_row,
    audit_values,
)
from dragoman.stores.sqlite import pushes
from dragoman.stores.sqlite.hot.rows import SqliteBulkStatement
from dragoman.stores.sqlite.hot.writer import SqliteWriter

_INSERT_API_KEY: Final = f"INSERT INTO api_keys ({API_KEY_COLUMNS}) VALUES ({', '.join('?' * len(API_KEY_FIELDS))})"
_SELECT_API_KEY: Final = f"SELECT {API_KEY_COLUMNS} FROM api_keys WHERE id = ?"
_SELECT_API_KEYS: Final = f"SELECT {API_KEY_COLUMNS} FROM api_keys ORDER BY created DESC, id"
_ROTATE_API_KEY: Final = (
    "UPDATE api_keys SET former = digest, former_until = ?, digest = ?, rotated = ?, expires = coalesce(?, expires) "
    "WHERE id = ? AND NOT revoked"
)
_REVOKE_API_KEY: Final = "UPDATE api_keys SET revoked = ? WHERE id = ? AND NOT revoked"
_DELETE_REVOKED_API_KEYS: Final = "DELETE FROM api_keys WHERE principal = ? AND revoked"
_TOUCH_API_KEY: Final = "UPDATE api_keys SET used = max(used, ?) WHERE id = ?"

Read = Callable[..., Awaitable[Any]]
"""Runs a function of a reader's connection and further arguments on a reader thread."""

Write = Callable[[Callable[[sqlite3.Connection], Any]], asyncio.Future[Any]]
"""Runs a function of the writer's connection in a commit."""


class SqliteApiKeys:
    """Implements `dragoman.ports.ApiKeys` on the store's file."""

    def __init__(self, read: Read, write: Write, write_low_priority: Write) -> None:
        self._read = read
        self._write = write
        self._write_low_priority = write_low_priority

    async def add(self, key: ApiKey) -> None:
        row = api_key_values(key)
        if not await self._write(lambda connection: _insert_api_key(connection, row)):
            raise ValueError(f'an API key "{key.id}" already exists')

    async def find(self, id: str) -> ApiKey | None:
        found: ApiKey | None = await self._read(_find_api_key, id)
        return found

    async def list(self) -> list[ApiKey]:
        found: list[ApiKey] = await self._read(_list_api_keys)
        return found

    async def rotate(
        self, id: str, digest: bytes, *, now: int, until: int, expires: int | None = None
    ) -> ApiKey | None:
        def job(connection: sqlite3.Connection) -> ApiKey | None:
            changed = connection.execute(_ROTATE_API_KEY, (until, digest, now, expires, id)).rowcount
            return _find_api_key(connection, id) if changed else None

        found: ApiKey | None = await self._write(job)
        return found

    async def revoke(self, id: str, *, now: int) -> ApiKey | None:
        def job(connection: sqlite3.Connection) -> ApiKey | None:
            connection.execute(_REVOKE_API_KEY, (now, id))
            return _find_api_key(connection, id)

        found: ApiKey | None = await self._write(job)
        return found

    async def touch(self, id: str, *, now: int) -> None:
        await self._write_low_priority(lambda connection: connection.execute(_TOUCH_API_KEY, (now, id)))


def delete_revoked_api_keys(connection: sqlite3.Connection, principal: str) -> None:
    """Deletes the revoked keys of a principal that is erased; the others are still in use."""
    connection.execute(_DELETE_REVOKED_API_KEYS, (principal,))


def _insert_api_key(connection: sqlite3.Connection, row: list[Any]) -> bool:
    if _find_api_key(connection, row[0]) is not None:
        return False
    connection.execute(_INSERT_API_KEY, row)
    return True


def _find_api_key(connection: sqlite3.Connection, id: str) -> ApiKey | None:
    row = connection.execute(_SELECT_API_KEY, (id,)).fetchone()
    return None if row is None else api_key_from_row(row)


def _list_api_keys(connection: sqlite3.Connection) -> list[ApiKey]:
    return [api_key_from_row(row) for row in connection.execute(_SELECT_API_KEYS)]


_SELECT_LAST_AUDIT_ENTRY: Final = "SELECT number, hash FROM audit ORDER BY number DESC LIMIT 1"
_INSERT_AUDIT_ENTRIES: Final = SqliteBulkStatement(f"INSERT INTO audit ({AUDIT_COLUMNS}, principal)", 10)
_SELECT_AUDIT_ENTRIES: Final = f"SELECT {AUDIT_COLUMNS} FROM audit WHERE number > ? ORDER BY number LIMIT ?"
_FIRST_RECENT_AUDIT_ENTRY: Final = (
    "SELECT min(number) FROM (SELECT number, at FROM audit ORDER BY number LIMIT ?) WHERE at >= ?"
)
_LAST_EXAMINED_AUDIT_ENTRY: Final = "SELECT max(number) FROM (SELECT number FROM audit ORDER BY number LIMIT ?)"
_DELETE_AUDIT_ENTRIES: Final = "DELETE FROM audit WHERE number < ?"
_ANONYMIZE_AUDIT_ENTRIES: Final = "UPDATE audit SET who = NULL, salt = NULL, principal = '' WHERE principal = ?"


class SqliteAuditLog:
    """Implements `dragoman.ports.AuditLog` on the store's file."""

    def __init__(self, read: Read, write: Write) -> None:
        self._read = read
        self._write = write

    async def append(self, entries: Sequence[AuditEntry]) -> None:
        salts = [secrets.token_bytes(SALT_BYTES) for _ in entries]
        await self._write(lambda connection: _insert_audit_entries(connection, entries, salts))

    async def read(self, after: int, limit: int = 256) -> list[AuditRecord]:
        found: list[AuditRecord] = await self._read(_read_audit_entries, after, limit)
        return found

    async def truncate(self, before: int, limit: int = 1024) -> int:
        done: int = await self._write(lambda connection: _delete_audit_entries(connection, before, limit))
        return done


def anonymize_audit_entries(connection: sqlite3.Connection, principal: str) -> None:
    """Removes a principal's name from its audit entries."""
    connection.execute(_ANONYMIZE_AUDIT_ENTRIES, (principal,))


def _insert_audit_entries(
    connection: sqlite3.Connection, entries: Sequence[AuditEntry], salts: Sequence[bytes]
) -> None:
    number, previous_hash = connection.execute(_SELECT_LAST_AUDIT_ENTRY).fetchone() or (0, GENESIS_HASH)
    rows = [audit_values(record) for record in chain_entries(previous_hash, number, entries, salts)]
    _INSERT_AUDIT_ENTRIES.run(connection, rows)


def _read_audit_entries(connection: sqlite3.Connection, after: int, limit: int) -> list[AuditRecord]:
    return [audit_record_from_row(row) for row in connection.execute(_SELECT_AUDIT_ENTRIES, (after, limit))]


def _delete_audit_entries(connection: sqlite3.Connection, before: int, limit: int) -> int:
    (first_kept,) = connection.execute(_FIRST_RECENT_AUDIT_ENTRY, (limit + 1, before)).fetchone()
    if first_kept is None:  # all examined entries are old; the last one stays, as it may be the last of the log
        (first_kept,) = connection.execute(_LAST_EXAMINED_AUDIT_ENTRY, (limit + 1,)).fetchone()
    return connection.execute(_DELETE_AUDIT_ENTRIES, (first_kept,)).rowcount if first_kept is not None else 0


_KEY_VALUE_NAME: Final = "paper {}"
"""Name of a value in `meta`, which also has the store's own settings."""
_SELECT_VALUE: Final = "SELECT value FROM meta WHERE name = ?"
_UPSERT_VALUE: Final = (
    "INSERT INTO meta (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value"
)


class SqliteKeyValues:
    """Implements `dragoman.ports.KeyValues` on the store's file."""

    def __init__(self, read: Read, write: Write) -> None:
        self._read = read
        self._write = write

    async def get(self, name: str) -> str:
        found: str = await self._read(_read_value, name)
        return found

    async def compare_and_set(self, name: str, value: str, *, expected: str) -> bool:
        def job(connection: sqlite3.Connection) -> bool:
            if _read_value(connection, name) != expected:
                return False
            connection.execute(_UPSERT_VALUE, (_KEY_VALUE_NAME.format(name), value))
            return True

        done: bool = await self._write(job)
        return done


def _read_value(connection: sqlite3.Connection, name: str) -> str:
    row = connection.execute(_SELECT_VALUE, (_KEY_VALUE_NAME.format(name),)).fetchone()
    return row[0] if row else ""


_UPSERT_WORKER_AGENT: Final = (
    "INSERT INTO worker_agents (agent, principal, registration, since, seen) VALUES (?, ?, ?, ?, ?) "
    "ON CONFLICT (agent) DO UPDATE SET registration = excluded.registration, seen = excluded.seen "
    "WHERE principal = excluded.principal"
)
_SELECT_WORKER_AGENT: Final = "SELECT agent, principal, registration, since, seen FROM worker_agents WHERE agent = ?"
_SELECT_WORKER_AGENTS: Final = "SELECT agent, principal, registration, since, seen FROM worker_agents ORDER BY agent"
_DELETE_WORKER_AGENT: Final = "DELETE FROM worker_agents WHERE agent = ?"


class SqliteWorkerRegistry:
    """Implements `dragoman.ports.WorkerRegistry` on the store's file."""

    def __init__(self, read: Read, write: Write) -> None:
        self._read = read
        self._write = write

    async def register(self, entry: RegisteredAgent) -> RegisteredAgent:
        def job(connection: sqlite3.Connection) -> RegisteredAgent:
            connection.execute(
                _UPSERT_WORKER_AGENT,
                (entry.agent, entry.principal, entry.registration, entry.registered_at, entry.last_seen),
            )
            return RegisteredAgent(*connection.execute(_SELECT_WORKER_AGENT, (entry.agent,)).fetchone())

        stored: RegisteredAgent = await self._write(job)
        return stored

    async def list(self) -> list[RegisteredAgent]:
        found: list[RegisteredAgent] = await self._read(_list_worker_agents)
        return found

    async def unregister(self, agent: str) -> bool:
        return bool(await self._write(lambda connection: connection.execute(_DELETE_WORKER_AGENT, (agent,)).rowcount))


def _list_worker_agents(connection: sqlite3.Connection) -> list[RegisteredAgent]:
    return [RegisteredAgent(*row) for row in connection.execute(_SELECT_WORKER_AGENTS)]


_INSERT_UPSTREAM: Final = "INSERT OR IGNORE INTO upstreams (agent, entry, since) VALUES (?, ?, ?)"
_SELECT_UPSTREAMS: Final = "SELECT agent, entry, since FROM upstreams ORDER BY since, agent"
_DELETE_UPSTREAM: Final = "DELETE FROM upstreams WHERE agent = ?"


class SqliteUpstreams:
    """Implements `dragoman.ports.UpstreamStore` on the store's file."""

    def __init__(self, read: Read, write: Write) -> None:
        self._read = read
        self._write = write

    async def add(self, added: AddedUpstream) -> bool:
        row = (added.agent, added.spec, added.added_at)
        return bool(await self._write(lambda connection: connection.execute(_INSERT_UPSTREAM, row).rowcount))

    async def list(self) -> list[AddedUpstream]:
        found: list[AddedUpstream] = await self._read(_list_upstreams)
        return found

    async def remove(self, agent: str) -> bool:
        return bool(await self._write(lambda connection: connection.execute(_DELETE_UPSTREAM, (agent,)).rowcount))


def _list_upstreams(connection: sqlite3.Connection) -> list[AddedUpstream]:
    return [AddedUpstream(*row) for row in connection.execute(_SELECT_UPSTREAMS)]


class SqlitePushes:
    """Implements `dragoman.ports.PushStore` on the store's file."""

    def __init__(self, read: Read, writer: SqliteWriter, clock: Callable[[], int]) -> None:
        self._read = read
        self._writer = writer
        self._clock = clock

    async def put(self, task: TaskRef, config: PushConfig) -> PushRecord:
        stored: PushRecord = await self._writer.submit(partial(pushes.put, ref=task, config=config, now=self._clock()))
        return stored

    async def list_configs(self, task: TaskRef) -> list[PushRecord]:
        found: list[PushRecord] = await self._read(pushes.pushes_of_task, task)
        return found

    async def remove(self, task: TaskRef, id: str) -> bool:
        return bool(await self._writer.submit(partial(pushes.remove, ref=task, id=id)))

    async def due(
        self,
        *,
        per_host: int,
        max_hosts: int,
        after_host: str = "",
        expired: bool = True,
        longest_delay: int = DEFAULT_LONGEST_DELAY_MS,
    ) -> tuple[list[PushRecord], str]:
        found: tuple[list[PushRecord], str] = await self._read(
            pushes.due, per_host, max_hosts, after_host, expired, longest_delay, self._clock()
        )
        return found

    async def claim(
        self,
        session: int,
        keys: Sequence[PushConfigKey],
        *,
        expired: bool = True,
        longest_delay: int = DEFAULT_LONGEST_DELAY_MS,
    ) -> list[PushRecord]:
        job = partial(
            pushes.claim,
            session=session,
            keys=keys,
            expired=expired,
            longest_delay=longest_delay,
            now=self._clock(),
        )
        claimed: list[PushRecord] = await self._writer.submit(job)
        return claimed

    async def apply_reports(self, reports: Sequence[DeliveryReport]) -> list[PushRecord | None]:
        after: list[PushRecord | None] = await self._writer.submit(
            partial(pushes.apply_reports, reports=reports, now=self._clock())
        )
        return after

    async def attempts(self, task: TaskRef, id: str) -> list[DeliveryAttempt]:
        found: list[DeliveryAttempt] = await self._read(pushes.attempts, task, id)
        return found

    async def restart(self, task: TaskRef, ids: Collection[str], after: int | None = None) -> list[PushRecord]:
        job = partial(pushes.restart, ref=task, ids=ids, after=after, now=self._clock())
        restarted: list[PushRecord] = await self._writer.submit(job)
        return restarted

    async def unfinished(self, limit: int) -> list[PushRecord]:
        found: list[PushRecord] = await self._read(pushes.unfinished, limit)
        return found
