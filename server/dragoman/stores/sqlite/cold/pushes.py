"""Statements for push configurations, their cursors and delivery attempts. `core.push` decides what they mean.

A task with `has_live_push` has a live configuration. An append to such a task marks its idle configurations as due, so
an index finds what is to be delivered, whatever else is stored, after a crash as before it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import replace
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

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
    qualified,
)

P = ParamSpec("P")
T = TypeVar("T")

Read = Callable[..., Awaitable[Any]]
"""Runs a function of a reader's connection and further arguments."""

Submit = Callable[[Callable[[sqlite3.Connection], Any]], Awaitable[Any]]
"""Runs a function of the writer's connection in the next commit."""

_COLUMNS: Final = qualified(PUSH_COLUMNS, "p")
_SELECT_OWNER_NUMBER: Final = "SELECT owner FROM owners WHERE scope = ? AND principal = ?"
_SELECT_PUSH: Final = f"""
SELECT {_COLUMNS}, {PUSH_TASK_COLUMNS} FROM tasks t JOIN pushes p USING (owner, task)
WHERE t.owner = ? AND t.task = ? AND p.id = ?
"""
_SELECT_PUSHES_OF_TASK: Final = f"""
SELECT {_COLUMNS}, {PUSH_TASK_COLUMNS} FROM tasks t JOIN pushes p USING (owner, task)
WHERE t.owner = ? AND t.task = ? ORDER BY p.created, p.id
"""
_SELECT_TASK: Final = "SELECT last_sequence, state, id, agent FROM tasks t WHERE owner = ? AND task = ?"
_UPSERT_PUSH: Final = f"""
INSERT OR REPLACE INTO pushes (owner, task, host, {PUSH_COLUMNS}) VALUES ({", ".join("?" * 20)})
"""
_UPDATE_DELIVERY: Final = f"""
UPDATE pushes SET ({DELIVERY_COLUMNS}) = ({", ".join("?" * len(DELIVERY_COLUMNS.split()))})
WHERE owner = ? AND task = ? AND id = ?
"""
_INSERT_ATTEMPT: Final = """
INSERT OR REPLACE INTO deliveries (owner, task, id, slot, number, sequence, at, status, error, ms)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_SELECT_ATTEMPTS: Final = """
SELECT sequence, at, status, error, ms FROM deliveries WHERE owner = ? AND task = ? AND id = ? ORDER BY number DESC
"""
_COUNT_OTHERS: Final = "SELECT count(*) FROM pushes WHERE owner = ? AND task = ? AND id != ?"
_MARK_DUE: Final = "UPDATE pushes SET due_at = ? WHERE owner = ? AND task = ? AND due_at = 0 AND state = 0"
_IS_TASK_VISIBLE: Final = "SELECT 1 FROM tasks WHERE owner = ? AND task = ? AND visible"
_UPDATE_LIVE_PUSH: Final = """
UPDATE tasks SET has_live_push = EXISTS (SELECT 1 FROM pushes WHERE owner = ?1 AND task = ?2 AND state = 0)
WHERE owner = ?1 AND task = ?2
"""
_NEXT_HOST: Final = "SELECT host FROM pushes WHERE due_at > 0 AND host > ? ORDER BY host LIMIT 1"
_LIVE_SESSIONS: Final = "SELECT session FROM sessions WHERE expires > ?"
"""At a time; at 0, those that have not certainly ended."""
_DUE_PUSHES_OF_HOST: Final = f"""
SELECT o.scope, o.principal, p.task, {_COLUMNS}, {PUSH_TASK_COLUMNS}
FROM pushes p INDEXED BY pushes_due CROSS JOIN tasks t USING (owner, task) CROSS JOIN owners o USING (owner)
WHERE p.due_at > 0 AND p.host = ? AND (p.due_at <= ? OR p.due_at > ?) AND t.visible
    AND p.session NOT IN ({_LIVE_SESSIONS})
