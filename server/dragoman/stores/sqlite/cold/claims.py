"""Sessions, and the queue of waiting tasks."""

from __future__ import annotations

import heapq
import sqlite3
from collections.abc import Collection, Iterable, Iterator
from itertools import groupby
from typing import Any, Final

from dragoman.core.names import Owner
from dragoman.core.task.log import TaskRecord, TaskRef
from dragoman.stores.shared.rows import TABLE_RECORD_COLUMNS, record_from_row


def begin_session(connection: sqlite3.Connection, now: int, lease: float, exclusive: bool) -> int:
    """Opens a session. `exclusive` ends all others. Sessions expire by the store's clock."""
    if exclusive:
        connection.execute("UPDATE sessions SET expires = 0 WHERE expires > 0")
    cursor = connection.execute("INSERT INTO sessions (started, expires) VALUES (?, ?)", (now, _expiry(now, lease)))
    assert cursor.lastrowid is not None
    return cursor.lastrowid


def renew_session(connection: sqlite3.Connection, session: int, now: int, lease: float) -> int:
    """Extends a session. An expired one becomes valid again, but not the claims that others took from it.

    Returns how many milliseconds it had left.
    """
    row = connection.execute("SELECT expires FROM sessions WHERE session = ?", (session,)).fetchone()
    expiry = _expiry(now, lease)
    # Later expiries are from before the clock was set back: their sessions get one lease to renew, too.
    connection.execute("UPDATE sessions SET expires = ?1 WHERE session = ?2 OR expires > ?1", (expiry, session))
    return int(row[0]) - now if row else 0


def live_sessions(connection: sqlite3.Connection, now: int) -> dict[int, int]:
    """The sessions that have not expired, with their expiry in milliseconds."""
    return dict(connection.execute("SELECT session, expires FROM sessions WHERE expires > ?", (now,)).fetchall())


TIMERS: Final = (
    ("sessions", "expires"), ("tasks", "wake_at"), ("steps", "wake_at"), ("pushes", "due_at"),
    ("pushes", "failing_since"), ("cancel_requests", "requested"),
)  # fmt: skip
"""Columns with the time at which something is due, or began to fail; 0 for none."""


def move_timers(connection: sqlite3.Connection, step: int) -> None:
    """Moves all that is due by so many milliseconds, because the store's clock does. Timestamps stay."""
    for table, column in TIMERS if step else ():
        connection.execute(f"UPDATE {table} SET {column} = {column} + ? WHERE {column} > 0", (step,))


def _expiry(now: int, lease: float) -> int:
    return now + round(lease * 1000)


_SELECT_PAIR: Final = "SELECT principal, agent FROM tasks INDEXED BY tasks_ready WHERE ready"
_NEXT_PRINCIPAL: Final = f"{_SELECT_PAIR} AND principal > ? ORDER BY principal, agent LIMIT 1"
_FIRST_PRINCIPAL: Final = f"{_SELECT_PAIR} ORDER BY principal, agent LIMIT 1"
_NEXT_AGENT: Final = f"{_SELECT_PAIR} AND principal = ? AND agent > ? ORDER BY principal, agent LIMIT 1"
"""With `(principal, agent) > (?, ?)` instead, SQLite would walk through all rows of the first pair."""
_OLDEST_TASKS: Final = f"""
SELECT t.created, t.task, o.scope, o.principal, {TABLE_RECORD_COLUMNS}
FROM tasks t INDEXED BY tasks_ready CROSS JOIN owners o USING (owner)
WHERE t.ready AND t.principal = ? AND t.agent = ? ORDER BY t.created LIMIT ?
"""


def ready_tasks(
    connection: sqlite3.Connection, agents: Collection[str], limit: int, after: str = ""
) -> list[TaskRecord]:
    found: list[TaskRecord] = []
    queues: Iterable[Iterator[TaskRecord]] = _tasks_by_principal(connection, frozenset(agents), limit, after)
    while queues and len(found) < limit:
        remaining = []
        for queue in queues:
            if record := next(queue, None):
                found.append(record)
                remaining.append(queue)
            if len(found) >= limit:
                break
        queues = remaining
    return found


def _tasks_by_principal(
    connection: sqlite3.Connection, agents: frozenset[str], limit: int, after: str
) -> Iterator[Iterator[TaskRecord]]:
    """The tasks of each principal that has any, starting after `after`, which comes last."""
    for principal, pairs in groupby(_principal_agent_pairs(connection, after), key=lambda pair: pair[0]):
        served = [agent for _, agent in pairs if agent in agents]
        ages = [connection.execute(_OLDEST_TASKS, (principal, agent, limit)) for agent in served]
        rows = heapq.merge(*ages, key=lambda row: row[:2])
        yield (record_from_row(TaskRef(Owner(scope, name), key), columns) for _, key, scope, name, *columns in rows)


def _principal_agent_pairs(connection: sqlite3.Connection, after: str) -> Iterator[tuple[str, str]]:
    pair = connection.execute(_NEXT_PRINCIPAL, (after,)).fetchone()
    while pair is not None:
        yield pair
        pair = _next_pair(connection, pair)
    pair = connection.execute(_FIRST_PRINCIPAL).fetchone()
    while pair is not None and pair[0] <= after:
        yield pair
        pair = _next_pair(connection, pair)


def _next_pair(connection: sqlite3.Connection, pair: tuple[str, str]) -> Any:
    following = (
        connection.execute(_NEXT_AGENT, pair).fetchone() or connection.execute(_NEXT_PRINCIPAL, pair[:1]).fetchone()
    )
    return following if following and following > pair else None  # damaged text reads as a smaller one
