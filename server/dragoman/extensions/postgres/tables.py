"""The small tables of a store: API keys, audit log, key-value pairs, workers, upstreams, pushes."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Sequence
from typing import Any, Final

from asyncpg import Connection

from dragoman.core.access.caller_credentials import ApiKey
from dragoman.core.audit import GENESIS_HASH, SALT_BYTES, AuditEntry, AuditRecord, chain_entries
from dragoman.core.push.configuration import PushConfig
from dragoman.core.push.delivery import DEFAULT_LONGEST_DELAY_MS, DeliveryAttempt, DeliveryReport, PushRecord
from dragoman.core.task.log import TaskRef
from dragoman.extensions.postgres import pushes
from dragoman.extensions.postgres.database import WRITE_LOCK, Database
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

_API_KEY_MARKS: Final = ", ".join(f"${number}" for number in range(1, len(API_KEY_FIELDS) + 1))
_INSERT_API_KEY: Final = (
    f"INSERT INTO api_keys ({API_KEY_COLUMNS}) VALUES ({_API_KEY_MARKS}) ON CONFLICT (id) DO NOTHING"
)
_SELECT_API_KEY: Final = f"SELECT {API_KEY_COLUMNS} FROM api_keys WHERE id = $1"
_SELECT_API_KEYS: Final = f"SELECT {API_KEY_COLUMNS} FROM api_keys ORDER BY created DESC, id"
_ROTATE_API_KEY: Final = f"""
UPDATE api_keys SET former = digest, former_until = $2, digest = $3, rotated = $4, expires = coalesce($5, expires)
WHERE id = $1 AND revoked = 0 RETURNING {API_KEY_COLUMNS}
"""
_REVOKE_API_KEY: Final = "UPDATE api_keys SET revoked = $2 WHERE id = $1 AND revoked = 0"
_DELETE_REVOKED_API_KEYS: Final = "DELETE FROM api_keys WHERE principal = $1 AND revoked <> 0"
_TOUCH_API_KEY: Final = "UPDATE api_keys SET used = greatest(used, $2) WHERE id = $1"


class PostgresApiKeys:
    """Implements `dragoman.ports.ApiKeys` on a database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, key: ApiKey) -> None:
        if await self._database.write(_execute_statement, _INSERT_API_KEY, *api_key_values(key)) == "INSERT 0 0":
            raise ValueError(f'an API key "{key.id}" already exists')

    async def find(self, id: str) -> ApiKey | None:
        return await self._database.read(_find_api_key, id)

    async def list(self) -> list[ApiKey]:
        return await self._database.read(_list_api_keys)

    async def rotate(
        self, id: str, digest: bytes, *, now: int, until: int, expires: int | None = None
    ) -> ApiKey | None:
        return await self._database.write(_rotate_api_key, id, until, digest, now, expires)

    async def revoke(self, id: str, *, now: int) -> ApiKey | None:
        return await self._database.write(_revoke_api_key, id, now)

    async def touch(self, id: str, *, now: int) -> None:
        await self._database.write(_execute_statement, _TOUCH_API_KEY, id, now)


async def delete_revoked_api_keys(connection: Connection, principal: str) -> None:
    """Deletes the revoked keys of a principal that is erased; the others are still in use."""
    await connection.execute(_DELETE_REVOKED_API_KEYS, principal)


async def _execute_statement(connection: Connection, sql: str, *values: Any) -> str:
    return str(await connection.execute(sql, *values))


async def _find_api_key(connection: Connection, id: str) -> ApiKey | None:
    row = await connection.fetchrow(_SELECT_API_KEY, id)
    return None if row is None else api_key_from_row(row)


async def _list_api_keys(connection: Connection) -> list[ApiKey]:
    return [api_key_from_row(row) for row in await connection.fetch(_SELECT_API_KEYS)]


async def _rotate_api_key(connection: Connection, *values: Any) -> ApiKey | None:
    row = await connection.fetchrow(_ROTATE_API_KEY, *values)
    return None if row is None else api_key_from_row(row)


async def _revoke_api_key(connection: Connection, id: str, now: int) -> ApiKey | None:
    await connection.execute(_REVOKE_API_KEY, id, now)
    return await _find_api_key(connection, id)


AUDIT_LOCK: Final = WRITE_LOCK + 100
"""Advisory lock for adding entries."""

