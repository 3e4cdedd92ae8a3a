"""The steps of turns, and the tasks whose turns sleep."""

from __future__ import annotations

import sqlite3
from typing import Final

from dragoman.core.task.log import TaskRecord, TaskRef
from dragoman.core.task.steps import CURRENT_TURN, StepRecord
from dragoman.stores.shared.rows import STEP_COLUMNS, TABLE_RECORD_COLUMNS, records_with_owners, step_from_row
from dragoman.stores.sqlite.hot.rows import SqliteBulkStatement

WRITE_STEPS: Final = SqliteBulkStatement(f"INSERT OR REPLACE INTO steps (owner, task, {STEP_COLUMNS})", 14, large=(12,))
"""Rows of the owner's number, the task's key and STEP_COLUMNS."""

_END_TURN: Final = "UPDATE steps SET turn = ? WHERE owner = ? AND task = ? AND turn = 0"
_SELECT_STEPS: Final = """
SELECT {columns} FROM owners o JOIN steps s ON s.owner = o.owner
WHERE o.scope = ? AND o.principal = ? AND s.task = ? ORDER BY s.turn = 0, s.turn, s.started, s.position, s.number
"""
_WITHOUT_RESULT: Final = STEP_COLUMNS.replace("result", "x''")
_WITH_RESULT: Final = STEP_COLUMNS.replace("result", f"iif(turn = {CURRENT_TURN}, result, x'')")
_SLEEPING_TASKS: Final = f"""
SELECT o.scope, o.principal, t.task, {TABLE_RECORD_COLUMNS}
FROM tasks t INDEXED BY tasks_sleeping CROSS JOIN owners o USING (owner)
WHERE t.wake_at > 0 AND t.wake_at <= ? ORDER BY t.wake_at LIMIT ?
"""


def end_turn(connection: sqlite3.Connection, owner: int, key: bytes, turn: int) -> None:
    """Keeps the steps of the current turn under the number of a past turn."""
    connection.execute(_END_TURN, (turn, owner, key))


def read_steps(connection: sqlite3.Connection, ref: TaskRef, results: bool) -> list[StepRecord]:
    """The steps of a task, those of the current turn last; with `results`, these have their stored results."""
    sql = _SELECT_STEPS.format(columns=_WITH_RESULT if results else _WITHOUT_RESULT)
    return [step_from_row(row) for row in connection.execute(sql, (ref.owner.scope, ref.owner.principal, ref.key))]


def sleeping_tasks(connection: sqlite3.Connection, until: int, limit: int) -> list[TaskRecord]:
    """The tasks that wake until then, the first one first."""
    return records_with_owners(connection.execute(_SLEEPING_TASKS, (until, limit)))
