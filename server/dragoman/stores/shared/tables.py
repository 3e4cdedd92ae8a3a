"""The small tables of a store: API keys, audit log, key-value pairs, workers, upstreams, cancel requests."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Sequence
from itertools import chain
from typing import Any, Final

from dragoman.core.access.caller_credentials import ApiKey
from dragoman.core.audit import GENESIS_HASH, SALT_BYTES, AuditEntry, AuditRecord, chain_entries
from dragoman.core.names import Owner
from dragoman.core.task.log import TaskRef
from dragoman.ports import AddedUpstream, RegisteredAgent
from dragoman.stores.shared import rows
from dragoman.stores.shared.queries import Query, QueryRunner, change, marks, select, select_first

_INSERT_API_KEY: Final = f"""
INSERT INTO api_keys ({rows.API_KEY_COLUMNS}) VALUES ({marks(1, len(rows.API_KEY_FIELDS))}) ON CONFLICT (id) DO NOTHING
"""
_SELECT_API_KEY: Final = f"SELECT {rows.API_KEY_COLUMNS} FROM api_keys WHERE id = ?1"
_SELECT_API_KEYS: Final = f"SELECT {rows.API_KEY_COLUMNS} FROM api_keys ORDER BY created DESC, id"
_ROTATE_API_KEY: Final = """
UPDATE api_keys SET former = digest, former_until = ?2, digest = ?3, rotated = ?4, expires = coalesce(?5, expires)
WHERE id = ?1 AND revoked = 0
"""
_REVOKE_API_KEY: Final = "UPDATE api_keys SET revoked = ?2 WHERE id = ?1 AND revoked = 0"
_TOUCH_API_KEY: Final = "UPDATE api_keys SET used = ?2 WHERE id = ?1 AND used < ?2"


class _Table:
    def __init__(self, runner: QueryRunner) -> None:
        self._runner = runner


class StoredApiKeys(_Table):
    """Implements `dragoman.ports.ApiKeys`."""

    async def add(self, key: ApiKey) -> None:
        if not await self._runner.write(change, _INSERT_API_KEY, *rows.api_key_values(key)):
            raise ValueError(f'an API key "{key.id}" already exists')

    async def find(self, id: str) -> ApiKey | None:
        return await self._runner.read(_find_api_key, id)

    async def list(self) -> list[ApiKey]:
        return [rows.api_key_from_row(row) for row in await self._runner.read(select, _SELECT_API_KEYS)]

    async def rotate(
        self, id: str, digest: bytes, *, now: int, until: int, expires: int | None = None
    ) -> ApiKey | None:
        changed, key = await self._runner.write(_change_api_key, _ROTATE_API_KEY, id, until, digest, now, expires)
        return key if changed else None

    async def revoke(self, id: str, *, now: int) -> ApiKey | None:
        _, key = await self._runner.write(_change_api_key, _REVOKE_API_KEY, id, now)
        return key

    async def touch(self, id: str, *, now: int) -> None:
        await self._runner.write_low_priority(change, _TOUCH_API_KEY, id, now)


def delete_revoked_api_keys(principal: str) -> Query[int]:
    """Deletes the revoked keys of a principal that is erased; the others are still in use."""
    return change("DELETE FROM api_keys WHERE principal = ?1 AND revoked <> 0", principal)


def _change_api_key(sql: str, id: str, *values: Any) -> Query[tuple[int, ApiKey | None]]:
    return (yield from change(sql, id, *values)), (yield from _find_api_key(id))


def _find_api_key(id: str) -> Query[ApiKey | None]:
    row = yield from select_first(_SELECT_API_KEY, id)
    return rows.api_key_from_row(row) if row else None


_SELECT_LAST_AUDIT_ENTRY: Final = "SELECT number, hash FROM audit ORDER BY number DESC LIMIT 1"
_INSERT_AUDIT_ENTRIES: Final = f"INSERT INTO audit ({rows.AUDIT_COLUMNS}, principal) VALUES"
_SELECT_AUDIT_ENTRIES: Final = f"SELECT {rows.AUDIT_COLUMNS} FROM audit WHERE number > ?1 ORDER BY number LIMIT ?2"
_FIRST_KEPT_AUDIT_ENTRY: Final = """
SELECT coalesce(min(CASE WHEN at >= ?2 THEN number END), max(number))
FROM (SELECT number, at FROM audit ORDER BY number LIMIT ?1) AS oldest
"""
"""If all examined entries are old it is the last of them, which may be the last of the log."""
_AUDIT_STATEMENT_ROWS: Final = 32  # entries that one statement adds


class StoredAuditLog(_Table):
    """Implements `dragoman.ports.AuditLog`."""

    def __init__(self, runner: QueryRunner, lock: str = "") -> None:
        """lock: a statement, so that one process adds entries at a time."""
        super().__init__(runner)
        self._lock = lock

    async def append(self, entries: Sequence[AuditEntry]) -> None:
        await self._runner.write(self._append, entries, [secrets.token_bytes(SALT_BYTES) for _ in entries])

    async def read(self, after: int, limit: int = 256) -> list[AuditRecord]:
        found = await self._runner.read(select, _SELECT_AUDIT_ENTRIES, after, limit)
        return [rows.audit_record_from_row(row) for row in found]

    async def truncate(self, before: int, limit: int = 1024) -> int:
        return await self._runner.write(_delete_audit_entries, before, limit)

    def _append(self, entries: Sequence[AuditEntry], salts: Sequence[bytes]) -> Query[None]:
        if self._lock:
            yield from select(self._lock)
        number, previous_hash = (yield from select_first(_SELECT_LAST_AUDIT_ENTRY)) or (0, GENESIS_HASH)
        entry_values = [rows.audit_values(record) for record in chain_entries(previous_hash, number, entries, salts)]
        for at in range(0, len(entry_values), _AUDIT_STATEMENT_ROWS):
            batch = entry_values[at : at + _AUDIT_STATEMENT_ROWS]
            width = len(batch[0])
            row_marks = ", ".join(f"({marks(1 + width * number, width)})" for number in range(len(batch)))
            yield from change(f"{_INSERT_AUDIT_ENTRIES} {row_marks}", *chain.from_iterable(batch))


def anonymize_audit_entries(principal: str) -> Query[int]:
    return change("UPDATE audit SET who = NULL, salt = NULL, principal = '' WHERE principal = ?1", principal)


def _delete_audit_entries(before: int, limit: int) -> Query[int]:
    found = yield from select_first(_FIRST_KEPT_AUDIT_ENTRY, limit + 1, before)
    return (yield from change("DELETE FROM audit WHERE number < ?1", found[0] or 0)) if found else 0


KEY_VALUE_NAME: Final = "paper {}"  # in `meta`, which also has the store's own settings
_SELECT_VALUE: Final = "SELECT value FROM meta WHERE name = ?1"
_INSERT_VALUE: Final = """
INSERT INTO meta (name, value) VALUES (?1, ?2)
ON CONFLICT (name) DO UPDATE SET value = excluded.value WHERE meta.value = ''
"""
_UPDATE_VALUE: Final = "UPDATE meta SET value = ?2 WHERE name = ?1 AND value = ?3"


class StoredKeyValues(_Table):
    """Implements `dragoman.ports.KeyValues`."""

    async def get(self, name: str) -> str:
        row = await self._runner.read(select_first, _SELECT_VALUE, KEY_VALUE_NAME.format(name))
        return row[0] if row else ""

    async def compare_and_set(self, name: str, value: str, *, expected: str) -> bool:
        name = KEY_VALUE_NAME.format(name)
        if expected:
            return await self._runner.write(change, _UPDATE_VALUE, name, value, expected) > 0
        return await self._runner.write(change, _INSERT_VALUE, name, value) > 0


_WORKER_AGENT_COLUMNS: Final = "agent, principal, registration, since, seen"
_UPSERT_WORKER_AGENT: Final = f"""
INSERT INTO worker_agents ({_WORKER_AGENT_COLUMNS}) VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (agent) DO UPDATE SET registration = excluded.registration, seen = excluded.seen
    WHERE worker_agents.principal = excluded.principal
