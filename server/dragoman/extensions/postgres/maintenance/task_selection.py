"""SQL statements that select tasks for erasure, page by page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from asyncpg import Connection

from dragoman.core.access.identity import SHARED_PRINCIPAL
from dragoman.core.names import task_key_of
from dragoman.core.task.log import TaskRecord
from dragoman.core.task.maintenance import ErasureCounts, TaskSelection
from dragoman.extensions.postgres.rows import TABLE_RECORD_COLUMNS, PostgresBulkStatement, records_with_owners
from dragoman.stores.shared.erasure import (
    SELECTION_PAGE_TASKS,
    RangeCursor,
    TaskRange,
    inactive_pairs,
    selects_active,
)

_SELECT_PAGE: Final = f"""
SELECT t.updated, t.owner, o.scope, o.principal, t.task, {TABLE_RECORD_COLUMNS}
FROM tasks t JOIN owners o ON o.owner = t.owner WHERE {{where}}{{after}} ORDER BY {{order}} LIMIT {SELECTION_PAGE_TASKS}
"""
_INACTIVE_STATES: Final = """
WITH RECURSIVE pairs (agent, state) AS (
    (SELECT agent, state FROM tasks WHERE state > 2 ORDER BY agent, state LIMIT 1)
    UNION ALL
    SELECT next.agent, next.state FROM pairs CROSS JOIN LATERAL (
        SELECT t.agent, t.state FROM tasks t WHERE t.state > 2 AND (t.agent, t.state) > (pairs.agent, pairs.state)
        ORDER BY t.agent, t.state LIMIT 1) next)
SELECT agent, state FROM pairs
"""
_INACTIVE: Final = "t.state > 2 AND t.agent = $1 AND t.state = $2 AND t.updated <= $3"
_SELECT_BY_ID: Final = (
    "SELECT owner, task FROM tasks WHERE task = $2 UNION SELECT owner, task FROM tasks WHERE alias AND id = $1"
)
_SELECT_OWNERS: Final = (
    "SELECT owner FROM owners WHERE ($1 = '' OR scope = $1) AND ($2 = '' OR principal = $2) ORDER BY owner"
)
_MEASURE: Final = PostgresBulkStatement(
    """
    SELECT r.owner, r.task,
        (SELECT coalesce(sum(length(data)), 0) FROM log l WHERE l.owner = r.owner AND l.task = r.task)::bigint,
        (SELECT coalesce(sum(length(data) + length(envelope)), 0) FROM messages m
            WHERE m.owner = r.owner AND m.task = r.task)::bigint,
        (SELECT coalesce(sum(length(result)), 0) FROM steps s WHERE s.owner = r.owner AND s.task = r.task)::bigint,
        a.count, a.size::bigint, c.count, c.size::bigint
    FROM {rows}
    CROSS JOIN LATERAL (SELECT count(*) AS count, coalesce(sum(length(head)), 0) AS size FROM artifacts a
        WHERE a.owner = r.owner AND a.task = r.task) a
    CROSS JOIN LATERAL (SELECT count(*) AS count, coalesce(sum(length(data)), 0) AS size FROM chunks c
        WHERE c.owner = r.owner AND c.task = r.task) c
    """,
    "iy",
    "owner, task",
)
_SELECT_ROW_KEYS: Final = PostgresBulkStatement(
    "SELECT o.owner, r.task FROM {rows} JOIN owners o ON o.scope = r.scope AND o.principal = r.principal",
    "tty",
    "scope, principal, task",
)


async def inactive_states(connection: Connection) -> list[tuple[str, int]]:
    """The pairs of agent and state of tasks that have ended or wait for their caller."""
    return [(row[0], row[1]) for row in await connection.fetch(_INACTIVE_STATES)]


async def selected_owners(connection: Connection, selection: TaskSelection) -> list[int]:
    """The numbers of the owners that a selection covers."""
    return [row[0] for row in await connection.fetch(_SELECT_OWNERS, selection.scope, selection.principal)]


async def task_ranges(connection: Connection, selection: TaskSelection, now: int) -> list[TaskRange]:
    """Where tasks of the selection are; arguments are numbered from $1."""
    if selection.task:
        rows = await connection.fetch(_SELECT_BY_ID, selection.task, task_key_of(selection.task))
        return [TaskRange("t.owner = $1 AND t.task = $2", tuple(row)) for row in rows]
    if selection.context:
        owners = await selected_owners(connection, selection)
        # Two indexes: one has the tasks that callers see, the other those that are not visible yet.
        return [
            TaskRange(f"{visible} AND t.owner = $1 AND t.context = $2", (number, selection.context))
            for number in owners
            for visible in ("t.visible", "NOT t.visible")
        ]
    if selection.principal:
        return [
            TaskRange("t.owner = $1", (number,)) for number in await _owners_of_principal_tasks(connection, selection)
        ]
    before = now - selection.older_than
    ranges = [
        TaskRange(_INACTIVE, (agent, state, before), by_time=True)
        for agent, state in inactive_pairs(selection, await inactive_states(connection))
    ]
    if selects_active(selection):
        ranges.append(TaskRange("t.state = $1 AND t.updated <= $2", (selection.state, before)))
    return ranges


async def _owners_of_principal_tasks(connection: Connection, selection: TaskSelection) -> list[int]:
    """The owners that may have tasks of a principal: its own, and those that it shares with others."""
    everyone = await selected_owners(connection, replace(selection, principal=SHARED_PRINCIPAL))
    own = await selected_owners(connection, selection)
    return list(dict.fromkeys((*own, *everyone)))


async def read_page(
    connection: Connection, task_range: TaskRange, cursor: RangeCursor | None
) -> tuple[list[TaskRecord], RangeCursor | None]:
    """The next tasks of a range, and the next cursor; None at the end."""
    order, after = task_range.order, ""
    if cursor is not None:
        first = len(task_range.values) + 1
        after = f" AND ({order}) > ({', '.join(f'${number}' for number in range(first, first + len(cursor)))})"
    rows = await connection.fetch(
        _SELECT_PAGE.format(where=task_range.where, after=after, order=order), *task_range.values, *(cursor or ())
    )
    return records_with_owners([row[2:] for row in rows]), task_range.next_cursor(rows)


async def measure(connection: Connection, records: Sequence[TaskRecord]) -> ErasureCounts:
    """Counts and bytes of these tasks."""
    refs = [(ref.owner.scope, ref.owner.principal, ref.key) for ref in (record.ref for record in records)]
    row_keys = [tuple(row) for row in await _SELECT_ROW_KEYS.fetch(connection, refs)]
    total = ErasureCounts(
        tasks=len(row_keys),
        events=sum(record.last_sequence for record in records),
        messages=sum(record.message_count for record in records),
    )
    for row in await _MEASURE.fetch(connection, row_keys):
        _, _, log, messages, steps, artifacts, artifact_bytes, chunks, chunk_bytes = row
        size = log + messages + steps + artifact_bytes + chunk_bytes
        total += ErasureCounts(artifacts=artifacts, chunks=chunks, bytes=size)
    return total
