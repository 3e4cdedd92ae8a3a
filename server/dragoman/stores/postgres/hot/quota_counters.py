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

from dragoman.core.limits.admission import PrincipalLoad, TokenBuckets, check_quota, starts_turn
from dragoman.core.limits.quotas import Quota
from dragoman.core.task import states
from dragoman.core.task.log import Append, StatusChange, TaskRecord
from dragoman.core.task.plan import Plan
from dragoman.stores.postgres.rows import PostgresBulkStatement, insert_statement, text_array

COUNTER_SLOTS: Final = 32
MINUTE_MS: Final = 60_000

ADD_TO_COUNTERS: Final = insert_statement(
    "standings",
    "ttiii",
    "principal, agent, slot, live, queued",
    "ON CONFLICT (principal, agent, slot) DO UPDATE SET live = standings.live + excluded.live,"
    " queued = standings.queued + excluded.queued",
)
_SELECT_COUNTERS: Final = """
SELECT principal, agent, sum(live)::bigint, sum(queued)::bigint FROM standings
WHERE principal = ANY ($1::text[]) GROUP BY principal, agent
"""
_SELECT_UNREAD_MESSAGES: Final = PostgresBulkStatement(
    "SELECT m.owner, m.task, m.number, m.size, m.sender FROM {rows}"
    " JOIN messages m ON m.owner = r.owner AND m.task = r.task AND m.number > r.after WHERE m.size > 0",
    "iyi",
    "owner, task, after",
)
_DELETE_EMPTY_COUNTERS: Final = """
DELETE FROM standings s WHERE s.principal = $1 AND NOT EXISTS (
    SELECT 1 FROM standings o WHERE o.principal = s.principal AND o.agent = s.agent
    HAVING sum(o.live) <> 0 OR sum(o.queued) <> 0)
"""

TaskRowKey = tuple[int, bytes]
"""A task: its owner's number and its key."""

UnreadMessages = list[tuple[int, int, str]]
"""Messages that nobody has taken up: number, size, and who sent it."""


@dataclass(slots=True)
class PostgresPrincipalLoad:
    """Unfinished tasks by agent, and bytes that wait."""

    live_tasks: dict[str, int] = field(default_factory=dict)
    queued_bytes: int = 0


def unread_after(change: Append, record: TaskRecord | None) -> int | None:
    """The number after which the messages of a task have to be known to count this change; None for none of them."""
    if record is None:
        return None
    if change.retry:
        return min(record.last_completed, record.last_delivered)
    ends = any(isinstance(event, StatusChange) and event.state in states.TERMINAL for event in change.events)
    return (
        record.last_delivered
        if (ends or change.discard or change.last_delivered > record.last_delivered)
        and record.last_received > record.last_delivered
        else None
    )


class PostgresQuotaCounters:
    """The counters of one batch. `pace` is the process's own."""

    def __init__(self, token_buckets: TokenBuckets) -> None:
        self._token_buckets = token_buckets
        self._loads: dict[str, PostgresPrincipalLoad] = {}
        self._unread: dict[TaskRowKey, UnreadMessages] = {}
        self._deltas: defaultdict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])

    async def load(self, connection: Connection, principals: Collection[str], tasks: dict[TaskRowKey, int]) -> None:
        """Reads what these principals have, and the messages of these tasks after a number."""
        if principals:
            self._loads = {principal: PostgresPrincipalLoad() for principal in principals}
            for principal, agent, live, queued in await connection.fetch(_SELECT_COUNTERS, text_array(principals)):
                self._loads[principal].live_tasks[agent] = live
                self._loads[principal].queued_bytes += queued
        for place in tasks:
            self._unread[place] = []
        for owner, task, number, size, sender in await _SELECT_UNREAD_MESSAGES.fetch(
            connection, [(*place, after) for place, after in sorted(tasks.items())]
        ):
            self._unread[owner, task].append((number, size, sender))

    def admit(self, quota: Quota, plan: Plan, now: int) -> None:
        """Raises Overrun for a message that would take its sender over its quota."""
        agent, sender = plan.record.agent, sender_of(plan)
        has = self._loads[sender]
        wait, every = 0.0, 0.0
        if quota.starts_per_minute:
            every = MINUTE_MS / quota.starts_per_minute
            wait = self._token_buckets.delay((sender, agent), now, every, quota.starts_per_minute)
        check_quota(
            quota,
            PrincipalLoad(sum(has.live_tasks.values()), has.live_tasks.get(agent, 0), has.queued_bytes, wait),
            plan,
        )
        if every and starts_turn(plan):
            self._token_buckets.take((sender, agent), now, every)

    def record(self, row_key: TaskRowKey, plan: Plan) -> None:
        """Counts what a change does."""
        before, head = plan.before, plan.record
        over = head.state in states.TERMINAL or plan.change.discard
        self._count(head.principal, head.agent, (not over) - (before is not None), 0)
        arrived = [(row.number, row.size, sender_of(plan)) for row in plan.messages if row.size]
        unread = self._unread.get(row_key)
        for number, size, sender in (unread or ()) if before else ():
            waits = before is not None and number > before.last_delivered
            self._count(
                sender or head.ref.owner.principal, head.agent, 0, size * (self._is_waiting(plan, number) - waits)
            )
        for number, size, sender in arrived:
            self._count(sender, head.agent, 0, size * self._is_waiting(plan, number))
        if arrived:
            # A task that is not looked at has others, too, of which nothing changes.
            self._unread.setdefault(row_key, []).extend(arrived)

    def rows(self, counter_slot: int) -> list[tuple[object, ...]]:
        """What is to be added."""
        more = sorted((who, what) for who, what in self._deltas.items() if any(what))
        self._deltas.clear()
        return [(*who, counter_slot, *what) for who, what in more]

    def _is_waiting(self, plan: Plan, number: int) -> bool:
        head = plan.record
        return head.state not in states.TERMINAL and not plan.change.discard and number > head.last_delivered

    def _count(self, principal: str, agent: str, live: int, queued: int) -> None:
        if not (live or queued):
            return
        more = self._deltas[principal, agent]
        more[0] += live
        more[1] += queued
        if has := self._loads.get(principal):
            has.live_tasks[agent] = has.live_tasks.get(agent, 0) + live
            has.queued_bytes += queued


async def record_erasures(
    connection: Connection, counter_slot: int, tasks: Sequence[tuple[TaskRowKey, TaskRecord]]
) -> None:
    """Counts tasks that are erased, while their messages are still there."""
    more: defaultdict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    live = {place: head for place, head in tasks if head.state not in states.TERMINAL}
    for head in live.values():
        more[head.principal, head.agent][0] -= 1
    for owner, task, _, size, sender in await _SELECT_UNREAD_MESSAGES.fetch(
        connection, [(*place, head.last_delivered) for place, head in sorted(live.items(), key=lambda one: one[0])]
    ):
        head = live[owner, task]
        more[sender or head.ref.owner.principal, head.agent][1] -= size
    await ADD_TO_COUNTERS.run(
        connection, [(*who, counter_slot, *what) for who, what in sorted(more.items()) if any(what)]
    )


async def delete_empty_counters(connection: Connection, principal: str) -> None:
    """Takes a principal's name away, where nothing is counted for it any more."""
    await connection.execute(_DELETE_EMPTY_COUNTERS, principal)


def sender_of(plan: Plan) -> str:
    """The principal that sent the message of a change."""
    assert plan.change.message is not None
    return plan.change.message.sender or plan.record.ref.owner.principal
