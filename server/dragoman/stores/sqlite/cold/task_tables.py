"""The tables beside a task: context state, idempotency keys, usage, steps."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from itertools import chain
from operator import attrgetter
from typing import Final

from dragoman.core.limits.quotas import MAX_DELEGATION_DEPTH, MAX_USAGE, Usage, UsageReport, usage_metadata
from dragoman.core.names import Owner
from dragoman.core.task.log import (
    CHANGED,
    AppendRejected,
    ContextState,
    DuplicateKey,
    IdempotencyKey,
    KeyRecord,
    TaskRecord,
    TaskRef,
    is_key_expired,
)
from dragoman.core.task.projection import merge_metadata
from dragoman.core.task.steps import CURRENT_TURN, StepRecord
from dragoman.stores.shared import rows
from dragoman.stores.sqlite.hot.rows import SqliteBulkStatement

_SELECT_CONTEXT_STATE: Final = "SELECT data, version FROM context_state WHERE owner = ? AND agent = ? AND context = ?"
_UPSERT_CONTEXT_STATE: Final = (
    "INSERT OR REPLACE INTO context_state (owner, agent, context, version, data) VALUES (?, ?, ?, ?, ?)"
)


def read_context_state(connection: sqlite3.Connection, owner: int | None, agent: str, context: str) -> ContextState:
    """The state as last committed; empty, of version 0, when there is none."""
    row = connection.execute(_SELECT_CONTEXT_STATE, (owner, agent, context)).fetchone()
    return ContextState(row[0], row[1]) if row else ContextState()


def write_context_state(connection: sqlite3.Connection, owner: int, record: TaskRecord, state: ContextState) -> None:
    """Writes the state. Raises AppendRejected (CHANGED) when it was written since it was read (optimistic locking)."""
    version = read_context_state(connection, owner, record.agent, record.context).version
    if state.version != version + 1:
        raise AppendRejected(CHANGED, record)
    connection.execute(_UPSERT_CONTEXT_STATE, (owner, record.agent, record.context, state.version, state.data))


_SELECT_KEY: Final = """
SELECT digest, task, reply, created, first, o.scope, o.principal
FROM idempotency i LEFT JOIN owners o ON o.owner = i.task_owner
WHERE i.owner = ? AND agent = ? AND key = ?
"""
_UPSERT_KEY: Final = """
INSERT OR REPLACE INTO idempotency (owner, agent, key, digest, task, reply, first, created, task_owner)
VALUES (?, ?, ?, ?, ?, NULL, ?, ?, ?)
"""
_KEYS_OF_TASK: Final = ("owner = ? AND task = ? AND task_owner IS NULL", "task_owner = ? AND task = ?")
"""Keys of a task: of its owner, and of principals of its scope that share it."""


def check_key(connection: sqlite3.Connection, number: int, owner: Owner, key: IdempotencyKey, now: int) -> None:
    """Raises DuplicateKey if the key was used and has not expired; its catcher compares the digests."""
    row = connection.execute(_SELECT_KEY, (number, key.agent, key.text)).fetchone()
    if row is None:
        return
    digest, task, reply, created, first, task_scope, task_principal = row
    if is_key_expired(created, now):
        return
    task_owner = owner if task_principal is None else Owner(task_scope, task_principal)
    raise DuplicateKey(KeyRecord(digest, TaskRef(task_owner, task) if task else None, reply or b"", first))


def record_key(
    connection: sqlite3.Connection, number: int, owner: int, key: IdempotencyKey, task: bytes, first: int, now: int
) -> None:
    """Records the use of `number`'s key: a task of `owner`, and its last sequence before that."""
    task_owner = None if owner == number else owner
    connection.execute(_UPSERT_KEY, (number, key.agent, key.text, key.digest, task, first, now, task_owner))