"""
_SELECT_WORKER_AGENT: Final = f"SELECT {_WORKER_AGENT_COLUMNS} FROM worker_agents WHERE agent = ?1"
_SELECT_WORKER_AGENTS: Final = f"SELECT {_WORKER_AGENT_COLUMNS} FROM worker_agents ORDER BY agent"


class StoredWorkerRegistry(_Table):
    """Implements `dragoman.ports.WorkerRegistry`."""

    async def register(self, entry: RegisteredAgent) -> RegisteredAgent:
        return await self._runner.write(_register, entry)

    async def list(self) -> list[RegisteredAgent]:
        return [RegisteredAgent(*row) for row in await self._runner.read(select, _SELECT_WORKER_AGENTS)]

    async def unregister(self, agent: str) -> bool:
        return await self._runner.write(change, "DELETE FROM worker_agents WHERE agent = ?1", agent) > 0


def _register(entry: RegisteredAgent) -> Query[RegisteredAgent]:
    values = entry.agent, entry.principal, entry.registration, entry.registered_at, entry.last_seen
    yield from change(_UPSERT_WORKER_AGENT, *values)
    row = yield from select_first(_SELECT_WORKER_AGENT, entry.agent)
    return RegisteredAgent(*row) if row else entry


_INSERT_UPSTREAM: Final = (
    "INSERT INTO upstreams (agent, entry, since) VALUES (?1, ?2, ?3) ON CONFLICT (agent) DO NOTHING"
)
_SELECT_UPSTREAMS: Final = "SELECT agent, entry, since FROM upstreams ORDER BY since, agent"


class StoredUpstreams(_Table):
    """Implements `dragoman.ports.UpstreamStore`."""

    async def add(self, added: AddedUpstream) -> bool:
        return await self._runner.write(change, _INSERT_UPSTREAM, added.agent, added.spec, added.added_at) > 0

    async def list(self) -> list[AddedUpstream]:
        return [AddedUpstream(*row) for row in await self._runner.read(select, _SELECT_UPSTREAMS)]

    async def remove(self, agent: str) -> bool:
        return await self._runner.write(change, "DELETE FROM upstreams WHERE agent = ?1", agent) > 0


_REQUEST_CANCEL: Final = """
INSERT INTO cancel_requests (owner, task, until, metadata, requested)
SELECT t.owner, t.task, t.last_received, ?4, ?5 FROM owners o JOIN tasks t ON t.owner = o.owner
WHERE o.scope = ?1 AND o.principal = ?2 AND t.task = ?3 AND (t.session > 0 OR t.ready)
ON CONFLICT (owner, task) DO UPDATE SET until = excluded.until, metadata = excluded.metadata, requested = CASE
    WHEN cancel_requests.until = excluded.until THEN cancel_requests.requested ELSE excluded.requested END
