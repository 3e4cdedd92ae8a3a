"""Quota counters of principals, for admission: loaded on first use, and cached in memory.

Appends of principals without a quota cost nothing. The cache is bounded, and cleared whenever a batch is rolled back;
the tables always have the same figures, so they are only read again.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, TypeVar

from dragoman.core.access.identity import SHARED_PRINCIPAL
from dragoman.core.limits.admission import PrincipalLoad, TokenBuckets, check_quota, starts_turn
from dragoman.core.limits.quotas import Quota
from dragoman.core.task import states
from dragoman.core.task.log import TaskRecord
from dragoman.core.task.plan import Plan

MAX_CACHED_PRINCIPALS: Final = 4096
"""Principals, and tasks with unread messages, that are cached."""

MINUTE_MS: Final = 60_000

_LIVE_STATES: Final = ", ".join(map(str, sorted(states.STORED_STATES - states.TERMINAL)))

_OWNERS: Final = "SELECT owner FROM owners WHERE principal = ?"
_SELECT_TOTALS: Final = (
    f"SELECT agent, state, tasks FROM totals WHERE owner = ? AND tasks > 0 AND state IN ({_LIVE_STATES})"
)
_COUNT_IN_SHARED: Final = """
SELECT count(*) FROM tasks
WHERE visible AND owner = ? AND agent = ? AND state = ? AND principal = ?
"""
_HIDDEN_TASKS: Final = """
SELECT agent FROM tasks INDEXED BY tasks_claimed WHERE session > 0 AND NOT visible AND principal = ?1
UNION ALL SELECT agent FROM tasks INDEXED BY tasks_ready WHERE ready AND NOT visible AND principal = ?1
"""
_UNFINISHED_TASKS: Final = """
SELECT owner, task FROM tasks INDEXED BY tasks_ready WHERE ready AND (?1 = '' OR principal = ?1)
UNION ALL SELECT owner, task FROM tasks INDEXED BY tasks_claimed WHERE session > 0 AND (?1 = '' OR principal = ?1)
"""
_SUM_QUEUED_BYTES: Final = """
SELECT coalesce(sum(m.size), 0) FROM tasks t JOIN messages m USING (owner, task) JOIN owners o USING (owner)
WHERE t.owner = ? AND t.task = ? AND m.number > t.last_delivered AND m.size > 0
    AND iif(m.sender = '', o.principal, m.sender) = ?
