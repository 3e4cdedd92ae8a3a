"""Statements for push configurations, their cursors and delivery attempts. `core.push` decides what they mean.

A task with `has_live_push` has a live configuration. An append to such a task marks its idle configurations as due, so
an index finds what is to be delivered, whatever else is stored, after a crash as before it. Changes of a configuration
lock its task first, as appends do: no cursor moves while the log grows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

from asyncpg import Connection

from dragoman.core.names import Owner
from dragoman.core.push.configuration import MAX_PUSH_CONFIGS, PushConfig
from dragoman.core.push.delivery import (
    DEFAULT_LONGEST_DELAY_MS,
    MAX_KEPT_ATTEMPTS,
    DeliveryAttempt,
    DeliveryReport,
    PushRecord,
    PushState,
    apply_report,
    is_due,
    replace_record,
    restart_record,
)
from dragoman.core.task.log import ABSENT, TOO_MANY_CONFIGS, AppendRejected, TaskRecord, TaskRef
from dragoman.core.task.plan import Plan
from dragoman.extensions.postgres.database import SQL_NOW, Database
from dragoman.extensions.postgres.hot.quota_counters import TaskRowKey
from dragoman.extensions.postgres.rows import PostgresBulkStatement, insert_statement, text_array
from dragoman.extensions.postgres.task_tables import NO_OWNER
from dragoman.ports import PushConfigKey
from dragoman.stores.shared.rows import (
    DELIVERY_COLUMNS,
    PUSH_COLUMNS,
    PUSH_TASK_COLUMNS,
    config_values,
    delivery_values,
    new_push,
    push_from_row,
    push_task_values,
    pushes_with_owners,
    qualified,
)

_COLUMNS: Final = qualified(PUSH_COLUMNS, "p")

MARK_DUE: Final = PostgresBulkStatement(
    "UPDATE pushes p SET due_at = $5 FROM {rows}"
    " WHERE p.owner = r.owner AND p.task = r.task AND p.task {own} AND p.due_at = 0 AND p.state = 0",
    "iy",
    "owner, task",
)
"""Marks the idle configurations of tasks that got events as due at a time."""

_COUNT_OTHERS: Final = "SELECT count(*) FROM pushes WHERE owner = $1 AND task = $2 AND id <> $3"
_LOCK_TASKS: Final = PostgresBulkStatement(
    "SELECT r.scope, r.principal, r.task, t.owner, t.visible, t.last_sequence, t.state, t.id, t.agent FROM {rows}"
    " JOIN owners o ON o.scope = r.scope AND o.principal = r.principal"
    " JOIN tasks t ON t.owner = o.owner AND t.task = r.task AND t.task {own} ORDER BY t.task FOR UPDATE OF t",
    "tty",
    "scope, principal, task",
)
_SELECT_PUSHES_OF_TASKS: Final = PostgresBulkStatement(
    f"SELECT p.owner, p.task, {_COLUMNS} FROM {{rows}}"
    " JOIN pushes p ON p.owner = r.owner AND p.task = r.task AND p.task {own}",
    "iy",
    "owner, task",
)
_SELECT_PUSHES_OF_TASK: Final = f"""
SELECT o.scope, o.principal, p.task, {_COLUMNS}, {PUSH_TASK_COLUMNS}
FROM owners o JOIN tasks t ON t.owner = o.owner JOIN pushes p ON p.owner = t.owner AND p.task = t.task
WHERE o.scope = $1 AND o.principal = $2 AND t.task = $3 ORDER BY p.created, p.id
"""
_UPSERTED_COLUMNS: Final = PUSH_COLUMNS.removeprefix("id, ")
_UPSERT_PUSH: Final = f"""
INSERT INTO pushes (owner, task, host, {PUSH_COLUMNS})
VALUES ({", ".join(f"${n}" for n in range(1, 24))})
ON CONFLICT (owner, task, id) DO UPDATE SET
    {", ".join(f"{name} = excluded.{name}" for name in f"host, {_UPSERTED_COLUMNS}".split(", "))}
