"""What principals have, for admission: counted in memory for those who are asked about, and read when they first are.

No append pays for it that nobody counts. What is in memory is bounded, and forgotten whenever a batch is undone; the
tables always say the same, so it is only read again.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, TypeVar

from dragoman.core import states
from dragoman.core.admission import Standing, check, starts
from dragoman.core.isolation import EVERYONE
from dragoman.core.log import Head
from dragoman.core.pace import Pace
from dragoman.core.plan import Plan
from dragoman.core.quotas import Quota

KEPT: Final = 4096
"""Principals, and tasks with unread messages, that are remembered."""

MINUTE: Final = 60_000

_LIVE: Final = ", ".join(map(str, sorted(states.STORED - states.TERMINAL)))

OWN: Final = """
SELECT o.owner, EXISTS (SELECT 1 FROM participants p WHERE p.host = o.owner) FROM owners o WHERE o.principal = ?
"""
"""The owners that are a principal in some scope, and whether others make tasks there, too."""
SHARED: Final = """
SELECT owner FROM owners WHERE principal = ?
UNION SELECT p.host FROM owners o JOIN participants p USING (owner) WHERE o.principal = ?
"""
"""Owners under which a principal may have tasks among those of others."""
TOTALS: Final = f"SELECT agent, state, tasks FROM totals WHERE owner = ? AND tasks > 0 AND state IN ({_LIVE})"
AMONG: Final = """
SELECT count(*) FROM tasks
WHERE visible AND owner = ? AND agent = ? AND state = ? AND principal = ?
"""
UNSEEN: Final = """
SELECT agent FROM tasks INDEXED BY tasks_claimed WHERE session > 0 AND NOT visible AND principal = ?1
UNION ALL SELECT agent FROM tasks INDEXED BY tasks_waiting WHERE ready AND NOT visible AND principal = ?1
"""
WAITING: Final = """
SELECT owner, task FROM tasks INDEXED BY tasks_waiting WHERE ready AND (?1 = '' OR principal = ?1)
UNION ALL SELECT owner, task FROM tasks INDEXED BY tasks_claimed WHERE session > 0 AND (?1 = '' OR principal = ?1)
"""
QUEUED: Final = """
SELECT coalesce(sum(m.size), 0) FROM tasks t JOIN messages m USING (owner, task) JOIN owners o USING (owner)
WHERE t.owner = ? AND t.task = ? AND m.number > t.taken AND m.size > 0 AND iif(m.sender = '', o.principal, m.sender) = ?
"""
SIZES: Final = """
SELECT number, size, sender FROM messages WHERE owner = ? AND task = ? AND number > ? AND number <= ? AND size > 0
"""

Tables = Callable[[], sqlite3.Connection]
"""Gives the connection, with everything written that there is to read: asked for only when something is read."""

Unread = list[tuple[int, int, str]]
"""Messages that nobody has taken up: number, size, and who sent it."""

K = TypeVar("K")
V = TypeVar("V")


@dataclass(slots=True)
class Has:
    """Unfinished tasks by agent, and bytes that wait."""

    live: dict[str, int] = field(default_factory=dict)
    queued: int = 0


class Counters:
    """The counters of one store, for its writing connection."""

    def __init__(self) -> None:
        self._known: dict[str, Has] = {}
        self._unread: dict[bytes, Unread] = {}
        self._pace = Pace()

    def admit(self, tables: Tables, quota: Quota, made: Plan, now: int) -> None:
        """Raises Overrun for a message that would take its sender over its quota."""
        agent, sender = made.head.agent, sender_of(made)
        has = self._known.get(sender)
        if has is None:
            has = read(tables(), sender)
            _keep(self._known, sender, has)
        wait, every = 0.0, 0.0
        if quota.starts_per_minute:
            every = MINUTE / quota.starts_per_minute
            wait = self._pace.wait((sender, agent), now, every, quota.starts_per_minute)
        check(quota, Standing(sum(has.live.values()), has.live.get(agent, 0), has.queued, wait), made)
        if every and starts(made):
            self._pace.take((sender, agent), now, every)

    def note(self, tables: Tables, owner: int, made: Plan) -> None:
        """Counts what a change did, once its rows are there to be read; or, if it takes its task away, before that."""
        if not self._known:
            return
        before, head = made.before, made.head
        if made.change.message is not None:
            self._arrived(made)
        if before is None:
            self._count(head.principal, head.agent, 1)
        elif head.state in states.TERMINAL or made.change.discard:
            self._count(head.principal, head.agent, -1)
            self._taken(tables, owner, head, before.taken, head.inbox)
        elif head.taken > before.taken:
            self._taken(tables, owner, head, before.taken, head.taken)
        elif head.taken < before.taken:  # given back, to be taken up again
            self._unread.pop(head.ref.key, None)
            self._queue(_sizes(tables(), owner, head, head.taken, before.taken), 1)

    def left(self, connection: sqlite3.Connection, owner: int, head: Head) -> None:
        """Counts a task that is erased, while its messages are still there."""
        if self._known and head.state not in states.TERMINAL:
            self._count(head.principal, head.agent, -1)
            self._taken(lambda: connection, owner, head, head.taken, head.inbox)

    def forget(self) -> None:
        """For a batch that was undone: everything is read again."""
        self._known.clear()
        self._unread.clear()

    def _count(self, principal: str, agent: str, more: int) -> None:
        if has := self._known.get(principal):
            live = has.live.get(agent, 0) + more
            if live > 0:
                has.live[agent] = live
            else:
                has.live.pop(agent, None)

    def _queue(self, messages: Unread, sign: int) -> None:
        for _, size, sender in messages:
            if has := self._known.get(sender):
                has.queued = max(has.queued + sign * size, 0)

    def _arrived(self, made: Plan) -> None:
        before, head = made.before, made.head
        new = [(row.number, row.size, sender_of(made)) for row in made.messages if row.size]
        self._queue(new, 1)
        unread = self._unread.get(head.ref.key)
        if unread is not None:
            unread.extend(new)
        elif before is None or before.inbox <= before.taken:
            _keep(self._unread, head.ref.key, new)
        # else there are others whose sizes are not remembered: then all are read

    def _taken(self, tables: Tables, owner: int, head: Head, after: int, upto: int) -> None:
        """The messages after one number, up to another, wait no more."""
        unread = self._unread.pop(head.ref.key, None)
        if unread is None:
            unread = _sizes(tables(), owner, head, after, head.inbox) if head.inbox > after else []
        self._queue([one for one in unread if one[0] <= upto], -1)
        if left := [one for one in unread if one[0] > upto]:
            _keep(self._unread, head.ref.key, left)


def sender_of(made: Plan) -> str:
    """The principal that sent the message of a change."""
    assert made.change.message is not None
    return made.change.message.sender or made.head.ref.owner.principal


def read(connection: sqlite3.Connection, principal: str) -> Has:
    """What a principal has, from the tables. Its own tasks are counted already, those among others' are looked for."""
    has = Has()
    own = connection.execute(OWN, (principal,)).fetchall()
    among = [number for (number,) in connection.execute(SHARED, (EVERYONE, principal))]
    for number, mixed in [*own, *((number, True) for number in among)]:
        for agent, state, tasks in connection.execute(TOTALS, (number,)).fetchall():
            if mixed:
                (tasks,) = connection.execute(AMONG, (number, agent, state, principal)).fetchone()
            has.live[agent] = has.live.get(agent, 0) + tasks
    for (agent,) in connection.execute(UNSEEN, (principal,)):
        has.live[agent] = has.live.get(agent, 0) + 1
    # Others' tasks may hold messages of this principal only where there are tasks among others'.
    everybody = among or any(mixed for _, mixed in own)
    for owner, task in _waiting(connection, "" if everybody else principal):
        has.queued += connection.execute(QUEUED, (owner, task, principal)).fetchone()[0]
    return has


def _waiting(connection: sqlite3.Connection, principal: str) -> Iterator[tuple[int, bytes]]:
    yield from connection.execute(WAITING, (principal,)).fetchall()


def _sizes(connection: sqlite3.Connection, owner: int, head: Head, after: int, last: int) -> Unread:
    rows = connection.execute(SIZES, (owner, head.ref.key, after, last))
    return [(number, size, sender or head.ref.owner.principal) for number, size, sender in rows]


def _keep(memory: dict[K, V], key: K, value: V) -> None:
    """Remembers one more, and forgets the first when there are too many."""
    memory[key] = value
    if len(memory) > KEPT:
        del memory[next(iter(memory))]
