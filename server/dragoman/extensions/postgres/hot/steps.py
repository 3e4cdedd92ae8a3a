"""The steps of turns, and the tasks whose turns sleep."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from asyncpg import Connection

from dragoman.core.task.log import TaskRecord, TaskRef
from dragoman.core.task.steps import CURRENT_TURN, StepRecord
from dragoman.extensions.postgres.rows import insert_statement
from dragoman.stores.shared.rows import STEP_COLUMNS, TABLE_RECORD_COLUMNS, records_with_owners, step_from_row

WRITE_STEPS: Final = insert_statement(
    "steps",
    "iyitiiiiiiiiyty",
    f"owner, task, {STEP_COLUMNS}",
    "ON CONFLICT (owner, task, turn, name, number) DO UPDATE SET position = excluded.position, state = excluded.state,"
    " attempt = excluded.attempt, started = excluded.started, ended = excluded.ended, wake_at = excluded.wake_at,"
    " size = excluded.size, result = excluded.result, error = excluded.error, details = excluded.details",
)
"""Rows of the owner's number, the task's key and STEP_COLUMNS, each step once."""

END_TURN: Final = "UPDATE steps SET turn = $3 WHERE owner = $1 AND task = $2 AND turn = 0"
"""Keeps the steps of the current turn under the number of a past turn."""

_SELECT_STEPS: Final = """
SELECT {columns} FROM owners o JOIN steps s ON s.owner = o.owner
WHERE o.scope = $1 AND o.principal = $2 AND s.task = $3 {only}
ORDER BY s.turn = 0, s.turn, s.started, s.position, s.number
"""
_ONLY: Final = """
AND (s.turn, s.name, s.number) IN (SELECT * FROM unnest($4::bigint[], $5::text[], $6::bigint[]))
"""
_WITHOUT_RESULT: Final = STEP_COLUMNS.replace("result", "''::bytea").replace("details", "''::bytea")
_WITH_RESULT: Final = STEP_COLUMNS.replace("result", f"CASE WHEN turn = {CURRENT_TURN} THEN result ELSE ''::bytea END")
_SLEEPING_TASKS: Final = f"""
SELECT o.scope, o.principal, t.task, {TABLE_RECORD_COLUMNS} FROM tasks t JOIN owners o ON o.owner = t.owner
WHERE t.wake_at > 0 AND t.wake_at <= $1 ORDER BY t.wake_at LIMIT $2
"""


async def read_steps(
    connection: Connection, ref: TaskRef, results: bool, only: Sequence[StepRecord]
) -> list[StepRecord]:
    """See dragoman.ports.Store."""
    columns = STEP_COLUMNS if only else _WITH_RESULT if results else _WITHOUT_RESULT
    sql = _SELECT_STEPS.format(columns=columns, only=_ONLY if only else "")
    keys = ([getattr(step, name) for step in only] for name in ("turn", "name", "number")) if only else ()
    values = (ref.owner.scope, ref.owner.principal, ref.key, *keys)
    return [step_from_row(row) for row in await connection.fetch(sql, *values)]


async def sleeping_tasks(connection: Connection, until: int, limit: int) -> list[TaskRecord]:
    """The tasks that wake until then, the first one first."""
    return records_with_owners(await connection.fetch(_SLEEPING_TASKS, until, limit))