"""
_UPDATE_DELIVERY: Final = PostgresBulkStatement(
    f"UPDATE pushes p SET ({DELIVERY_COLUMNS}) = ({qualified(DELIVERY_COLUMNS, 'r')})"
    " FROM {rows} WHERE p.owner = r.owner AND p.task = r.task AND p.id = r.id AND p.task {own}",
    "iyt" + "iiit" + "i" * 9,
    f"owner, task, id, {DELIVERY_COLUMNS}",
)
_INSERT_ATTEMPT: Final = insert_statement(
    "deliveries",
    "iytiiiiiti",
    "owner, task, id, slot, number, sequence, at, status, error, ms",
    "ON CONFLICT (owner, task, id, slot) DO UPDATE SET number = excluded.number, sequence = excluded.sequence,"
    " at = excluded.at, status = excluded.status, error = excluded.error, ms = excluded.ms",
)
_SELECT_ATTEMPTS: Final = """
SELECT d.sequence, d.at, d.status, d.error, d.ms FROM owners o JOIN deliveries d ON d.owner = o.owner
WHERE o.scope = $1 AND o.principal = $2 AND d.task = $3 AND d.id = $4 ORDER BY d.number DESC
"""
_UPDATE_LIVE_PUSH: Final = PostgresBulkStatement(
    "UPDATE tasks t SET has_live_push = EXISTS (SELECT 1 FROM pushes p WHERE p.owner = t.owner AND p.task = t.task"
    " AND p.state = 0) FROM {rows} WHERE t.owner = r.owner AND t.task = r.task AND t.task {own}",
    "iy",
    "owner, task",
)
_LIVE_SESSIONS: Final = "SELECT session FROM sessions WHERE expires > {}"
"""At a time; at 0, those that have not certainly ended."""
_NEXT_HOSTS: Final = """
WITH RECURSIVE hosts (host, number) AS (
    (SELECT host, 1 FROM pushes WHERE due_at > 0 AND host > $1 ORDER BY host LIMIT 1)
    UNION ALL
    SELECT next.host, hosts.number + 1 FROM hosts CROSS JOIN LATERAL
        (SELECT host FROM pushes WHERE due_at > 0 AND host > hosts.host ORDER BY host LIMIT 1) next
    WHERE hosts.number < $2)
SELECT host FROM hosts ORDER BY host
"""
_DUE_PUSHES_OF_HOSTS: Final = f"""
SELECT found.* FROM unnest($1::text[]) WITH ORDINALITY AS h (host, number)
CROSS JOIN (VALUES (false), (true)) AS f (has_failed) CROSS JOIN LATERAL (
    SELECT o.scope, o.principal, p.task, {_COLUMNS}, {PUSH_TASK_COLUMNS}
    FROM pushes p JOIN tasks t ON t.owner = p.owner AND t.task = p.task JOIN owners o ON o.owner = p.owner
    WHERE p.due_at > 0 AND p.host = h.host AND (p.failures > 0) = f.has_failed
        AND (p.due_at <= $2 OR p.due_at > $2 + $5) AND t.visible AND p.session NOT IN ({_LIVE_SESSIONS.format("$4")})
    ORDER BY p.due_at LIMIT $3) found
