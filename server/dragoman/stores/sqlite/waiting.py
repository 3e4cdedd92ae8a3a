"""Who is next: tasks that wait for a worker, one of each principal in turn, each principal's own oldest first.

An index holds the waiting tasks by principal, agent and age. A look begins behind the principal that was served last
and goes from one to the next by jumps, so it costs what it gives, however many tasks anybody has waiting.
"""

from __future__ import annotations

import heapq
import sqlite3
from collections.abc import Collection, Iterator
from itertools import groupby
from typing import Any, Final

from dragoman.core.log import Head, TaskRef
from dragoman.core.names import Owner
from dragoman.stores.sqlite.apply import HEAD_COLUMNS, head_of

_COLUMNS: Final = ", ".join(f"t.{column.strip()}" for column in HEAD_COLUMNS.split(","))

_PAIR: Final = "SELECT principal, agent FROM tasks INDEXED BY tasks_waiting WHERE ready"
BEHIND: Final = f"{_PAIR} AND principal > ? ORDER BY principal, agent LIMIT 1"
FIRST: Final = f"{_PAIR} ORDER BY principal, agent LIMIT 1"
SAME: Final = f"{_PAIR} AND principal = ? AND agent > ? ORDER BY principal, agent LIMIT 1"
"""With `(principal, agent) > (?, ?)` in its place SQLite would walk through all of the first pair."""
OLDEST: Final = f"""
SELECT t.created, t.task, o.scope, o.principal, {_COLUMNS}
FROM tasks t INDEXED BY tasks_waiting CROSS JOIN owners o USING (owner)
WHERE t.ready AND t.principal = ? AND t.agent = ? ORDER BY t.created LIMIT ?
"""


def waiting(connection: sqlite3.Connection, agents: Collection[str], limit: int, after: str) -> list[Head]:
    """Up to `limit` tasks of these agents, in the order in which they are to be taken."""
    found: list[Head] = []
    lines: list[Iterator[Head]] = []
    for line in _lines(connection, frozenset(agents), limit, after):
        if len(found) >= limit:
            break
        if head := next(line, None):
            found.append(head)
            lines.append(line)
    while lines and len(found) < limit:
        still = []
        for line in lines[: limit - len(found)]:
            if head := next(line, None):
                found.append(head)
                still.append(line)
        lines = still
    return found


def _lines(connection: sqlite3.Connection, agents: frozenset[str], limit: int, after: str) -> Iterator[Iterator[Head]]:
    """The tasks of each principal that has any, beginning behind `after`, which comes last."""
    for principal, pairs in groupby(_pairs(connection, after), key=lambda pair: pair[0]):
        served = [agent for _, agent in pairs if agent in agents]
        ages = [connection.execute(OLDEST, (principal, agent, limit)) for agent in served]
        yield map(_head, heapq.merge(*ages, key=lambda row: row[:2]))


def _pairs(connection: sqlite3.Connection, after: str) -> Iterator[tuple[str, str]]:
    pair = connection.execute(BEHIND, (after,)).fetchone()
    while pair is not None:
        yield pair
        pair = _next(connection, pair)
    pair = connection.execute(FIRST).fetchone()
    while pair is not None and pair[0] <= after:
        yield pair
        pair = _next(connection, pair)


def _next(connection: sqlite3.Connection, pair: tuple[str, str]) -> Any:
    same = connection.execute(SAME, pair).fetchone()
    return same or connection.execute(BEHIND, pair[:1]).fetchone()


def _head(row: tuple[Any, ...]) -> Head:
    return head_of(TaskRef(Owner(row[2], row[3]), row[1]), row[4:])
