"""Which tasks a selection means: found on a reader, page by page, and by an index wherever there is one.

The writer looks again at each of them before it takes one away, so nothing here need be the last word.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass, replace
from typing import Any, Final

from dragoman.core.access.identity import SHARED_PRINCIPAL
from dragoman.core.names import Owner, task_key_of
from dragoman.core.task.log import TaskRecord, TaskRef
from dragoman.core.task.maintenance import ErasureCounts, TaskSelection
from dragoman.stores.sqlite.hot.transaction import RECORD_COLUMNS, record_from_row
from dragoman.stores.sqlite.reads import owner_number

SELECTION_PAGE_TASKS: Final = 128
"""Tasks looked at in one read."""

RangeCursor = tuple[Any, ...]
"""The sort key of the last task looked at."""

_RECORD_COLUMNS: Final = ", ".join(f"t.{column.strip()}" for column in RECORD_COLUMNS.split(","))
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
_IN_CONTEXT: Final = "SELECT 1 FROM tasks WHERE visible AND owner = ? AND context = ? LIMIT 1"
_MEASURE_CHUNKS: Final = "SELECT count(*), coalesce(sum(length(data)), 0) FROM chunks WHERE owner = ? AND task = ?"
_MEASURE_LOG: Final = "SELECT coalesce(sum(length(data)), 0) FROM log WHERE owner = ? AND task = ?"
_MEASURE_MESSAGES: Final = """
SELECT coalesce(sum(length(data) + length(envelope)), 0) FROM messages WHERE owner = ? AND task = ?
"""
_MEASURE_ARTIFACTS: Final = (
    "SELECT count(*), coalesce(sum(length(head)), 0) FROM artifacts WHERE owner = ? AND task = ?"
)


@dataclass(frozen=True, slots=True)
class SqliteTaskRange:
    """Rows of `tasks` that an index gives in order: by status time, or by key."""

    where: str
    values: tuple[Any, ...]
    index: str = ""
    """The index to use; empty for the table's own key. SQLite would rather save the sorting than the looking."""

    @property
    def by_time(self) -> bool:
        return self.index == "tasks_resting"


def inactive_states(connection: sqlite3.Connection) -> list[tuple[str, int]]:
    """The pairs of agent and state of tasks that have ended or wait for their caller."""
    found: list[tuple[str, int]] = []
    at: tuple[str, int] = ("", 0)
    while row := connection.execute(_NEXT_INACTIVE_STATE, at).fetchone():
        at = (row[0], row[1])
        found.append(at)
    return found


def selected_owners(connection: sqlite3.Connection, selection: TaskSelection) -> list[int]:
    """The owners that a selection allows."""
    sql = "SELECT owner FROM owners WHERE (? = '' OR scope = ?) AND (? = '' OR principal = ?)"
    scope, principal = selection.scope, selection.principal
    return [number for (number,) in connection.execute(sql, (scope, scope, principal, principal))]


def task_ranges(connection: sqlite3.Connection, selection: TaskSelection, now: int) -> list[SqliteTaskRange]:
    """Where tasks of the selection are; not all that is there need be one."""
    if selection.task:
        found = connection.execute(_BY_KEY, (task_key_of(selection.task) or b"", selection.task))
        return [SqliteTaskRange("t.owner = ? AND t.task = ?", tuple(row)) for row in found]
    if selection.context:
        return [
            one
            for number in selected_owners(connection, selection)
            for one in _context_ranges(connection, number, selection)
        ]
    if selection.principal:
        return [
            SqliteTaskRange("t.owner = ?", (number,)) for number in _owners_of_principal_tasks(connection, selection)
        ]
    before = now - selection.older_than
    found_ranges = [
        SqliteTaskRange(
            "t.state > 2 AND t.agent = ? AND t.state = ? AND t.updated <= ?", (agent, state, before), "tasks_resting"
        )
        for agent, state in inactive_states(connection)
        if state in selection.states and selection.agent in ("", agent)
    ]
    if selection.state in (1, 2):  # no index: only an operator asks for these, and off the writer
        found_ranges.append(SqliteTaskRange("t.state = ? AND t.updated <= ?", (selection.state, before)))
    return found_ranges


def _owners_of_principal_tasks(connection: sqlite3.Connection, selection: TaskSelection) -> list[int]:
    """The owners that may have tasks of a principal: its own, and those it shares with others."""
    everyone = selected_owners(connection, replace(selection, principal=SHARED_PRINCIPAL))
    own = selected_owners(connection, selection)
    marks = ", ".join("?" * len(own))
    joined = connection.execute(f"SELECT DISTINCT host FROM participants WHERE owner IN ({marks})", own)
    return list(dict.fromkeys((*own, *everyone, *(host for (host,) in joined))))


def _context_ranges(connection: sqlite3.Connection, owner: int, selection: TaskSelection) -> list[SqliteTaskRange]:
    here = (owner, selection.context)
    found = [
        SqliteTaskRange("t.session > 0 AND NOT t.visible AND t.owner = ? AND t.context = ?", here, "tasks_claimed"),
        SqliteTaskRange("t.ready AND NOT t.visible AND t.owner = ? AND t.context = ?", here, "tasks_waiting"),
    ]
    if connection.execute(_IN_CONTEXT, here).fetchone():
        found.append(SqliteTaskRange("t.visible AND t.owner = ? AND t.context = ?", here, "tasks_by_context"))
    return found


def read_page(
    connection: sqlite3.Connection, task_range: SqliteTaskRange, cursor: RangeCursor | None
) -> tuple[list[TaskRecord], RangeCursor | None]:
    """The next tasks of a range after `at`, and where to go on from; None at its end."""
    order = "t.updated, t.owner, t.task" if task_range.by_time else "t.owner, t.task"
    after = "" if cursor is None else f" AND ({order}) > ({', '.join('?' * len(cursor))})"
    index = f"INDEXED BY {task_range.index}" if task_range.index else ""
    sql = _SELECT_PAGE.format(columns=_RECORD_COLUMNS, index=index, where=task_range.where, after=after, order=order)
    rows = connection.execute(sql, (*task_range.values, *(cursor or ()), SELECTION_PAGE_TASKS)).fetchall()
    heads = [record_from_row(TaskRef(Owner(row[2], row[3]), row[4]), row[5:]) for row in rows]
    if len(rows) < SELECTION_PAGE_TASKS:
        return heads, None
    updated, owner, task = rows[-1][0], rows[-1][1], rows[-1][4]
    return heads, (updated, owner, task) if task_range.by_time else (owner, task)


def measure(connection: sqlite3.Connection, records: list[TaskRecord]) -> ErasureCounts:
    """What these tasks hold."""
    total = ErasureCounts()
    for head in records:
        where = (owner_number(connection, head.ref.owner), head.ref.key)
        chunks, chunk_bytes = connection.execute(_MEASURE_CHUNKS, where).fetchone()
        artifacts, artifact_bytes = connection.execute(_MEASURE_ARTIFACTS, where).fetchone()
        (log_bytes,) = connection.execute(_MEASURE_LOG, where).fetchone()
        (message_bytes,) = connection.execute(_MEASURE_MESSAGES, where).fetchone()
        size = chunk_bytes + artifact_bytes + log_bytes + message_bytes
        total += ErasureCounts(1, head.last_sequence, head.message_count, artifacts, chunks, size)
    return total