ORDER BY h.number, f.has_failed, found.due_at
"""
_SELECT_WAITING: Final = f"""
SELECT o.scope, o.principal, p.task, {_COLUMNS}, {PUSH_TASK_COLUMNS}
FROM pushes p JOIN tasks t ON t.owner = p.owner AND t.task = p.task JOIN owners o ON o.owner = p.owner
WHERE {{}} LIMIT $1
"""
_DELETE_PUSHES_OF_TASK: Final = tuple(
    f"DELETE FROM {table} WHERE owner = $1 AND task = $2" for table in ("pushes", "deliveries")
)
_DELETE_PUSH: Final = tuple(f"{forget} AND id = $3" for forget in reversed(_DELETE_PUSHES_OF_TASK))


# Inside an append --------------------------------------------------------------------------------------------------


async def check_push_limit(connection: Connection, row_key: TaskRowKey, record: TaskRecord | None, id: str) -> None:
    """Raises AppendRejected (TOO_MANY_CONFIGS) when a task cannot have another configuration with this id."""
    if await connection.fetchval(_COUNT_OTHERS, *row_key, id) >= MAX_PUSH_CONFIGS:
        raise AppendRejected(TOO_MANY_CONFIGS, record)


async def record_new_push(
    connection: Connection, row_key: TaskRowKey, plan: Plan, config: PushConfig, now: int
) -> None:
    """Adds the configuration of an append: it begins with the append's first event."""
    record, before = plan.record, plan.before
    after, shown = (before.last_sequence, before.state) if before else (0, 0)
    new = new_push(record.ref, config, now, after, shown, push_task_values(record))
    await _upsert_push(connection, row_key, new, now)


async def delete_pushes_of_task(connection: Connection, row_key: TaskRowKey) -> None:
    """Deletes all configurations and attempts of a task."""
    for statement in _DELETE_PUSHES_OF_TASK:
        await connection.execute(statement, *row_key)


# Outside appends ---------------------------------------------------------------------------------------------------


