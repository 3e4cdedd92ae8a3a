"""Counts the tasks of searches (`search`) by state, in the same ranges of indexes and with the same bounds."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Final

from asyncpg import Connection

from dragoman.core.task.cursors import MAX_TOTAL, OpenTasks, StateCount, TaskSearch, open_task_counts, state_counts
from dragoman.core.task.states import OPEN, STORED_STATES
from dragoman.extensions.postgres.maintenance.search import (
    LOWEST,
    RANGES,
    PostgresRangeReader,
    StatementArguments,
    range_columns,
    ranges_of,
)

_COUNT_BY_STATE: Final = f"""
SELECT s.state, (
    SELECT count(*) FROM (
        SELECT 1 FROM {RANGES} CROSS JOIN LATERAL (SELECT 1 FROM tasks t WHERE {{where}} LIMIT {{limit}}) x
        WHERE r.state = s.state LIMIT {{limit}}
    ) y
) FROM unnest({{states}}) s(state)
"""
_COUNT_ROWS: Final = f"""
SELECT state, count(*) FROM (
    SELECT x.state FROM {RANGES} CROSS JOIN LATERAL (SELECT t.state FROM tasks t WHERE {{where}} LIMIT {{limit}}) x
    LIMIT {{limit}}
) y GROUP BY state
"""
_OPEN_TASKS: Final = f"""
SELECT r.agent, r.state, count(x.updated), coalesce(min(x.updated), 0), bool_and(r.low_updated = 0)
FROM {RANGES} LEFT JOIN LATERAL (
    SELECT t.updated FROM tasks t WHERE {{where}} ORDER BY t.updated, t.owner, t.task LIMIT {{limit}}
) x ON true GROUP BY r.agent, r.state HAVING count(x.updated) > 0 OR NOT bool_and(r.low_updated = 0)
"""


async def count_states(connection: Connection, query: TaskSearch) -> list[StateCount]:
    """The number of tasks in each state that match a search, whatever its states are."""
    query = query.for_counts
    ranges, is_exact = await ranges_of(connection, query)
    reader = PostgresRangeReader(connection, query, [one for one in ranges if one.rows], is_exact)
    counts, unread = Counter[int](), set[int]()
    for group in reader.groups:
        lows = await reader.lows(group, None, reader.rows_per_range)
        states = [state for _, _, state in group.rows]
        limit = MAX_TOTAL + 1 if states[0] else query.searched_rows
        arguments = StatementArguments()
        sql = (_COUNT_BY_STATE if states[0] else _COUNT_ROWS).format(
            where=reader.where(group, None, arguments),
            limit=arguments.mark(limit, "bigint"),
            states=arguments.mark(sorted(set(states)), "int[]") if states[0] else "",
        )
        found = await connection.fetch(sql, *range_columns(group.rows, lows), *arguments.values)
        counts.update(dict(map(tuple, found)))
        for state, low in zip(states, lows, strict=True):
            if low != LOWEST or (not state and sum(count for _, count in found) == limit):
                unread.update((state,) if state else STORED_STATES)
    return state_counts(counts, unread)


async def open_tasks(connection: Connection, query: TaskSearch) -> list[OpenTasks]:
    """The unfinished tasks in the scopes and of the agents of a search, by agent and state."""
    query = replace(query, states=OPEN)
    ranges, is_exact = await ranges_of(connection, query)
    reader = PostgresRangeReader(connection, query, [one for one in ranges if one.rows], is_exact)
    found = []
    for group in reader.groups:
        lows = await reader.lows(group, None, reader.rows_per_range)
        arguments = StatementArguments()
        sql = _OPEN_TASKS.format(
            where=reader.where(group, None, arguments), limit=arguments.mark(MAX_TOTAL + 1, "bigint")
        )
        for agent, state, count, oldest, is_read in await connection.fetch(
            sql, *range_columns(group.rows, lows), *arguments.values
        ):
            found.append(OpenTasks(agent, state, count, is_read, oldest))
    return open_task_counts(found)