def clear_task_keys(connection: sqlite3.Connection, number: int, task: bytes) -> None:
    """Makes the keys of an erased task answer NOT_FOUND until they expire, and removes stored replies."""
    for condition in _KEYS_OF_TASK:
        sql = f"UPDATE idempotency SET task = NULL, reply = NULL, task_owner = NULL WHERE {condition}"
        connection.execute(sql, (number, task))


def record_reply(connection: sqlite3.Connection, number: int, task: bytes, reply: bytes) -> None:
    """Records the Message that was sent instead of a task. Without a reply the key may be reused."""
    for condition in _KEYS_OF_TASK:
        if reply:
            connection.execute(f"UPDATE idempotency SET reply = ? WHERE {condition}", (reply, number, task))
        else:
            connection.execute(f"DELETE FROM idempotency WHERE {condition}", (number, task))


ADD_USAGE: Final = f"""
INSERT INTO usage (owner, task, key, tokens, cost) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (owner, task, key) DO UPDATE
    SET tokens = min(tokens + excluded.tokens, {MAX_USAGE}), cost = min(cost + excluded.cost, {MAX_USAGE})
    WHERE key = ''
"""
ADD_DELEGATED_USAGE: Final = f"""
INSERT INTO delegated_usage (owner, task, tokens, cost) VALUES (?, ?, ?, ?)
ON CONFLICT (owner, task) DO UPDATE
    SET tokens = min(tokens + excluded.tokens, {MAX_USAGE}), cost = min(cost + excluded.cost, {MAX_USAGE})
"""
_SELECT_USAGE: Final = """
SELECT tokens, cost, 0 FROM usage WHERE owner = ?1 AND task = ?2
UNION ALL SELECT tokens, cost, 1 FROM delegated_usage WHERE owner = ?1 AND task = ?2
"""
INSERT_PARENT: Final = "INSERT OR IGNORE INTO parents (owner, task, parent) VALUES (?, ?, ?)"
_SELECT_PARENT: Final = "SELECT parent FROM parents WHERE owner = ? AND task = ?"
_SELECT_DELEGATED: Final = f"""
SELECT o.scope, o.principal, t.task, {rows.TABLE_RECORD_COLUMNS}
FROM owners o JOIN parents p ON p.owner = o.owner JOIN tasks t ON t.owner = p.owner AND t.task = p.task
WHERE o.scope = ? AND o.principal = ? AND p.parent = ? ORDER BY p.task LIMIT ?
"""
_SELECT_METADATA: Final = "SELECT metadata FROM tasks WHERE owner = ? AND task = ?"
_UPDATE_METADATA: Final = "UPDATE tasks SET metadata = ? WHERE owner = ? AND task = ?"
_DELETE_ROWS_BESIDE_TASK: Final = (
    "UPDATE blobs SET uses = uses - 1 WHERE hash IN (SELECT hash FROM blob_uses WHERE owner = ?1 AND task = ?2)",
    *(
        f"DELETE FROM {table} WHERE owner = ?1 AND task = ?2"
        for table in ("blob_uses", "pushes", "deliveries", "usage", "delegated_usage", "parents")
    ),
    "DELETE FROM parents WHERE owner = ?1 AND parent = ?2",
)


def delete_rows_beside_task(connection: sqlite3.Connection, owner: int, key: bytes) -> None:
    """For a task that is deleted. Its ancestors keep what it used.

    Idempotent. Files of blobs without references are removed later (`SqliteStore.compact`).
    """
    for statement in _DELETE_ROWS_BESIDE_TASK:
        connection.execute(statement, (owner, key))


def delegated_tasks(connection: sqlite3.Connection, task: TaskRef, limit: int) -> list[TaskRecord]:
    return rows.records_with_owners(connection.execute(_SELECT_DELEGATED, (*task.owner, task.key, limit)))