class PostgresPushes:
    """Implements `dragoman.ports.PushStore` on a database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def put(self, task: TaskRef, config: PushConfig) -> PushRecord:
        return await self._database.write(_put, task, config, self._database.fixed_now)

    async def list_configs(self, task: TaskRef) -> list[PushRecord]:
        return await self._database.read(_pushes_of_task, task)

    async def remove(self, task: TaskRef, id: str) -> bool:
        return await self._database.write(_remove, task, id)

    async def due(
        self,
        *,
        per_share: int,
        max_hosts: int,
        after_host: str = "",
        expired: bool = True,
        longest_delay: int = DEFAULT_LONGEST_DELAY_MS,
    ) -> tuple[list[PushRecord], str]:
        now = self._database.fixed_now
        return await self._database.read(_due, per_share, max_hosts, after_host, expired, longest_delay, now)

    async def claim(
        self,
        session: int,
        keys: Sequence[PushConfigKey],
        *,
        expired: bool = True,
        longest_delay: int = DEFAULT_LONGEST_DELAY_MS,
    ) -> list[PushRecord]:
        now = self._database.fixed_now
        return await self._database.write(_claim, session, keys, expired, longest_delay, now)

    async def apply_reports(self, reports: Sequence[DeliveryReport]) -> list[PushRecord | None]:
        return await self._database.write(_apply_reports, reports, self._database.fixed_now)

    async def attempts(self, task: TaskRef, id: str) -> list[DeliveryAttempt]:
        return await self._database.read(_attempts, task, id)

    async def restart(self, task: TaskRef, ids: Collection[str], after: int | None = None) -> list[PushRecord]:
        return await self._database.write(_restart, task, ids, after, self._database.fixed_now)

    async def unfinished(self, limit: int) -> list[PushRecord]:
        return await self._database.read(_unfinished, limit)


class LockedPushes:
    """Tasks locked until the end of the transaction, and their configurations."""

    def __init__(self) -> None:
        self.row_keys: dict[TaskRef, TaskRowKey] = {}
        self.visible: set[TaskRef] = set()
        self.task_columns: dict[TaskRef, Sequence[Any]] = {}
        self.pushes: dict[PushConfigKey, PushRecord] = {}


async def lock_pushes(connection: Connection, tasks: Iterable[TaskRef]) -> LockedPushes:
    """Locks those of these tasks that exist, in the order that appends use."""
    found = LockedPushes()
    wanted = sorted({(ref.owner.scope, ref.owner.principal, ref.key) for ref in tasks})
    for scope, principal, key, owner, visible, *task_values in await _LOCK_TASKS.fetch(connection, wanted):
        ref = TaskRef(Owner(scope, principal), key)
        found.row_keys[ref], found.task_columns[ref] = (owner, key), task_values
        if visible:
            found.visible.add(ref)
    refs = {row_key: ref for ref, row_key in found.row_keys.items()}
    for owner, key, *columns in await _SELECT_PUSHES_OF_TASKS.fetch(connection, sorted(refs)):
        ref = refs[owner, key]
        push = push_from_row(ref, (*columns, *found.task_columns[ref]))
        found.pushes[ref, push.config.id] = push
    return found


async def _put(connection: Connection, ref: TaskRef, config: PushConfig, fixed_now: int | None) -> PushRecord:
    locked, now = await lock_pushes(connection, [ref]), await _now(connection, fixed_now)
    if ref not in locked.row_keys:
        raise AppendRejected(ABSENT, None)
    row_key, task_values = locked.row_keys[ref], locked.task_columns[ref]
    await check_push_limit(connection, row_key, None, config.id)
    stored = await _upsert_push(
        connection, row_key, new_push(ref, config, now, task_values[0], task_values[1], task_values), now
    )
    await _UPDATE_LIVE_PUSH.run(connection, [row_key])
    return stored


async def _remove(connection: Connection, ref: TaskRef, id: str) -> bool:
    locked = await lock_pushes(connection, [ref])
    if (ref, id) not in locked.pushes:
        return False
    row_key = locked.row_keys[ref]
    for statement in _DELETE_PUSH:
        await connection.execute(statement, *row_key, id)
    await _UPDATE_LIVE_PUSH.run(connection, [row_key])
    return True


async def _pushes_of_task(connection: Connection, ref: TaskRef) -> list[PushRecord]:
    return pushes_with_owners(
        await connection.fetch(_SELECT_PUSHES_OF_TASK, ref.owner.scope, ref.owner.principal, ref.key)
    )


async def _attempts(connection: Connection, ref: TaskRef, id: str) -> list[DeliveryAttempt]:
    rows = await connection.fetch(_SELECT_ATTEMPTS, ref.owner.scope, ref.owner.principal, ref.key, id)
    return [
        DeliveryAttempt(sequence=sequence, at=at, status=status, error=error, duration_ms=ms)
        for sequence, at, status, error, ms in rows
    ]


async def _due(
    connection: Connection,
    per_share: int,
    max_hosts: int,
    after_host: str,
    expired: bool,
    longest_delay: int,
    fixed_now: int | None,
) -> tuple[list[PushRecord], str]:
    hosts = [row[0] for row in await connection.fetch(_NEXT_HOSTS, after_host, max_hosts)]
    if not hosts:
        return [], ""
    now = await _now(connection, fixed_now)
    values = (text_array(hosts), now, per_share, now if expired else 0, longest_delay)
    rows = await connection.fetch(_DUE_PUSHES_OF_HOSTS, *values)
    return pushes_with_owners(rows), hosts[-1] if len(hosts) == max_hosts else ""


async def _claim(
    connection: Connection,
    session: int,
    keys: Sequence[PushConfigKey],
    expired: bool,
    longest_delay: int,
    fixed_now: int | None,
) -> list[PushRecord]:
    locked, now = await lock_pushes(connection, [ref for ref, _ in keys]), await _now(connection, fixed_now)
    live = await connection.fetch(_LIVE_SESSIONS.format("$1"), now if expired else 0)
    others = {row[0] for row in live} - {session}
    claimed = []
    for key in dict.fromkeys(keys):
        push = locked.pushes.get(key)
        if push is None or push.state is not PushState.LIVE or push.session in others:
            continue
        if key[0] in locked.visible and is_due(push, now, longest_delay):
            claimed.append(replace(push, session=session, token=push.token + 1))
    await _update_delivery(connection, locked, claimed)
    return claimed


async def _apply_reports(
    connection: Connection, reports: Sequence[DeliveryReport], fixed_now: int | None
) -> list[PushRecord | None]:
    locked, now = await lock_pushes(connection, [report.task for report in reports]), await _now(connection, fixed_now)
    results: list[PushRecord | None] = []
    attempts: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    for report in reports:
        key = report.task, report.id
        push = locked.pushes.get(key)
        after = apply_report(push, report, now) if push else None
        results.append(after)
        if after is None:
            continue
        locked.pushes[key] = after
        if (attempt := report.attempt) is not None:
            where = (*locked.row_keys[report.task], report.id, after.attempt_count % MAX_KEPT_ATTEMPTS)
            outcome = attempt.status, attempt.error, attempt.duration_ms
            attempts[where] = after.attempt_count, attempt.sequence, now, *outcome
    changed = {(push.task, push.config.id): push for push in results if push is not None}
    await _update_delivery(connection, locked, list(changed.values()))
    await _INSERT_ATTEMPT.run(connection, [(*where, *values) for where, values in attempts.items()])
    over = {locked.row_keys[push.task] for push in changed.values() if push.state is not PushState.LIVE}
    await _UPDATE_LIVE_PUSH.run(connection, sorted(over))
    return results


async def _restart(
    connection: Connection, ref: TaskRef, ids: Collection[str], after: int | None, fixed_now: int | None
) -> list[PushRecord]:
    locked, now = await lock_pushes(connection, [ref]), await _now(connection, fixed_now)
    inside = sorted(locked.pushes.values(), key=lambda push: (push.created, push.config.id))
    restarted = [restart_record(push, now, after) for push in inside if not ids or push.config.id in ids]
    await _update_delivery(connection, locked, restarted)
    await _UPDATE_LIVE_PUSH.run(connection, list(locked.row_keys.values()))
    return restarted


async def _unfinished(connection: Connection, limit: int) -> list[PushRecord]:
    found: list[PushRecord] = []
    for where in (
        "(p.state = 2 OR p.first_given_up > 0) ORDER BY p.failing_since",
        "p.due_at > 0 AND p.first_given_up = 0",
    ):
        found += pushes_with_owners(await connection.fetch(_SELECT_WAITING.replace("{}", where), limit))
    # A claimed push with nothing to deliver is not waiting.
    found = [push for push in found if push.last_sequence > push.accepted or push.state is PushState.GIVEN_UP]
    return sorted(found, key=lambda push: push.failing_since or push.due_at)[:limit]


# -------------------------------------------------------------------------------------------------------------------


async def _now(connection: Connection, fixed_now: int | None) -> int:
    found: int = await connection.fetchval(f"SELECT {SQL_NOW.format('$1')}", fixed_now)
    return found


async def _upsert_push(connection: Connection, row_key: TaskRowKey, new: PushRecord, now: int) -> PushRecord:
    config, previous = new.config, None
    known = await _SELECT_PUSHES_OF_TASKS.fetch(connection, [row_key] if row_key[0] != NO_OWNER else [])
    for _, _, id, *columns in known:
        if id == config.id:
            previous = push_from_row(new.task, (id, *columns, new.last_sequence, 0, new.task_id, new.agent))
    push = replace_record(new, previous, now)
    values = (*row_key, config.host, config.id, *config_values(config), push.created, *delivery_values(push))
    await connection.execute(_UPSERT_PUSH, *values)
    return push


async def _update_delivery(connection: Connection, locked: LockedPushes, pushes: Sequence[PushRecord]) -> None:
    rows = [(*locked.row_keys[push.task], push.config.id, *delivery_values(push)) for push in pushes]
    await _UPDATE_DELIVERY.run(connection, sorted(rows))
