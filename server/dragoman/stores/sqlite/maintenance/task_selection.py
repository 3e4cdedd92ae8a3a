"""SQL statements that select tasks for erasure: on a reader, page by page."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from typing import Final

from dragoman.core.access.identity import SHARED_PRINCIPAL
from dragoman.core.names import task_key_of
from dragoman.core.task.log import TaskRecord
from dragoman.core.task.maintenance import ErasureCounts, TaskSelection
from dragoman.stores.shared.erasure import (
    SELECTION_PAGE_TASKS,
    RangeCursor,
    TaskRange,
    inactive_pairs,
    selects_active,
)
from dragoman.stores.sqlite.hot.rows import TABLE_RECORD_COLUMNS, records_with_owners
from dragoman.stores.sqlite.reads import owner_number

_SELECT_PAGE: Final = """
SELECT t.updated, t.owner, o.scope, o.principal, t.task, {columns}
FROM tasks t {index} CROSS JOIN owners o ON o.owner = t.owner
WHERE {where}{after} ORDER BY {order} LIMIT ?
"""
_NEXT_INACTIVE_STATE: Final = """
SELECT agent, state FROM tasks WHERE state > 2 AND (agent, state) > (?, ?) ORDER BY agent, state LIMIT 1
"""
_BY_KEY: Final = """
SELECT t.owner, t.task FROM owners o CROSS JOIN tasks t ON t.owner = o.owner AND t.task = ?
UNION SELECT owner, task FROM tasks WHERE alias AND id = ?
"""
_INACTIVE: Final = "t.state > 2 AND t.agent = ? AND t.state = ? AND t.updated <= ?"
_IN_CONTEXT: Final = "SELECT 1 FROM tasks WHERE visible AND owner = ? AND context = ? LIMIT 1"
_MEASURE_CHUNKS: Final = "SELECT count(*), coalesce(sum(length(data)), 0) FROM chunks WHERE owner = ? AND task = ?"
_MEASURE_LOG: Final = "SELECT coalesce(sum(length(data)), 0) FROM log WHERE owner = ? AND task = ?"
_MEASURE_MESSAGES: Final = """
SELECT coalesce(sum(length(data) + length(envelope)), 0) FROM messages WHERE owner = ? AND task = ?
"""
_MEASURE_STEPS: Final = "SELECT coalesce(sum(length(result)), 0) FROM steps WHERE owner = ? AND task = ?"
_MEASURE_ARTIFACTS: Final = (
    "SELECT count(*), coalesce(sum(length(head)), 0) FROM artifacts WHERE owner = ? AND task = ?"
)


def inactive_states(connection: sqlite3.Connection) -> list[tuple[str, int]]:
    """The pairs of agent and state of tasks that have ended or wait for their caller."""
    found: list[tuple[str, int]] = []
    at: tuple[str, int] = ("", 0)
    while row := connection.execute(_NEXT_INACTIVE_STATE, at).fetchone():
        if (row[0], row[1]) <= at:  # damaged text, which reads as a smaller one
            break
        at = (row[0], row[1])
        found.append(at)
    return found


def selected_owners(connection: sqlite3.Connection, selection: TaskSelection) -> list[int]:
    """The numbers of the owners that a selection covers."""
    sql = "SELECT owner FROM owners WHERE (? = '' OR scope = ?) AND (? = '' OR principal = ?)"
    scope, principal = selection.scope, selection.principal
    return [number for (number,) in connection.execute(sql, (scope, scope, principal, principal))]


def task_ranges(connection: sqlite3.Connection, selection: TaskSelection, now: int) -> list[TaskRange]:
    """Where tasks of the selection are. SQLite would rather save the sorting than the search, so an index is named."""
    if selection.task:
        rows = connection.execute(_BY_KEY, (task_key_of(selection.task) or b"", selection.task))
        return [TaskRange("t.owner = ? AND t.task = ?", tuple(row)) for row in rows]
    if selection.context:
        return [
            task_range
            for number in selected_owners(connection, selection)
            for task_range in _context_ranges(connection, number, selection)
        ]
    if selection.principal:
        return [TaskRange("t.owner = ?", (number,)) for number in _owners_of_principal_tasks(connection, selection)]
    before = now - selection.older_than
    ranges = [
        TaskRange(_INACTIVE, (agent, state, before), by_time=True, index="tasks_inactive")
        for agent, state in inactive_pairs(selection, inactive_states(connection))
    ]
    if selects_active(selection):
        ranges.append(TaskRange("t.state = ? AND t.updated <= ?", (selection.state, before)))
    return ranges


def _owners_of_principal_tasks(connection: sqlite3.Connection, selection: TaskSelection) -> list[int]:
    """The owners that may have tasks of a principal: its own, and those that it shares with others."""
    everyone = selected_owners(connection, replace(selection, principal=SHARED_PRINCIPAL))
    own = selected_owners(connection, selection)
    return list(dict.fromkeys((*own, *everyone)))


def _context_ranges(connection: sqlite3.Connection, owner: int, selection: TaskSelection) -> list[TaskRange]:
    context = (owner, selection.context)
    ranges = [
        TaskRange("t.session > 0 AND NOT t.visible AND t.owner = ? AND t.context = ?", context, index="tasks_claimed"),
        TaskRange("t.ready AND NOT t.visible AND t.owner = ? AND t.context = ?", context, index="tasks_ready"),
    ]
    if connection.execute(_IN_CONTEXT, context).fetchone():
        ranges.append(TaskRange("t.visible AND t.owner = ? AND t.context = ?", context, index="tasks_by_context"))
    return ranges


def read_page(
    connection: sqlite3.Connection, task_range: TaskRange, cursor: RangeCursor | None
) -> tuple[list[TaskRecord], RangeCursor | None]:
    """The next tasks of a range, and the next cursor; None at the end."""
    after = "" if cursor is None else f" AND ({task_range.order}) > ({', '.join('?' * len(cursor))})"
    index = f"INDEXED BY {task_range.index}" if task_range.index else ""
    sql = _SELECT_PAGE.format(
        columns=TABLE_RECORD_COLUMNS, index=index, where=task_range.where, after=after, order=task_range.order
    )
    rows = connection.execute(sql, (*task_range.values, *(cursor or ()), SELECTION_PAGE_TASKS)).fetchall()
    return records_with_owners([row[2:] for row in rows]), task_range.next_cursor(rows)


def measure(connection: sqlite3.Connection, records: list[TaskRecord]) -> ErasureCounts:
    """Counts and bytes of these tasks."""
    total = ErasureCounts()
    for record in records:
        where = (owner_number(connection, record.ref.owner), record.ref.key)
        chunks, chunk_bytes = connection.execute(_MEASURE_CHUNKS, where).fetchone()
        artifacts, artifact_bytes = connection.execute(_MEASURE_ARTIFACTS, where).fetchone()
        (log_bytes,) = connection.execute(_MEASURE_LOG, where).fetchone()
        (message_bytes,) = connection.execute(_MEASURE_MESSAGES, where).fetchone()
        (step_bytes,) = connection.execute(_MEASURE_STEPS, where).fetchone()
        size = chunk_bytes + artifact_bytes + log_bytes + message_bytes + step_bytes
        total += ErasureCounts(1, record.last_sequence, record.message_count, artifacts, chunks, size)
    return total
