"""What principals have, for admission: counted where it changes, in every batch, and read where somebody asks for more.

A counter is several rows, one for each slot, and each process adds to those of its own: so no two processes wait for
one row, and the sum is exact. Who is asked about is locked by name until the commit (`batch.py`), so that two processes
never both give away the last place.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Final

from asyncpg import Connection

from dragoman.core import states
from dragoman.core.admission import Standing, check, starts
from dragoman.core.log import Append, Head, StatusChange
from dragoman.core.pace import Pace
from dragoman.core.plan import Plan
from dragoman.core.quotas import Quota
from dragoman.stores.postgres.rows import Statement, insert, texts

SLOTS: Final = 32
MINUTE: Final = 60_000

ADD: Final = insert(
    "standings",
    "ttiii",
    "principal, agent, slot, live, queued",
    "ON CONFLICT (principal, agent, slot) DO UPDATE SET live = standings.live + excluded.live,"
    " queued = standings.queued + excluded.queued",
)
_READ: Final = """
SELECT principal, agent, sum(live)::bigint, sum(queued)::bigint FROM standings
WHERE principal = ANY ($1::text[]) GROUP BY principal, agent
"""
_UNREAD: Final = Statement(
    "SELECT m.owner, m.task, m.number, m.size, m.sender FROM {rows}"
    " JOIN messages m ON m.owner = r.owner AND m.task = r.task AND m.number > r.after WHERE m.size > 0",
    "iyi",
    "owner, task, after",
)
_FORGET: Final = """
DELETE FROM standings s WHERE s.principal = $1 AND NOT EXISTS (
    SELECT 1 FROM standings o WHERE o.principal = s.principal AND o.agent = s.agent
    HAVING sum(o.live) <> 0 OR sum(o.queued) <> 0)
"""

Place = tuple[int, bytes]
"""A task: its owner's number and its key."""

Unread = list[tuple[int, int, str]]
"""Messages that nobody has taken up: number, size, and who sent it."""


@dataclass(slots=True)
class Has:
    """Unfinished tasks by agent, and bytes that wait."""

    live: dict[str, int] = field(default_factory=dict)
    queued: int = 0


def weighs(change: Append, head: Head | None) -> int | None:
    """The number after which the messages of a task have to be known to count this change; None for none of them."""
    if head is None:
        return None
    if change.retry:
        return min(head.answered, head.taken)
    ends = any(isinstance(event, StatusChange) and event.state in states.TERMINAL for event in change.events)
    return head.taken if (ends or change.discard or change.taken > head.taken) and head.inbox > head.taken else None


class Tally:
    """The counters of one batch. `pace` is the process's own."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._has: dict[str, Has] = {}
        self._unread: dict[Place, Unread] = {}
        self._more: defaultdict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])

    async def know(self, connection: Connection, principals: Collection[str], tasks: dict[Place, int]) -> None:
        """Reads what these principals have, and the messages of these tasks after a number."""
        if principals:
            self._has = {principal: Has() for principal in principals}
            for principal, agent, live, queued in await connection.fetch(_READ, texts(principals)):
                self._has[principal].live[agent] = live
                self._has[principal].queued += queued
        for place in tasks:
            self._unread[place] = []
        for owner, task, number, size, sender in await _UNREAD.fetch(
            connection, [(*place, after) for place, after in sorted(tasks.items())]
        ):
            self._unread[owner, task].append((number, size, sender))

    def admit(self, quota: Quota, made: Plan, now: int) -> None:
        """Raises Overrun for a message that would take its sender over its quota."""
        agent, sender = made.head.agent, sender_of(made)
        has = self._has[sender]
        wait, every = 0.0, 0.0
        if quota.starts_per_minute:
            every = MINUTE / quota.starts_per_minute
            wait = self._pace.wait((sender, agent), now, every, quota.starts_per_minute)
        check(quota, Standing(sum(has.live.values()), has.live.get(agent, 0), has.queued, wait), made)
        if every and starts(made):
            self._pace.take((sender, agent), now, every)

    def note(self, place: Place, made: Plan) -> None:
        """Counts what a change does."""
        before, head = made.before, made.head
        over = head.state in states.TERMINAL or made.change.discard
        self._count(head.principal, head.agent, (not over) - (before is not None), 0)
        arrived = [(row.number, row.size, sender_of(made)) for row in made.messages if row.size]
        unread = self._unread.get(place)
        for number, size, sender in (unread or ()) if before else ():
            waits = before is not None and number > before.taken
            self._count(sender or head.ref.owner.principal, head.agent, 0, size * (self._waits(made, number) - waits))
        for number, size, sender in arrived:
            self._count(sender, head.agent, 0, size * self._waits(made, number))
        if arrived:
            # A task that is not looked at has others, too, of which nothing changes.
            self._unread.setdefault(place, []).extend(arrived)

    def rows(self, slot: int) -> list[tuple[object, ...]]:
        """What is to be added."""
        more = sorted((who, what) for who, what in self._more.items() if any(what))
        self._more.clear()
        return [(*who, slot, *what) for who, what in more]

    def _waits(self, made: Plan, number: int) -> bool:
        head = made.head
        return head.state not in states.TERMINAL and not made.change.discard and number > head.taken

    def _count(self, principal: str, agent: str, live: int, queued: int) -> None:
        if not (live or queued):
            return
        more = self._more[principal, agent]
        more[0] += live
        more[1] += queued
        if has := self._has.get(principal):
            has.live[agent] = has.live.get(agent, 0) + live
            has.queued += queued


async def left(connection: Connection, slot: int, tasks: Sequence[tuple[Place, Head]]) -> None:
    """Counts tasks that are erased, while their messages are still there."""
    more: defaultdict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    live = {place: head for place, head in tasks if head.state not in states.TERMINAL}
    for head in live.values():
        more[head.principal, head.agent][0] -= 1
    for owner, task, _, size, sender in await _UNREAD.fetch(
        connection, [(*place, head.taken) for place, head in sorted(live.items(), key=lambda one: one[0])]
    ):
        head = live[owner, task]
        more[sender or head.ref.owner.principal, head.agent][1] -= size
    await ADD.run(connection, [(*who, slot, *what) for who, what in sorted(more.items()) if any(what)])


async def forget(connection: Connection, principal: str) -> None:
    """Takes a principal's name away, where nothing is counted for it any more."""
    await connection.execute(_FORGET, principal)


def sender_of(made: Plan) -> str:
    """The principal that sent the message of a change."""
    assert made.change.message is not None
    return made.change.message.sender or made.head.ref.owner.principal
