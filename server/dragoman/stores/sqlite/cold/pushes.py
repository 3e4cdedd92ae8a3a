"""Statements for push configurations, their cursors and delivery attempts. `core.push` decides what they mean.

A task with `has_live_push` has a live configuration. An append to such a task marks its idle configurations as due, so
an index finds what is to be delivered, whatever else is stored, after a crash as before it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Final

from dragoman.core.push import delivery
from dragoman.core.push.configuration import MAX_PUSH_CONFIGS, PushConfig
from dragoman.core.push.delivery import DEFAULT_LONGEST_DELAY_MS, DeliveryAttempt, DeliveryReport, PushRecord, PushState
from dragoman.core.task.log import ABSENT, TOO_MANY_CONFIGS, AppendRejected, TaskRecord, TaskRef
from dragoman.core.task.plan import Plan
from dragoman.ports import PushConfigKey
from dragoman.stores.shared import rows
from dragoman.stores.shared.rows import new_push, push_from_row, qualified
from dragoman.stores.sqlite.queries import SqliteAccess, in_commit, on_reader
from dragoman.stores.sqlite.reads import owner_number

_COLUMNS: Final = qualified(rows.PUSH_COLUMNS, "p")
_SELECT_PUSHES: Final = f"""
SELECT {_COLUMNS}, {rows.PUSH_TASK_COLUMNS} FROM tasks t JOIN pushes p USING (owner, task)
WHERE t.owner = ?1 AND t.task = ?2 AND (?3 IS NULL OR p.id = ?3) ORDER BY p.created, p.id
"""
_SELECT_TASK: Final = "SELECT last_sequence, state, id, agent FROM tasks t WHERE owner = ? AND task = ?"
_UPSERT_PUSH: Final = f"""
INSERT OR REPLACE INTO pushes (owner, task, host, {rows.PUSH_COLUMNS}) VALUES ({", ".join("?" * 23)})
"""
_UPDATE_DELIVERY: Final = f"""
UPDATE pushes SET ({rows.DELIVERY_COLUMNS}) = ({", ".join("?" * len(rows.DELIVERY_COLUMNS.split()))})
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
_SELECT_WAITING: Final = f"""
SELECT o.scope, o.principal, p.task, {_COLUMNS}, {rows.PUSH_TASK_COLUMNS}
FROM pushes p INDEXED BY {{index}} CROSS JOIN tasks t USING (owner, task) CROSS JOIN owners o USING (owner)
WHERE {{where}} LIMIT ?
"""
_DUE_PUSHES_OF_HOST: Final = _SELECT_WAITING.format(
    index="pushes_due",
    where="p.due_at > 0 AND p.host = ? AND p.failures > 0 = ? AND (p.due_at <= ? OR p.due_at > ?) AND t.visible"
    f" AND p.session NOT IN ({_LIVE_SESSIONS}) ORDER BY p.due_at",
)
_WAITING: Final = (
    ("pushes_given_up", "p.state = 2 OR p.first_given_up > 0 ORDER BY p.failing_since"),
    ("pushes_due", "p.due_at > 0 AND p.first_given_up = 0"),
)
_DELETE_PUSH: Final = tuple(
    f"DELETE FROM {table} WHERE owner = ? AND task = ? AND id = ?" for table in ("deliveries", "pushes")
)


# Inside an append --------------------------------------------------------------------------------------------------


def check_push_limit(
    connection: sqlite3.Connection, owner: int, key: bytes, id: str, record: TaskRecord | None
) -> None:
    """Raises AppendRejected (TOO_MANY_CONFIGS) when a task cannot have another configuration with this id."""
    (others,) = connection.execute(_COUNT_OTHERS, (owner, key, id)).fetchone()
    if others >= MAX_PUSH_CONFIGS:
        raise AppendRejected(TOO_MANY_CONFIGS, record)


def record_append(connection: sqlite3.Connection, owner: int, plan: Plan, now: int) -> None:
    """Applies an append to the configurations of its task: adds a new one, and marks idle ones as due."""
    record, before = plan.record, plan.before
    if (config := plan.change.push_config) is not None:
        after, state = (before.last_sequence, before.state) if before else (0, 0)
        new = new_push(record.ref, config, now, after, state, rows.push_task_values(record))
        _upsert_push(connection, owner, new, now)
    if plan.events:
        connection.execute(_MARK_DUE, (now, owner, record.ref.key))


# Outside appends ---------------------------------------------------------------------------------------------------


