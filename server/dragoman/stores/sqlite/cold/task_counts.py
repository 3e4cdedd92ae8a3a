"""Counts the tasks of searches (`search`) by state, in the same ranges of indexes and with the same bounds."""

from __future__ import annotations

import sqlite3
from collections import Counter
from dataclasses import replace

from dragoman.core.task.cursors import MAX_TOTAL, OpenTasks, StateCount, TaskSearch, open_task_counts, state_counts
from dragoman.core.task.states import OPEN, STORED_STATES
from dragoman.stores.sqlite.cold.search import SqliteRangeReader, ranges_of


def count_states(connection: sqlite3.Connection, query: TaskSearch) -> list[StateCount]:
    """The number of tasks in each state that match a search, whatever its states are."""
    query = query.for_counts
    reader = SqliteRangeReader(connection, query, ranges_of(connection, query))
    counts, unread = Counter[int](), set[int]()
    for one in reader.ranges:
        limit = MAX_TOTAL + 1 - counts[one.state] if one.state else query.searched_rows
        if limit <= 0:
            continue
        low = reader.low(one, None, reader.rows_per_range // one.cost)
        where, values = reader.where(one, None, low)
        rows = f"SELECT t.state FROM tasks t {one.index} WHERE {where} ORDER BY {reader.order} LIMIT ?"
        found = dict(connection.execute(f"SELECT state, count(*) FROM ({rows}) GROUP BY state", (*values, limit)))
        counts.update(found)
        if low is not None or sum(found.values()) == limit:
            unread.update((one.state,) if one.state else STORED_STATES)
    return state_counts(counts, unread)


def open_tasks(connection: sqlite3.Connection, query: TaskSearch) -> list[OpenTasks]:
    """The unfinished tasks in the scopes and of the agents of a search, by agent and state."""
    query = replace(query, states=OPEN)
    reader = SqliteRangeReader(connection, query, ranges_of(connection, query))
    found = []
    for one in reader.ranges:
        low = reader.low(one, None, reader.rows_per_range // one.cost)
        where, values = reader.where(one, None, low)
        oldest_first = f"SELECT t.updated FROM tasks t {one.index} WHERE {where} ORDER BY t.updated, t.owner, t.task"
        sql = f"SELECT count(*), min(updated) FROM ({oldest_first} LIMIT ?)"
        count, oldest = connection.execute(sql, (*values, MAX_TOTAL + 1)).fetchone()
        if count or low is not None:
            found.append(OpenTasks(one.agent, one.state, count, low is None, oldest or 0))
    return open_task_counts(found)