def record_usage(connection: sqlite3.Connection, owner: int, key: bytes, report: UsageReport) -> tuple[Usage, bool]:
    """Counts a report for the task and its ancestors. Returns the task's new sum, and whether the report counted."""
    is_counted = connection.execute(ADD_USAGE, (owner, key, report.key, report.tokens, report.cost)).rowcount > 0
    if is_counted and report.has_amount:
        for ancestor in ancestors(connection, owner, key):
            connection.execute(ADD_DELEGATED_USAGE, (owner, ancestor, report.tokens, report.cost))
    if usage := usage_of(connection, owner, key):
        merge_task_metadata(connection, owner, key, usage_metadata(usage))
    return usage, is_counted


def merge_task_metadata(connection: sqlite3.Connection, owner: int, key: bytes, update: bytes) -> None:
    """Merges a serialized Struct into the metadata of a task by key."""
    (metadata,) = connection.execute(_SELECT_METADATA, (owner, key)).fetchone()
    connection.execute(_UPDATE_METADATA, (merge_metadata(metadata, update), owner, key))


def ancestors(connection: sqlite3.Connection, owner: int, key: bytes) -> Iterator[bytes]:
    """The tasks by which a task was delegated, from its parent up."""
    for _ in range(MAX_DELEGATION_DEPTH):
        row = connection.execute(_SELECT_PARENT, (owner, key)).fetchone()
        if row is None:
            return
        (key,) = row
        yield key


def usage_of(connection: sqlite3.Connection, owner: int, key: bytes) -> Usage:
    """A sum in SQL would fail beyond 64 bits."""
    return Usage.total(connection.execute(_SELECT_USAGE, (owner, key)).fetchall())


WRITE_STEPS: Final = SqliteBulkStatement(
    f"INSERT OR REPLACE INTO steps (owner, task, {rows.STEP_COLUMNS})", 15, large=(12, 14)
)
"""Rows of the owner's number, the task's key and STEP_COLUMNS."""

END_TURN: Final = "UPDATE steps SET turn = ? WHERE owner = ? AND task = ? AND turn = 0"  # keeps its steps
_SELECT_STEPS: Final = """
SELECT {columns} FROM owners o JOIN steps s ON s.owner = o.owner
WHERE o.scope = ? AND o.principal = ? AND s.task = ? {only} ORDER BY s.turn = 0, s.turn, s.started, s.position, s.number
"""
_STEP_KEY: Final = attrgetter("turn", "name", "number")
_WITHOUT_RESULT: Final = rows.STEP_COLUMNS.replace("result", "x''").replace("details", "x''")
_WITH_RESULT: Final = rows.STEP_COLUMNS.replace("result", f"iif(turn = {CURRENT_TURN}, result, x'')")
_SLEEPING_TASKS: Final = f"""
SELECT o.scope, o.principal, t.task, {rows.TABLE_RECORD_COLUMNS}
FROM tasks t INDEXED BY tasks_sleeping CROSS JOIN owners o USING (owner)
WHERE t.wake_at > 0 AND t.wake_at <= ? ORDER BY t.wake_at LIMIT ?
"""


def read_steps(
    connection: sqlite3.Connection, ref: TaskRef, results: bool, only: Sequence[StepRecord]
) -> list[StepRecord]:
    columns = rows.STEP_COLUMNS if only else _WITH_RESULT if results else _WITHOUT_RESULT
    keys = f"AND (s.turn, s.name, s.number) IN (VALUES {', '.join(['(?, ?, ?)'] * len(only))})" if only else ""
    values = (ref.owner.scope, ref.owner.principal, ref.key, *chain.from_iterable(map(_STEP_KEY, only)))
    sql = _SELECT_STEPS.format(columns=columns, only=keys)
    return [rows.step_from_row(row) for row in connection.execute(sql, values)]


def sleeping_tasks(connection: sqlite3.Connection, until: int, limit: int) -> list[TaskRecord]:
    return rows.records_with_owners(connection.execute(_SLEEPING_TASKS, (until, limit)))
