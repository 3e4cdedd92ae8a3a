"""Quota counters of principals, for admission: updated in every batch, read where a quota is checked.

A counter is several rows, one for each slot, and each process adds to the rows of its own slot: processes do not wait
for each other, and the sum is exact. A principal whose quota is checked is locked by name until the commit
(`transaction.lock_numbers`), so that two processes never both use the last free capacity.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Final

from asyncpg import Connection

from dragoman.core.limits.admission import PrincipalLoad, TokenBuckets, check_quota, starts_turn
from dragoman.core.limits.quotas import Quota
from dragoman.core.names import DEFAULT_SCOPE, Owner
from dragoman.core.task import states
from dragoman.core.task.log import Append, TaskRecord
from dragoman.core.task.plan import Plan
from dragoman.extensions.postgres.rows import PostgresBulkStatement, insert_statement, text_array, unescape

COUNTER_SLOTS: Final = 32
MINUTE_MS: Final = 60_000

ADD_TO_COUNTERS: Final = insert_statement(
    "quota_counters",
    "ttiii",
    "principal, agent, slot, live, queued",
    "ON CONFLICT (principal, agent, slot) DO UPDATE SET live = quota_counters.live + excluded.live,"
    " queued = quota_counters.queued + excluded.queued",
)
_SELECT_COUNTERS: Final = """
SELECT principal, agent, sum(live)::bigint, sum(queued)::bigint FROM quota_counters
WHERE principal = ANY ($1::text[]) GROUP BY principal, agent
"""
_COUNT_SCOPES: Final = PostgresBulkStatement(
    "SELECT r.scope, r.principal, (SELECT count(*) FROM owners o"
    f" WHERE o.principal = r.principal AND o.scope <> '{DEFAULT_SCOPE}') FROM {{rows}} WHERE NOT EXISTS"
    " (SELECT 1 FROM owners o WHERE o.scope = r.scope AND o.principal = r.principal)",
    "tt",
    "scope, principal",
)
_SELECT_UNREAD_MESSAGES: Final = PostgresBulkStatement(
    "SELECT m.owner, m.task, m.number, m.size, m.sender FROM {rows}"
    " JOIN messages m ON m.owner = r.owner AND m.task = r.task AND m.number > r.after WHERE m.size > 0"
    " AND m.task {own}",
    "iyi",
    "owner, task, after",
)
JOIN_UNREAD_MESSAGES: Final = """
LEFT JOIN LATERAL (SELECT array_agg(m.number), array_agg(m.size), array_agg(m.sender) FROM messages m
    WHERE m.owner = o.owner AND m.task = {0}.task AND m.number > least({0}.last_completed, {0}.last_delivered)
    AND m.size > 0 {1}) m ON true
"""
"""Adds the arguments of `unread_messages` to a task's columns."""
_DELETE_EMPTY_COUNTERS: Final = """
DELETE FROM quota_counters s WHERE s.principal = $1 AND NOT EXISTS (
    SELECT 1 FROM quota_counters o WHERE o.principal = s.principal AND o.agent = s.agent
    HAVING sum(o.live) <> 0 OR sum(o.queued) <> 0)
"""

TaskRowKey = tuple[int, bytes]
"""A task: its owner's number and its key."""

UnreadMessage = tuple[int, int, str]
"""A message that no turn has delivered: number, size, and sender."""
UnreadMessages = list[UnreadMessage]


@dataclass(slots=True)
class PostgresPrincipalLoad:
    """Unfinished tasks by agent, and bytes of undelivered messages."""

    live_tasks: dict[str, int] = field(default_factory=dict)
    queued_bytes: int = 0