"""
_IS_PENDING: Final = "t.last_completed < c.until AND (t.session > 0 OR t.ready)"
_SELECT_PENDING_CANCELS: Final = f"""
SELECT o.scope, o.principal, c.task, c.metadata
FROM cancel_requests c JOIN tasks t ON t.owner = c.owner AND t.task = c.task
JOIN owners o ON o.owner = c.owner WHERE {_IS_PENDING}
"""
_PENDING_CANCEL: Final = f"{_SELECT_PENDING_CANCELS} AND o.scope = ?1 AND o.principal = ?2 AND c.task = ?3"
_CANCELS_OF_SESSION: Final = f"{_SELECT_PENDING_CANCELS} AND t.session = ?1"
_OVERDUE_CANCELS: Final = f"{_SELECT_PENDING_CANCELS} AND c.requested <= ?1"
_WITHDRAW_CANCEL: Final = """
DELETE FROM cancel_requests WHERE task = ?3 AND owner = (
    SELECT o.owner FROM owners o WHERE o.scope = ?1 AND o.principal = ?2)
"""
_DELETE_OBSOLETE_CANCELS: Final = f"""
DELETE FROM cancel_requests WHERE (owner, task) IN (
    SELECT c.owner, c.task FROM cancel_requests c WHERE NOT EXISTS (
        SELECT 1 FROM tasks t WHERE t.owner = c.owner AND t.task = c.task AND {_IS_PENDING})
    ORDER BY c.owner, c.task"""


class StoredCancels(_Table):
    """Implements `dragoman.ports.CancelRequests`."""

    def __init__(self, runner: QueryRunner, row_lock: str = "") -> None:
        """row_lock: the end of a SELECT that locks its rows `c`, so that two processes never deadlock."""
        super().__init__(runner)
        self._delete_obsolete = f"{_DELETE_OBSOLETE_CANCELS} {row_lock})"

    async def request(self, task: TaskRef, metadata: bytes = b"") -> None:
        await self._runner.write(change, _REQUEST_CANCEL, *task.owner, task.key, metadata, await self._runner.now())

    async def of_session(self, session: int) -> dict[TaskRef, bytes]:
        return await self._runner.read(_cancels, _CANCELS_OF_SESSION, session)

    async def pending(self, tasks: Collection[TaskRef]) -> dict[TaskRef, bytes]:
        if len(tasks) == 1:
            (task,) = tasks
            return await self._runner.read(_cancels, _PENDING_CANCEL, *task.owner, task.key)
        found = await self._runner.read(_cancels, _SELECT_PENDING_CANCELS)
        return {task: found[task] for task in tasks if task in found}

    async def overdue(self, seconds: float) -> Collection[TaskRef]:
        return await self._runner.read(_cancels, _OVERDUE_CANCELS, await self._runner.now() - round(seconds * 1000))

    async def withdraw(self, task: TaskRef) -> None:
        await self._runner.write(change, _WITHDRAW_CANCEL, *task.owner, task.key)

    async def delete_obsolete(self) -> None:
        """Deletes the requests of tasks that are no longer running or waiting."""
        if await self._runner.read(select_first, "SELECT 1 FROM cancel_requests LIMIT 1"):
            await self._runner.write_low_priority(change, self._delete_obsolete)


def _cancels(sql: str, *values: object) -> Query[dict[TaskRef, bytes]]:
    found = yield from select(sql, *values)
    return {TaskRef(Owner(row[0], row[1]), row[2]): row[3] for row in found}
