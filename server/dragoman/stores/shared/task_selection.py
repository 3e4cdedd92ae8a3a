"""Selects tasks for erasure, page by page. A range may contain tasks that do not match: the caller checks each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from dragoman.core.access.identity import SHARED_PRINCIPAL
from dragoman.core.names import task_key_of
from dragoman.core.task import states
from dragoman.core.task.log import TaskRecord
from dragoman.core.task.maintenance import TaskSelection
from dragoman.stores.shared.queries import Query, marks, select, select_first
from dragoman.stores.shared.rows import TABLE_RECORD_COLUMNS, records_with_owners

SELECTION_PAGE_TASKS: Final = 128
"""Tasks examined in one read."""

RangeCursor = tuple[Any, ...]
"""The sort key of the last task examined."""

_SELECT_PAGE: Final = f"""
SELECT t.updated, t.owner, o.scope, o.principal, t.task, {TABLE_RECORD_COLUMNS}
FROM tasks t {{index}} {{join}} owners o ON o.owner = t.owner WHERE {{where}}{{after}}
ORDER BY {{order}} LIMIT {SELECTION_PAGE_TASKS}
"""
_NEXT_INACTIVE_STATE: Final = """
SELECT agent, state FROM tasks WHERE state > 2 AND (agent, state) > (?1, ?2) ORDER BY agent, state LIMIT 1
"""
_INACTIVE: Final = "t.state > 2 AND t.agent = ?1 AND t.state = ?2 AND t.updated <= ?3"
_OF_CONTEXT: Final = "t.owner = ?1 AND t.context = ?2"
_SELECT_OWNERS: Final = (
    "SELECT owner FROM owners WHERE (?1 = '' OR scope = ?1) AND (?2 = '' OR principal = ?2) ORDER BY owner"
)


@dataclass(frozen=True, slots=True)
class TaskRange:
    """Rows of `tasks t` in an order: by status time, or by owner and key."""

    where: str
    values: tuple[Any, ...]
    by_time: bool = False
    index: str = ""
    """The index to use, where a store names one; empty for the database's choice."""

    @property
    def order(self) -> str:
        return "t.updated, t.owner, t.task" if self.by_time else "t.owner, t.task"

    def next_cursor(self, rows: Sequence[Sequence[Any]]) -> RangeCursor | None:
        """After a page of rows that begin with updated, owner, scope, principal and key; None at the end."""
        if len(rows) < SELECTION_PAGE_TASKS:
            return None
        updated, owner, task = rows[-1][0], rows[-1][1], rows[-1][4]
        return (updated, owner, task) if self.by_time else (owner, task)


@dataclass(frozen=True, slots=True)
class SelectionSql:
    """The SQL of a store that selects tasks, where stores differ."""

    by_id: str
    """Selects the owner's number and key of tasks with the id ?1, of which ?2 is the key."""
    of_context: Sequence[tuple[str, str]]
    """Conditions and indexes that together find every task of a context."""
    inactive_index: str = ""
    join: str = "JOIN"


def inactive_states() -> Query[list[tuple[str, int]]]:
    """The pairs of agent and state of tasks that have ended or wait for their caller."""
    found: list[tuple[str, int]] = []
    at: tuple[str, int] = ("", 0)
    while row := (yield from select_first(_NEXT_INACTIVE_STATE, *at)):
        if (row[0], row[1]) <= at:  # damaged text, which reads as a smaller one
            break
        at = (row[0], row[1])
        found.append(at)
    return found


def selected_owners(selection: TaskSelection) -> Query[list[int]]:
    """The numbers of the owners that a selection covers."""
    rows = yield from select(_SELECT_OWNERS, selection.scope, selection.principal)
    return [row[0] for row in rows]


def task_ranges(sql: SelectionSql, selection: TaskSelection, now: int) -> Query[list[TaskRange]]:
    """Where tasks of the selection are; arguments are numbered from ?1."""
    if selection.task:
        rows = yield from select(sql.by_id, selection.task, task_key_of(selection.task) or b"")
        return [TaskRange("t.owner = ?1 AND t.task = ?2", tuple(row)) for row in rows]
    if selection.context:
        owners = yield from selected_owners(selection)
        return [
            TaskRange(f"{where} AND {_OF_CONTEXT}", (number, selection.context), index=index)
            for number in owners
            for where, index in sql.of_context
        ]
    if selection.principal:  # its own tasks, and those that it shares with others
        own = yield from selected_owners(selection)
        shared = yield from selected_owners(replace(selection, principal=SHARED_PRINCIPAL))
        return [TaskRange("t.owner = ?1", (number,)) for number in dict.fromkeys((*own, *shared))]
    before = now - selection.older_than
    ranges = [
        TaskRange(_INACTIVE, (agent, state, before), by_time=True, index=sql.inactive_index)
        for agent, state in (yield from inactive_states())
        if state in selection.states and selection.agent in ("", agent)
    ]
    if selection.state in (states.SUBMITTED, states.WORKING):  # no index helps here: only operators select these
        ranges.append(TaskRange("t.state = ?1 AND t.updated <= ?2", (selection.state, before)))
    return ranges


def read_page(
    sql: SelectionSql, task_range: TaskRange, cursor: RangeCursor | None
) -> Query[tuple[list[TaskRecord], RangeCursor | None]]:
    """The next tasks of a range, and the next cursor; None at the end."""
    order, after = task_range.order, ""
    if cursor is not None:
        after = f" AND ({order}) > ({marks(len(task_range.values) + 1, len(cursor))})"
    index = f"INDEXED BY {task_range.index}" if task_range.index else ""
    text = _SELECT_PAGE.format(index=index, join=sql.join, where=task_range.where, after=after, order=order)
    rows = yield from select(text, *task_range.values, *(cursor or ()))
    return records_with_owners([tuple(row)[2:] for row in rows]), task_range.next_cursor(rows)
