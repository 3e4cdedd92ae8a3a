"""Counts the tasks of searches (`search`) by state, in the same ranges of indexes and with the same bounds."""

from __future__ import annotations

import sqlite3
from collections import Counter

from dragoman.core.task.cursors import MAX_TOTAL, StateCount, TaskSearch, state_counts
from dragoman.core.task.states import STORED_STATES
from dragoman.stores.sqlite.maintenance.search import SqliteRangeReader, ranges_of


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