class SqlitePushes(SqliteAccess):
    """Implements `dragoman.ports.PushStore` on the store's file."""

    @in_commit
    def put(self, connection: sqlite3.Connection, task: TaskRef, config: PushConfig) -> PushRecord:
        owner, now = owner_number(connection, task.owner), self._clock()
        row = connection.execute(_SELECT_TASK, (owner, task.key)).fetchone()
        if owner is None or row is None:
            raise AppendRejected(ABSENT, None)
        check_push_limit(connection, owner, task.key, config.id, None)
        stored = _upsert_push(connection, owner, new_push(task, config, now, row[0], row[1], row), now)
        connection.execute(_UPDATE_LIVE_PUSH, (owner, task.key))
        return stored

    @on_reader
    def list_configs(self, connection: sqlite3.Connection, task: TaskRef) -> list[PushRecord]:
        return _pushes(connection, owner_number(connection, task.owner), task)

    @in_commit
    def remove(self, connection: sqlite3.Connection, task: TaskRef, id: str) -> bool:
        owner = owner_number(connection, task.owner)
        for statement in _DELETE_PUSH:
            deleted = connection.execute(statement, (owner, task.key, id)).rowcount > 0
        connection.execute(_UPDATE_LIVE_PUSH, (owner, task.key))
        return deleted

    @on_reader
    def due(
        self,
        connection: sqlite3.Connection,
        *,
        per_share: int,
        max_hosts: int,
        after_host: str = "",
        expired: bool = True,
        longest_delay: int = DEFAULT_LONGEST_DELAY_MS,
    ) -> tuple[list[PushRecord], str]:
        found, now = list[PushRecord](), self._clock()
        for _ in range(max_hosts):
            row = connection.execute(_NEXT_HOST, (after_host,)).fetchone()
            if row is None or row[0] <= after_host:  # damaged text reads as a smaller one
                return found, ""
            (after_host,) = row
            for is_failing in (False, True):
                values = (after_host, is_failing, now, now + longest_delay, now if expired else 0, per_share)
                found += rows.pushes_with_owners(connection.execute(_DUE_PUSHES_OF_HOST, values))
        return found, after_host

    @in_commit
    def claim(
        self,
        connection: sqlite3.Connection,
        session: int,
        keys: Sequence[PushConfigKey],
        *,
        expired: bool = True,
        longest_delay: int = DEFAULT_LONGEST_DELAY_MS,
    ) -> list[PushRecord]:
        now = self._clock()
        others = {row[0] for row in connection.execute(_LIVE_SESSIONS, (now if expired else 0,))} - {session}
        claimed = []
        for ref, id in keys:
            owner = owner_number(connection, ref.owner)
            for push in _pushes(connection, owner, ref, id):
                if push.state is not PushState.LIVE or push.session in others:
                    continue
                is_visible = connection.execute(_IS_TASK_VISIBLE, (owner, ref.key)).fetchone()
                if is_visible and delivery.is_due(push, now, longest_delay):
                    push = replace(push, session=session, token=push.token + 1)
                    _update_delivery(connection, owner, push)
                    claimed.append(push)
        return claimed

    @in_commit
    def apply_reports(
        self, connection: sqlite3.Connection, reports: Sequence[DeliveryReport]
    ) -> list[PushRecord | None]:
        return [_apply_report(connection, report, self._clock()) for report in reports]

    @on_reader
    def attempts(self, connection: sqlite3.Connection, task: TaskRef, id: str) -> list[DeliveryAttempt]:
        where = (owner_number(connection, task.owner), task.key, id)
        return [
            DeliveryAttempt(sequence=sequence, at=at, status=status, error=error, duration_ms=ms)
            for sequence, at, status, error, ms in connection.execute(_SELECT_ATTEMPTS, where)
        ]

    @in_commit
    def restart(
        self, connection: sqlite3.Connection, task: TaskRef, ids: Collection[str], after: int | None = None
    ) -> list[PushRecord]:
        owner, now = owner_number(connection, task.owner), self._clock()
        pushes = _pushes(connection, owner, task)
        restarted = [delivery.restart_record(push, now, after) for push in pushes if not ids or push.config.id in ids]
        for push in restarted:
            _update_delivery(connection, owner, push)
        connection.execute(_UPDATE_LIVE_PUSH, (owner, task.key))
        return restarted

    @on_reader
    def unfinished(self, connection: sqlite3.Connection, limit: int) -> list[PushRecord]:
        found: list[PushRecord] = []
        for index, where in _WAITING:
            sql = _SELECT_WAITING.format(index=index, where=where)
            found += rows.pushes_with_owners(connection.execute(sql, (limit,)))
        # A claimed push with nothing to deliver is not waiting.
        found = [push for push in found if push.last_sequence > push.accepted or push.state is PushState.GIVEN_UP]
        return sorted(found, key=lambda push: push.failing_since or push.due_at)[:limit]


def _apply_report(connection: sqlite3.Connection, report: DeliveryReport, now: int) -> PushRecord | None:
    owner, key = owner_number(connection, report.task.owner), report.task.key
    for push in _pushes(connection, owner, report.task, report.id):
        if (after := delivery.apply_report(push, report, now)) is None:
            break
        _update_delivery(connection, owner, after)
        if (attempt := report.attempt) is not None:
            where = (owner, key, report.id, after.attempt_count % delivery.MAX_KEPT_ATTEMPTS, after.attempt_count)
            values = (attempt.sequence, now, attempt.status, attempt.error, attempt.duration_ms)
            connection.execute(_INSERT_ATTEMPT, (*where, *values))
        if after.state is not PushState.LIVE:
            connection.execute(_UPDATE_LIVE_PUSH, (owner, key))
        return after
    return None


def _pushes(connection: sqlite3.Connection, owner: int | None, ref: TaskRef, id: str | None = None) -> list[PushRecord]:
    """The configurations of a task; with `id`, the one with that id, if it exists."""
    return [push_from_row(ref, row) for row in connection.execute(_SELECT_PUSHES, (owner, ref.key, id))]


def _upsert_push(connection: sqlite3.Connection, owner: int, new: PushRecord, now: int) -> PushRecord:
    previous = _pushes(connection, owner, new.task, new.config.id)
    push = delivery.replace_record(new, previous[0] if previous else None, now)
    values = (owner, push.task.key, push.config.host, push.config.id, *rows.config_values(push.config), push.created)
    connection.execute(_UPSERT_PUSH, (*values, *rows.delivery_values(push)))
    return push


def _update_delivery(connection: sqlite3.Connection, owner: int | None, push: PushRecord) -> None:
    connection.execute(_UPDATE_DELIVERY, (*rows.delivery_values(push), owner, push.task.key, push.config.id))