_SELECT_LAST_AUDIT_ENTRY: Final = "SELECT number, hash FROM audit ORDER BY number DESC LIMIT 1"
_INSERT_AUDIT_ENTRY: Final = (
    f"INSERT INTO audit ({AUDIT_COLUMNS}, principal) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)"
)
_SELECT_AUDIT_ENTRIES: Final = f"SELECT {AUDIT_COLUMNS} FROM audit WHERE number > $1 ORDER BY number LIMIT $2"
_FIRST_RECENT_AUDIT_ENTRY: Final = (
    "SELECT min(number) FROM (SELECT number, at FROM audit ORDER BY number LIMIT $1) AS oldest WHERE at >= $2"
)
_LAST_EXAMINED_AUDIT_ENTRY: Final = (
    "SELECT max(number) FROM (SELECT number FROM audit ORDER BY number LIMIT $1) AS oldest"
)
_DELETE_AUDIT_ENTRIES: Final = "DELETE FROM audit WHERE number < $1"
_ANONYMIZE_AUDIT_ENTRIES: Final = "UPDATE audit SET who = NULL, salt = NULL, principal = '' WHERE principal = $1"


class PostgresAuditLog:
    """Implements `dragoman.ports.AuditLog` on a database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def append(self, entries: Sequence[AuditEntry]) -> None:
        salts = [secrets.token_bytes(SALT_BYTES) for _ in entries]
        await self._database.write(_insert_audit_entries, entries, salts)

    async def read(self, after: int, limit: int = 256) -> list[AuditRecord]:
        return await self._database.read(_read_audit_entries, after, limit)

    async def truncate(self, before: int, limit: int = 1024) -> int:
        return await self._database.write(_delete_audit_entries, before, limit)


async def anonymize_audit_entries(connection: Connection, principal: str) -> None:
    """Removes a principal's name from its audit entries."""
    await connection.execute(_ANONYMIZE_AUDIT_ENTRIES, principal)


async def _insert_audit_entries(connection: Connection, entries: Sequence[AuditEntry], salts: Sequence[bytes]) -> None:
    await connection.execute(f"SELECT pg_advisory_xact_lock({AUDIT_LOCK})")
    number, previous_hash = await connection.fetchrow(_SELECT_LAST_AUDIT_ENTRY) or (0, GENESIS_HASH)
    await connection.executemany(
        _INSERT_AUDIT_ENTRY, [audit_values(record) for record in chain_entries(previous_hash, number, entries, salts)]
    )


async def _read_audit_entries(connection: Connection, after: int, limit: int) -> list[AuditRecord]:
    return [audit_record_from_row(row) for row in await connection.fetch(_SELECT_AUDIT_ENTRIES, after, limit)]


async def _delete_audit_entries(connection: Connection, before: int, limit: int) -> int:
    first_kept = await connection.fetchval(_FIRST_RECENT_AUDIT_ENTRY, limit + 1, before)
    if first_kept is None:  # all examined entries are old; the last one stays, as it may be the last of the log
        first_kept = await connection.fetchval(_LAST_EXAMINED_AUDIT_ENTRY, limit + 1)
    if first_kept is None:
        return 0
    return int(str(await connection.execute(_DELETE_AUDIT_ENTRIES, first_kept)).removeprefix("DELETE "))


_KEY_VALUE_NAME: Final = "paper {}"
"""Name of a value in `meta`, which also has the store's own settings."""
_SELECT_VALUE: Final = "SELECT value FROM meta WHERE name = $1"
_INSERT_VALUE: Final = "INSERT INTO meta VALUES ($1, $2) ON CONFLICT (name) DO NOTHING RETURNING name"
_UPDATE_VALUE: Final = "UPDATE meta SET value = $2 WHERE name = $1 AND value = $3 RETURNING name"


class PostgresKeyValues:
    """Implements `dragoman.ports.KeyValues` on a database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def get(self, name: str) -> str:
        return await self._database.read(_read_value, name)

    async def compare_and_set(self, name: str, value: str, *, expected: str) -> bool:
        return await self._database.write(_write_value, name, value, expected)


async def _read_value(connection: Connection, name: str) -> str:
    return str(await connection.fetchval(_SELECT_VALUE, _KEY_VALUE_NAME.format(name)) or "")


async def _write_value(connection: Connection, name: str, text: str, expected: str) -> bool:
    if expected:
        return await connection.fetchval(_UPDATE_VALUE, _KEY_VALUE_NAME.format(name), text, expected) is not None
    return await connection.fetchval(_INSERT_VALUE, _KEY_VALUE_NAME.format(name), text) is not None


_WORKER_AGENT_COLUMNS: Final = "agent, principal, registration, since, seen"
_UPSERT_WORKER_AGENT: Final = f"""
INSERT INTO worker_agents ({_WORKER_AGENT_COLUMNS}) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (agent) DO UPDATE SET registration = excluded.registration, seen = excluded.seen
    WHERE worker_agents.principal = excluded.principal
