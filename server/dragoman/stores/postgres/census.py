"""How much there is, counted by indexes and counters: tasks by some rows for each owner, agent and state."""

from __future__ import annotations

from typing import Final

from asyncpg import Connection

from dragoman.core.census import Census, Waiting
from dragoman.stores.postgres.database import NOW

TASKS: Final = "SELECT agent, state, sum(tasks)::bigint FROM totals GROUP BY agent, state HAVING sum(tasks) > 0"
WAITING: Final = "SELECT agent, count(*), min(updated) FROM tasks WHERE ready GROUP BY agent"
PUSHES: Final = """
SELECT count(*) FILTER (WHERE due <= $1), coalesce(min(due) FILTER (WHERE due <= $1), 0),
    coalesce(min(failing) FILTER (WHERE failing > 0), 0)
FROM pushes WHERE due > 0
"""
DEAD: Final = "SELECT count(*) FROM pushes WHERE state = 2"


async def census(connection: Connection, at: int | None) -> Census:
    """Counts. `at` is the time, unless it is the server's."""
    now = await connection.fetchval(f"SELECT {NOW.format('$1')}", at)
    due, since, failing = await connection.fetchrow(PUSHES, now)
    return Census(
        at=now,
        tasks={(agent, state): tasks for agent, state, tasks in await connection.fetch(TASKS)},
        waiting={agent: Waiting(tasks, since) for agent, tasks, since in await connection.fetch(WAITING)},
        pushes=due,
        pushes_since=since,
        failing_since=failing,
        dead=await connection.fetchval(DEAD),
    )
