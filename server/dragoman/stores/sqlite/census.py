"""How much there is, counted by indexes and counters: tasks by a row for each owner, agent and state."""

from __future__ import annotations

import sqlite3
from typing import Final

from dragoman.core.census import Census, Waiting

TASKS: Final = "SELECT agent, state, sum(tasks) FROM totals GROUP BY agent, state HAVING sum(tasks) > 0"
WAITING: Final = "SELECT agent, count(*), min(updated) FROM tasks INDEXED BY tasks_waiting WHERE ready GROUP BY agent"
DUE: Final = "SELECT count(*), coalesce(min(due), 0) FROM pushes INDEXED BY pushes_due WHERE due > 0 AND due <= ?"
FAILING: Final = """
SELECT coalesce(min(failing), 0) FROM pushes INDEXED BY pushes_due WHERE due > 0 AND failing > 0
"""
DEAD: Final = "SELECT count(*) FROM pushes INDEXED BY pushes_dead WHERE state = 2"


def census(connection: sqlite3.Connection, now: int) -> Census:
    """Counts, at `now`."""
    due, since = connection.execute(DUE, (now,)).fetchone()
    (failing,) = connection.execute(FAILING).fetchone()
    (dead,) = connection.execute(DEAD).fetchone()
    return Census(
        at=now,
        tasks={(agent, state): tasks for agent, state, tasks in connection.execute(TASKS)},
        waiting={agent: Waiting(tasks, since) for agent, tasks, since in connection.execute(WAITING)},
        pushes=due,
        pushes_since=since,
        failing_since=failing,
        dead=dead,
    )