"""
_SELECT_WORKER_AGENT: Final = f"SELECT {_WORKER_AGENT_COLUMNS} FROM worker_agents WHERE agent = $1"
_SELECT_WORKER_AGENTS: Final = f"SELECT {_WORKER_AGENT_COLUMNS} FROM worker_agents ORDER BY agent"
_DELETE_WORKER_AGENT: Final = "DELETE FROM worker_agents WHERE agent = $1"


class PostgresWorkerRegistry:
    """Implements `dragoman.ports.WorkerRegistry` on a database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def register(self, entry: RegisteredAgent) -> RegisteredAgent:
        return await self._database.write(_upsert_worker_agent, entry)

    async def list(self) -> list[RegisteredAgent]:
        return await self._database.read(_list_worker_agents)

    async def unregister(self, agent: str) -> bool:
        return await self._database.write(_delete_worker_agent, agent)


async def _upsert_worker_agent(connection: Connection, entry: RegisteredAgent) -> RegisteredAgent:
    await connection.execute(
        _UPSERT_WORKER_AGENT, entry.agent, entry.principal, entry.registration, entry.registered_at, entry.last_seen
    )
    return RegisteredAgent(*await connection.fetchrow(_SELECT_WORKER_AGENT, entry.agent))


async def _list_worker_agents(connection: Connection) -> list[RegisteredAgent]:
    return [RegisteredAgent(*row) for row in await connection.fetch(_SELECT_WORKER_AGENTS)]


async def _delete_worker_agent(connection: Connection, agent: str) -> bool:
    return str(await connection.execute(_DELETE_WORKER_AGENT, agent)) != "DELETE 0"


_INSERT_UPSTREAM: Final = (
    "INSERT INTO upstreams (agent, entry, since) VALUES ($1, $2, $3) ON CONFLICT (agent) DO NOTHING"
)
_SELECT_UPSTREAMS: Final = "SELECT agent, entry, since FROM upstreams ORDER BY since, agent"
_DELETE_UPSTREAM: Final = "DELETE FROM upstreams WHERE agent = $1"


class PostgresUpstreams:
    """Implements `dragoman.ports.UpstreamStore` on a database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, added: AddedUpstream) -> bool:
        return await self._database.write(_insert_upstream, added)

    async def list(self) -> list[AddedUpstream]:
        return await self._database.read(_list_upstreams)

    async def remove(self, agent: str) -> bool:
        return await self._database.write(_delete_upstream, agent)


async def _insert_upstream(connection: Connection, added: AddedUpstream) -> bool:
    return str(await connection.execute(_INSERT_UPSTREAM, added.agent, added.spec, added.added_at)) != "INSERT 0 0"


async def _list_upstreams(connection: Connection) -> list[AddedUpstream]:
    return [AddedUpstream(*row) for row in await connection.fetch(_SELECT_UPSTREAMS)]


async def _delete_upstream(connection: Connection, agent: str) -> bool:
    return str(await connection.execute(_DELETE_UPSTREAM, agent)) != "DELETE 0"


class PostgresPushes:
    """Implements `dragoman.ports.PushStore` on a database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def put(self, task: TaskRef, config: PushConfig) -> PushRecord:
        return await self._database.write(pushes.put, task, config, self._database.fixed_now)

    async def list_configs(self, task: TaskRef) -> list[PushRecord]:
        return await self._database.read(pushes.pushes_of_task, task)

    async def remove(self, task: TaskRef, id: str) -> bool:
        return await self._database.write(pushes.remove, task, id)

    async def due(
        self,
        *,
        per_host: int,
        max_hosts: int,
        after_host: str = "",
        expired: bool = True,
        longest_delay: int = DEFAULT_LONGEST_DELAY_MS,
    ) -> tuple[list[PushRecord], str]:
        now = self._database.fixed_now
        return await self._database.read(pushes.due, per_host, max_hosts, after_host, expired, longest_delay, now)

    async def claim(
        self,
        session: int,
        keys: Sequence[PushConfigKey],
        *,
        expired: bool = True,
        longest_delay: int = DEFAULT_LONGEST_DELAY_MS,
    ) -> list[PushRecord]:
        now = self._database.fixed_now
        return await self._database.write(pushes.claim, session, keys, expired, longest_delay, now)

    async def apply_reports(self, reports: Sequence[DeliveryReport]) -> list[PushRecord | None]:
        return await self._database.write(pushes.apply_reports, reports, self._database.fixed_now)

    async def attempts(self, task: TaskRef, id: str) -> list[DeliveryAttempt]:
        return await self._database.read(pushes.attempts, task, id)

    async def restart(self, task: TaskRef, ids: Collection[str], after: int | None = None) -> list[PushRecord]:
        return await self._database.write(pushes.restart, task, ids, after, self._database.fixed_now)

    async def unfinished(self, limit: int) -> list[PushRecord]:
        return await self._database.read(pushes.unfinished, limit)