ORDER BY p.due_at LIMIT ?
"""
_SELECT_WAITING: Final = f"""
SELECT o.scope, o.principal, p.task, {_COLUMNS}, {PUSH_TASK_COLUMNS}
FROM pushes p INDEXED BY {{index}} CROSS JOIN tasks t USING (owner, task) CROSS JOIN owners o USING (owner)
WHERE {{where}} LIMIT ?
"""
_DELETE_PUSHES_OF_TASK: Final = tuple(
    f"DELETE FROM {table} WHERE owner = ? AND task = ?" for table in ("pushes", "deliveries")
)
_DELETE_PUSH: Final = tuple(
    f"DELETE FROM {table} WHERE owner = ? AND task = ? AND id = ?" for table in ("deliveries", "pushes")
)


# Inside an append --------------------------------------------------------------------------------------------------


def check_push_limit(connection: sqlite3.Connection, owner: int, record: TaskRecord, id: str) -> None:
    """Raises AppendRejected (TOO_MANY_CONFIGS) when a task cannot have another configuration with this id."""
    (others,) = connection.execute(_COUNT_OTHERS, (owner, record.ref.key, id)).fetchone()
    if others >= MAX_PUSH_CONFIGS:
        raise AppendRejected(TOO_MANY_CONFIGS, record)


def record_append(connection: sqlite3.Connection, owner: int, plan: Plan, now: int) -> None:
    """Applies an append to the configurations of its task: adds a new one, and marks idle ones as due."""
    record, before = plan.record, plan.before
    if (config := plan.change.push_config) is not None:
        after, state = (before.last_sequence, before.state) if before else (0, 0)
        _upsert_push(connection, owner, new_push(record.ref, config, now, after, state, push_task_values(record)), now)
    if plan.events:
        connection.execute(_MARK_DUE, (now, owner, record.ref.key))


def delete_pushes_of_task(connection: sqlite3.Connection, owner: int, task: bytes) -> None:
    """Deletes all configurations and attempts of a task."""
    for statement in _DELETE_PUSHES_OF_TASK:
        connection.execute(statement, (owner, task))


# Outside appends ---------------------------------------------------------------------------------------------------


class SqlitePushes:
    """Implements `dragoman.ports.PushStore` on the store's file."""

    def __init__(self, read: Read, submit: Submit, clock: Callable[[], int]) -> None:
        self._read = read
        self._submit = submit
        self._clock = clock

    async def _write(
        self, job: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        result: T = await self._submit(lambda connection: job(connection, *args, **kwargs))
        return result

    async def put(self, task: TaskRef, config: PushConfig) -> PushRecord:
        return await self._write(_put, task, config, self._clock())

    async def list_configs(self, task: TaskRef) -> list[PushRecord]:
        found: list[PushRecord] = await self._read(_pushes_of_task, task)
        return found

    async def remove(self, task: TaskRef, id: str) -> bool:
        return await self._write(_remove, task, id)

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
            _due, per_host, max_hosts, after_host, expired, longest_delay, self._clock()
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
        return await self._write(_claim, session, keys, expired, longest_delay, self._clock())

    async def apply_reports(self, reports: Sequence[DeliveryReport]) -> list[PushRecord | None]:
        return await self._write(_apply_reports, reports, self._clock())

    async def attempts(self, task: TaskRef, id: str) -> list[DeliveryAttempt]:
        found: list[DeliveryAttempt] = await self._read(_attempts, task, id)
        return found

    async def restart(self, task: TaskRef, ids: Collection[str], after: int | None = None) -> list[PushRecord]:
        return await self._write(_restart, task, ids, after, self._clock())

    async def unfinished(self, limit: int) -> list[PushRecord]:
        found: list[PushRecord] = await self._read(_unfinished, limit)
        return found


def _put(connection: sqlite3.Connection, ref: TaskRef, config: PushConfig, now: int) -> PushRecord:
    owner = _owner_number(connection, ref.owner)
    row = connection.execute(_SELECT_TASK, (owner, ref.key)).fetchone()
    if row is None:
        raise AppendRejected(ABSENT, None)
    (others,) = connection.execute(_COUNT_OTHERS, (owner, ref.key, config.id)).fetchone()
    if others >= MAX_PUSH_CONFIGS:
        raise AppendRejected(TOO_MANY_CONFIGS, None)
    stored = _upsert_push(connection, owner, new_push(ref, config, now, row[0], row[1], row), now)
    connection.execute(_UPDATE_LIVE_PUSH, (owner, ref.key))
    return stored


def _remove(connection: sqlite3.Connection, ref: TaskRef, id: str) -> bool:
    owner = _owner_number(connection, ref.owner)
    for statement in _DELETE_PUSH:
        deleted = connection.execute(statement, (owner, ref.key, id)).rowcount > 0
    connection.execute(_UPDATE_LIVE_PUSH, (owner, ref.key))
    return deleted


def _pushes_of_task(connection: sqlite3.Connection, ref: TaskRef) -> list[PushRecord]:
    return [
        push_from_row(ref, row)
        for row in connection.execute(_SELECT_PUSHES_OF_TASK, (_owner_number(connection, ref.owner), ref.key))
    ]


def _attempts(connection: sqlite3.Connection, ref: TaskRef, id: str) -> list[DeliveryAttempt]:
    rows = connection.execute(_SELECT_ATTEMPTS, (_owner_number(connection, ref.owner), ref.key, id))
    return [
        DeliveryAttempt(sequence=row[0], at=row[1], status=row[2], error=row[3], duration_ms=row[4]) for row in rows
    ]


def _due(
    connection: sqlite3.Connection, each: int, hosts: int, after: str, expired: bool, longest_delay: int, now: int
) -> tuple[list[PushRecord], str]:
    found: list[PushRecord] = []
    for _ in range(hosts):
        row = connection.execute(_NEXT_HOST, (after,)).fetchone()
        if row is None or row[0] <= after:  # damaged text reads as a smaller one
            return found, ""
        (after,) = row
        values = (after, now, now + longest_delay, now if expired else 0, each)
        found += _pushes_with_owners(connection.execute(_DUE_PUSHES_OF_HOST, values))
    return found, after


def _claim(
    connection: sqlite3.Connection,
    session: int,
    keys: Sequence[PushConfigKey],
    expired: bool,
    longest_delay: int,
    now: int,
) -> list[PushRecord]:
    others = {row[0] for row in connection.execute(_LIVE_SESSIONS, (now if expired else 0,))} - {session}
    claimed = []
    for ref, id in keys:
        push = _find_push(connection, ref, id)
        if push is None or push.state is not PushState.LIVE or push.session in others:
            continue
        if not is_due(push, now, longest_delay):
            continue
        if not connection.execute(_IS_TASK_VISIBLE, (_owner_number(connection, ref.owner), ref.key)).fetchone():
            continue
        push = replace(push, session=session, token=push.token + 1)
        _update_delivery(connection, push)
        claimed.append(push)
    return claimed


def _apply_reports(
    connection: sqlite3.Connection, reports: Sequence[DeliveryReport], now: int
) -> list[PushRecord | None]:
    return [_apply_report(connection, report, now) for report in reports]


def _restart(
    connection: sqlite3.Connection, ref: TaskRef, ids: Collection[str], after: int | None, now: int
) -> list[PushRecord]:
    restarted = [
        restart_record(push, now, after)
        for push in _pushes_of_task(connection, ref)
        if not ids or push.config.id in ids
    ]
    for push in restarted:
        _update_delivery(connection, push)
    connection.execute(_UPDATE_LIVE_PUSH, (_owner_number(connection, ref.owner), ref.key))
    return restarted


def _unfinished(connection: sqlite3.Connection, limit: int) -> list[PushRecord]:
    found: list[PushRecord] = []
    for index, where in (("pushes_given_up", "p.state = 2 ORDER BY p.failing_since"), ("pushes_due", "p.due_at > 0")):
        found += _pushes_with_owners(connection.execute(_SELECT_WAITING.format(index=index, where=where), (limit,)))
    # A claimed push with nothing to deliver is not waiting.
    found = [push for push in found if push.lag or push.state is PushState.GIVEN_UP]
    return sorted(found, key=lambda push: push.failing_since or push.due_at)[:limit]


# -------------------------------------------------------------------------------------------------------------------


def _apply_report(connection: sqlite3.Connection, report: DeliveryReport, now: int) -> PushRecord | None:
    push = _find_push(connection, report.task, report.id)
    after = apply_report(push, report, now) if push else None
    if after is None:
        return None
    _update_delivery(connection, after)
    owner = _owner_number(connection, report.task.owner)
    if (attempt := report.attempt) is not None:
        slot = after.attempt_count % MAX_KEPT_ATTEMPTS
        where = (owner, report.task.key, report.id, slot, after.attempt_count)
        values = (attempt.sequence, now, attempt.status, attempt.error, attempt.duration_ms)
        connection.execute(_INSERT_ATTEMPT, (*where, *values))
    if after.state is not PushState.LIVE:
        connection.execute(_UPDATE_LIVE_PUSH, (owner, report.task.key))
    return after


def _upsert_push(connection: sqlite3.Connection, owner: int, new: PushRecord, now: int) -> PushRecord:
    row = connection.execute(_SELECT_PUSH, (owner, new.task.key, new.config.id)).fetchone()
    push = replace_record(new, push_from_row(new.task, row) if row else None, now)
    values = (owner, push.task.key, push.config.host, push.config.id, *config_values(push.config), push.created)
    connection.execute(_UPSERT_PUSH, (*values, *delivery_values(push)))
    return push


def _update_delivery(connection: sqlite3.Connection, push: PushRecord) -> None:
    where = (_owner_number(connection, push.task.owner), push.task.key, push.config.id)
    connection.execute(_UPDATE_DELIVERY, (*delivery_values(push), *where))


def _find_push(connection: sqlite3.Connection, ref: TaskRef, id: str) -> PushRecord | None:
    row = connection.execute(_SELECT_PUSH, (_owner_number(connection, ref.owner), ref.key, id)).fetchone()
    return push_from_row(ref, row) if row else None


def _pushes_with_owners(rows: sqlite3.Cursor) -> list[PushRecord]:
    return [push_from_row(TaskRef(Owner(row[0], row[1]), row[2]), row[3:]) for row in rows]


def _owner_number(connection: sqlite3.Connection, owner: Owner) -> int:
    row = connection.execute(_SELECT_OWNER_NUMBER, (owner.scope, owner.principal)).fetchone()
    return row[0] if row else -1
