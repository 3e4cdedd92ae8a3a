"""The small tables of the store in memory: API keys, audit log, key-value pairs, workers, upstreams."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tests.simulation.memory.database import MemoryDatabase

from dragoman.core.access.caller_credentials import ApiKey
from dragoman.core.audit import GENESIS_HASH, SALT_BYTES, AuditEntry, AuditRecord, chain_entries
from dragoman.core.task.maintenance import ErasureReceipt
from dragoman.ports import AddedUpstream, RegisteredAgent

Run = Callable[[Callable[[], Any]], asyncio.Future[Any]]
"""Runs a function of the database."""


@dataclass(slots=True)
class MemoryTables:
    """Rows that belong to no task."""

    api_keys: dict[str, ApiKey] = field(default_factory=dict)
    audit: list[AuditRecord] = field(default_factory=list)
    audited: int = 0
    """The number of the last entry."""
    workers: dict[str, RegisteredAgent] = field(default_factory=dict)
    upstreams: dict[str, AddedUpstream] = field(default_factory=dict)
    receipts: list[ErasureReceipt] = field(default_factory=list)


class MemoryApiKeys:
    """Implements `dragoman.ports.ApiKeys`."""

    def __init__(self, tables: MemoryTables, read: Run, write: Run) -> None:
        self._keys = tables.api_keys
        self._read = read
        self._write = write

    async def add(self, key: ApiKey) -> None:
        def add() -> None:
            if key.id in self._keys:
                raise ValueError(f'an API key "{key.id}" already exists')
            self._keys[key.id] = key

        await self._write(add)

    async def find(self, id: str) -> ApiKey | None:
        found: ApiKey | None = await self._read(lambda: self._keys.get(id))
        return found

    async def list(self) -> list[ApiKey]:
        found: list[ApiKey] = await self._read(
            lambda: sorted(self._keys.values(), key=lambda key: (-key.created, key.id))
        )
        return found

    async def rotate(
        self, id: str, digest: bytes, *, now: int, until: int, expires: int | None = None
    ) -> ApiKey | None:
        def rotate() -> ApiKey | None:
            key = self._keys.get(id)
            if key is None or key.revoked:
                return None
            ends = key.expires if expires is None else expires
            self._keys[id] = replace(
                key, former=key.digest, former_until=until, digest=digest, rotated=now, expires=ends
            )
            return self._keys[id]

        found: ApiKey | None = await self._write(rotate)
        return found

    async def revoke(self, id: str, *, now: int) -> ApiKey | None:
        def revoke() -> ApiKey | None:
            key = self._keys.get(id)
            if key is not None and not key.revoked:
                self._keys[id] = replace(key, revoked=now)
            return self._keys.get(id)

        found: ApiKey | None = await self._write(revoke)
        return found

    async def touch(self, id: str, *, now: int) -> None:
        def touch() -> None:
            if id in self._keys:
                self._keys[id] = replace(self._keys[id], used=max(self._keys[id].used, now))

        await self._write(touch)


class MemoryAuditLog:
    """Implements `dragoman.ports.AuditLog`. Its salts are no secrets."""

    def __init__(self, tables: MemoryTables, read: Run, write: Run) -> None:
        self._tables = tables
        self._read = read
        self._write = write

    async def append(self, entries: Sequence[AuditEntry]) -> None:
        def append() -> None:
            tables = self._tables
            last = tables.audit[-1].hash if tables.audit else GENESIS_HASH
            salts = [(tables.audited + number).to_bytes(SALT_BYTES, "big") for number in range(len(entries))]
            tables.audit += chain_entries(last, tables.audited, entries, salts)
            tables.audited += len(entries)

        await self._write(append)

    async def read(self, after: int, limit: int = 256) -> list[AuditRecord]:
        found: list[AuditRecord] = await self._read(
            lambda: [record for record in self._tables.audit if record.number > after][:limit]
        )
        return found

    async def truncate(self, before: int, limit: int = 1024) -> int:
        def truncate() -> int:
            audit, removed = self._tables.audit, 0
            while removed < limit and len(audit) > 1 and audit[0].entry.at < before:
                audit.pop(0)
                removed += 1
            return removed

        removed: int = await self._write(truncate)
        return removed


class MemoryKeyValues:
    """Implements `dragoman.ports.KeyValues`."""

    def __init__(self, database: MemoryDatabase, read: Run, write: Run) -> None:
        self._values = database.key_values
        self._read = read
        self._write = write

    async def get(self, name: str) -> str:
        found: str = await self._read(lambda: self._values.get(name, ""))
        return found

    async def compare_and_set(self, name: str, value: str, *, expected: str) -> bool:
        def write() -> bool:
            if self._values.get(name, "") != expected:
                return False
            self._values[name] = value
            return True

        return bool(await self._write(write))


class MemoryWorkerRegistry:
    """Implements `dragoman.ports.WorkerRegistry`."""

    def __init__(self, tables: MemoryTables, read: Run, write: Run) -> None:
        self._workers = tables.workers
        self._read = read
        self._write = write

    async def register(self, entry: RegisteredAgent) -> RegisteredAgent:
        def register() -> RegisteredAgent:
            known = self._workers.get(entry.agent)
            if known is None:
                self._workers[entry.agent] = entry
            elif known.principal == entry.principal:
                self._workers[entry.agent] = replace(known, registration=entry.registration, last_seen=entry.last_seen)
            return self._workers[entry.agent]

        stored: RegisteredAgent = await self._write(register)
        return stored

    async def list(self) -> list[RegisteredAgent]:
        found: list[RegisteredAgent] = await self._read(lambda: [self._workers[name] for name in sorted(self._workers)])
        return found

    async def unregister(self, agent: str) -> bool:
        return bool(await self._write(lambda: self._workers.pop(agent, None) is not None))


class MemoryUpstreams:
    """Implements `dragoman.ports.UpstreamStore`."""

    def __init__(self, tables: MemoryTables, read: Run, write: Run) -> None:
        self._upstreams = tables.upstreams
        self._read = read
        self._write = write

    async def add(self, added: AddedUpstream) -> bool:
        return bool(await self._write(lambda: self._upstreams.setdefault(added.agent, added) is added))

    async def list(self) -> list[AddedUpstream]:
        found: list[AddedUpstream] = await self._read(
            lambda: sorted(self._upstreams.values(), key=lambda added: (added.added_at, added.agent))
        )
        return found

    async def remove(self, agent: str) -> bool:
        return bool(await self._write(lambda: self._upstreams.pop(agent, None) is not None))