"""
_SELECT_MESSAGE_SIZES: Final = """
SELECT number, size, sender FROM messages WHERE owner = ? AND task = ? AND number > ? AND number <= ? AND size > 0
"""

FlushedConnection = Callable[[], sqlite3.Connection]
"""Returns the connection after pending rows were written: called only when rows have to be read."""

UnreadMessages = list[tuple[int, int, str]]
"""Messages that no turn has received: number, size, and sender."""

K = TypeVar("K")
V = TypeVar("V")


@dataclass(slots=True)
class SqlitePrincipalLoad:
    """Unfinished tasks by agent, and bytes of undelivered messages."""

    live_tasks: dict[str, int] = field(default_factory=dict)
    queued_bytes: int = 0


class SqliteQuotaCounters:
    """The counters of one store, for its writing connection."""

    def __init__(self) -> None:
        self.loads: dict[str, SqlitePrincipalLoad] = {}
        """Quota counters of principals, as far as they are cached."""
        self.unread: dict[bytes, UnreadMessages] = {}
        """Undelivered messages by task, as far as they are cached."""
        self._token_buckets = TokenBuckets()

    def admit(self, flushed_connection: FlushedConnection, quota: Quota, plan: Plan, now: int) -> None:
        """Raises QuotaExceeded for a message that would exceed its sender's quota."""
        agent, sender = plan.record.agent, sender_of(plan)
        load = self.loads.get(sender)
        if load is None:
            load = read_load(flushed_connection(), sender)
            _remember(self.loads, sender, load)
        wait, every = 0.0, 0.0
        if quota.starts_per_minute:
            every = MINUTE_MS / quota.starts_per_minute
            wait = self._token_buckets.delay((sender, agent), now, every, quota.starts_per_minute)
        check_quota(
            quota,
            PrincipalLoad(sum(load.live_tasks.values()), load.live_tasks.get(agent, 0), load.queued_bytes, wait),
            plan,
        )
        if every and starts_turn(plan):
            self._token_buckets.take((sender, agent), now, every)

    def record(self, flushed_connection: FlushedConnection, owner: int, plan: Plan) -> None:
        """Counts a change, after its rows are written; or, if it discards its task, before that."""
        if not self.loads:
            return
        before, record = plan.before, plan.record
        if plan.change.message is not None:
            self._add_messages(plan)
        if before is None:
            self._count(record.principal, record.agent, 1)
        elif record.state in states.TERMINAL or plan.change.discard:
            self._count(record.principal, record.agent, -1)
            self._remove_messages(flushed_connection, owner, record, before.last_delivered, record.last_received)
        elif record.last_delivered > before.last_delivered:
            self._remove_messages(flushed_connection, owner, record, before.last_delivered, record.last_delivered)
        elif record.last_delivered < before.last_delivered:  # returned, to be delivered again
            self.unread.pop(record.ref.key, None)
            self._queue(
                _message_sizes(flushed_connection(), owner, record, record.last_delivered, before.last_delivered), 1
            )

    def record_erasure(self, connection: sqlite3.Connection, owner: int, record: TaskRecord) -> None:
        """Counts a task that is erased, while its messages still exist."""
        if self.loads and record.state not in states.TERMINAL:
            self._count(record.principal, record.agent, -1)
            self._remove_messages(lambda: connection, owner, record, record.last_delivered, record.last_received)

    def clear(self) -> None:
        """For a batch that was rolled back: everything is read again."""
        self.loads.clear()
        self.unread.clear()

    def _count(self, principal: str, agent: str, delta: int) -> None:
        if load := self.loads.get(principal):
            live = load.live_tasks.get(agent, 0) + delta
            if live > 0:
                load.live_tasks[agent] = live
            else:
                load.live_tasks.pop(agent, None)

    def _queue(self, messages: UnreadMessages, sign: int) -> None:
        for _, size, sender in messages:
            if load := self.loads.get(sender):
                load.queued_bytes = max(load.queued_bytes + sign * size, 0)

    def _add_messages(self, plan: Plan) -> None:
        before, record = plan.before, plan.record
        new = [(row.number, row.size, sender_of(plan)) for row in plan.messages if row.size]
        self._queue(new, 1)
        unread = self.unread.get(record.ref.key)
        if unread is not None:
            unread.extend(new)
        elif before is None or before.last_received <= before.last_delivered:
            _remember(self.unread, record.ref.key, new)
        # Otherwise there are messages whose sizes are not cached: all are read when needed.

    def _remove_messages(
        self, flushed_connection: FlushedConnection, owner: int, record: TaskRecord, after: int, upto: int
    ) -> None:
        """Subtracts the messages after one number, up to another: they are delivered."""
        unread = self.unread.pop(record.ref.key, None)
        if unread is None:
            unread = (
                _message_sizes(flushed_connection(), owner, record, after, record.last_received)
                if record.last_received > after
                else []
            )
        self._queue([message for message in unread if message[0] <= upto], -1)
        if remaining := [message for message in unread if message[0] > upto]:
            _remember(self.unread, record.ref.key, remaining)


def sender_of(plan: Plan) -> str:
    """The principal that sent the message of a change."""
    assert plan.change.message is not None
    return plan.change.message.sender or plan.record.ref.owner.principal


def read_load(connection: sqlite3.Connection, principal: str) -> SqlitePrincipalLoad:
    """Reads what a principal uses. Totals count its own tasks; its tasks among those of its scope are searched."""
    load = SqlitePrincipalLoad()
    own = connection.execute(_OWNERS, (principal,)).fetchall()
    shared = connection.execute(_OWNERS, (SHARED_PRINCIPAL,)).fetchall()
    for (number,) in own + shared:
        for agent, state, tasks in connection.execute(_SELECT_TOTALS, (number,)).fetchall():
            if (number,) in shared:
                (tasks,) = connection.execute(_COUNT_IN_SHARED, (number, agent, state, principal)).fetchone()
            load.live_tasks[agent] = load.live_tasks.get(agent, 0) + tasks
    for (agent,) in connection.execute(_HIDDEN_TASKS, (principal,)):
        load.live_tasks[agent] = load.live_tasks.get(agent, 0) + 1
    # Tasks of others can have messages of this principal only where tasks are shared.
    for owner, task in _unfinished_tasks(connection, "" if shared else principal):
        load.queued_bytes += connection.execute(_SUM_QUEUED_BYTES, (owner, task, principal)).fetchone()[0]
    return load


def _unfinished_tasks(connection: sqlite3.Connection, principal: str) -> Iterator[tuple[int, bytes]]:
    yield from connection.execute(_UNFINISHED_TASKS, (principal,)).fetchall()


def _message_sizes(
    connection: sqlite3.Connection, owner: int, record: TaskRecord, after: int, last: int
) -> UnreadMessages:
    rows = connection.execute(_SELECT_MESSAGE_SIZES, (owner, record.ref.key, after, last))
    return [(number, size, sender or record.ref.owner.principal) for number, size, sender in rows]


def _remember(cache: dict[K, V], key: K, value: V) -> None:
    """Caches a value, and drops the oldest when there are too many."""
    cache[key] = value
    if len(cache) > MAX_CACHED_PRINCIPALS:
        del cache[next(iter(cache))]