class PostgresQuotaCounters:
    """The counters of one batch. token_buckets: of this process."""

    def __init__(self, token_buckets: TokenBuckets) -> None:
        self._token_buckets = token_buckets
        self._loads: dict[str, PostgresPrincipalLoad] = {}
        self.unread: dict[TaskRowKey, UnreadMessages] = {}
        """All of each task of the batch."""
        self._deltas: defaultdict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
        self._scopes: dict[Owner, int] = {}
        """How many scopes a principal has used, where it would create its first task in one, whose owner is the key."""

    async def load_scopes(self, connection: Connection, changes: Sequence[Append]) -> set[Owner]:
        """Reads the scopes of senders whose scopes are limited. Returns the owners that new tasks may create."""
        wanted = sorted({own for change in changes if (own := limited_scope(change)) is not None})
        found = await _COUNT_SCOPES.fetch(connection, wanted) if wanted else []
        unused = {Owner(scope, principal) for scope, principal, _ in found}
        counts = {principal: count for _, principal, count in found}
        admitted: set[Owner] = set()
        for change in changes:
            if change.create is None:
                continue
            if (own := limited_scope(change)) in unused:
                assert own is not None
                assert change.quota is not None
                used = self._scopes.setdefault(own, counts[own.principal])
                if used >= change.quota.scopes:
                    continue
                if own not in admitted:
                    admitted.add(own)
                    counts[own.principal] += 1
            admitted.add(change.task.owner)
        return admitted

    async def load(self, connection: Connection, principals: Collection[str]) -> None:
        """Reads what these principals use."""
        if principals:
            self._loads = {principal: PostgresPrincipalLoad() for principal in principals}
            for principal, agent, live, queued in await connection.fetch(_SELECT_COUNTERS, text_array(principals)):
                self._loads[principal].live_tasks[agent] = live
                self._loads[principal].queued_bytes += queued

    def admit(self, quota: Quota, plan: Plan, now: int) -> None:
        """Raises QuotaExceeded for a message that would exceed its sender's quota."""
        agent, sender = plan.record.agent, sender_of(plan)
        load = self._loads[sender]
        wait, every = 0.0, 0.0
        if quota.starts_per_minute:
            every = MINUTE_MS / quota.starts_per_minute
            wait = self._token_buckets.delay((sender, agent), now, every, quota.starts_per_minute)
        check_quota(
            quota,
            PrincipalLoad(
                sum(load.live_tasks.values()),
                load.live_tasks.get(agent, 0),
                load.queued_bytes,
                wait,
                self._scopes.get(Owner(plan.record.ref.owner.scope, sender), 0),
            ),
            plan,
        )
        if every and starts_turn(plan):
            self._token_buckets.take((sender, agent), now, every)

    def record(self, row_key: TaskRowKey, plan: Plan) -> None:
        """Counts a change."""
        before, record = plan.before, plan.record
        over = record.state in states.TERMINAL or plan.change.discard
        self._count(record.principal, record.agent, (not over) - (before is not None), 0)
        unread = self.unread.setdefault(row_key, [])
        for number, size, sender in unread if before else ():
            waits = before is not None and number > before.last_delivered
            self._count(
                sender or record.ref.owner.principal, record.agent, 0, size * (self._is_waiting(plan, number) - waits)
            )
        for row in plan.messages:
            if row.size:
                sender = sender_of(plan)
                self._count(sender, record.agent, 0, row.size * self._is_waiting(plan, row.number))
                unread.append((row.number, row.size, sender))

    def rows(self, counter_slot: int) -> list[tuple[object, ...]]:
        """The rows to add, for ADD_TO_COUNTERS."""
        deltas = sorted((key, delta) for key, delta in self._deltas.items() if any(delta))
        self._deltas.clear()
        return [(*key, counter_slot, *delta) for key, delta in deltas]

    def _is_waiting(self, plan: Plan, number: int) -> bool:
        record = plan.record
        return record.state not in states.TERMINAL and not plan.change.discard and number > record.last_delivered

    def _count(self, principal: str, agent: str, live: int, queued: int) -> None:
        if not (live or queued):
            return
        delta = self._deltas[principal, agent]
        delta[0] += live
        delta[1] += queued
        if load := self._loads.get(principal):
            load.live_tasks[agent] = load.live_tasks.get(agent, 0) + live
            load.queued_bytes += queued


def unread_messages(
    numbers: Sequence[int] | None, sizes: Sequence[int] | None, senders: Sequence[str] | None
) -> UnreadMessages:
    """The messages of these columns, which are NULL if there are none."""
    return list(zip(numbers or (), sizes or (), map(unescape, senders or ()), strict=True))


async def read_unread_messages(
    connection: Connection, tasks: Sequence[tuple[int, bytes, int]]
) -> dict[TaskRowKey, UnreadMessages]:
    """The messages after a number, of tasks with an owner's number, a key, and that number."""
    found: dict[TaskRowKey, UnreadMessages] = {(owner, key): [] for owner, key, _ in tasks}
    for owner, task, *message in await _SELECT_UNREAD_MESSAGES.fetch(connection, tasks):
        number, size, sender = message
        found[owner, task].append((number, size, sender))
    return found


async def record_erasures(
    connection: Connection, counter_slot: int, tasks: Sequence[tuple[TaskRowKey, TaskRecord]]
) -> None:
    """Counts tasks that are erased, while their messages still exist."""
    deltas: defaultdict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    live = {row_key: record for row_key, record in tasks if record.state not in states.TERMINAL}
    for record in live.values():
        deltas[record.principal, record.agent][0] -= 1
    unread = await read_unread_messages(
        connection,
        [(*row_key, record.last_delivered) for row_key, record in sorted(live.items(), key=lambda item: item[0])],
    )
    for row_key, messages in unread.items():
        for _, size, sender in messages:
            deltas[sender or live[row_key].ref.owner.principal, live[row_key].agent][1] -= size
    await ADD_TO_COUNTERS.run(
        connection, [(*key, counter_slot, *delta) for key, delta in sorted(deltas.items()) if any(delta)]
    )


async def delete_empty_counters(connection: Connection, principal: str) -> None:
    """Deletes the rows of a principal whose counts are all zero."""
    await connection.execute(_DELETE_EMPTY_COUNTERS, principal)


def limited_scope(change: Append) -> Owner | None:
    """The sender of a new task in its scope, if the number of its scopes is limited."""
    if change.create is None or change.message is None or change.quota is None or not change.quota.scopes:
        return None
    owner = change.task.owner
    return Owner(owner.scope, change.message.sender or owner.principal)


def sender_of(plan: Plan) -> str:
    """The principal that sent the message of a change."""
    assert plan.change.message is not None
    return plan.change.message.sender or plan.record.ref.owner.principal
