"""Figures that a commit writes beside its appends: quota counters, artifact growth, totals, daily usage.

Each is a `CommitObserver`, so the transaction names none of them. What they write is in the commit that they count;
only totals are later for tasks that are not listed yet (`SqliteTotals`).
"""

from __future__ import annotations

import sqlite3
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, TypeVar

from dragoman.core.access.identity import SHARED_PRINCIPAL
from dragoman.core.daily_usage import HOUR_COLUMNS, HOUR_KEY, TIME_COLUMNS, DailyCounter, DailyKeys, added_columns
from dragoman.core.limits.admission import PrincipalLoad, TokenBuckets, check_quota, starts_turn
from dragoman.core.names import DEFAULT_SCOPE, Owner
from dragoman.core.task import states
from dragoman.core.task.log import TaskRecord
from dragoman.core.task.plan import Plan
from dragoman.stores.shared.compaction import ArtifactGrowth
from dragoman.stores.sqlite.cold.daily_usage import BY_DAY
from dragoman.stores.sqlite.hot.rows import CLAIMED, TOTALS, SqliteBulkStatement
from dragoman.stores.sqlite.hot.transaction import CommitObserver, Flush, SqliteTransaction

# Quota counters -------------------------------------------------------------------------------------------------------

MAX_CACHED_PRINCIPALS: Final = 4096  # and as many tasks with unread messages
MINUTE_MS: Final = 60_000

_LIVE_STATES: Final = ", ".join(map(str, sorted(states.STORED_STATES - states.TERMINAL)))

_OWNERS: Final = "SELECT owner FROM owners WHERE principal = ?"
_COUNT_SCOPES: Final = f"SELECT count(*) FROM owners WHERE principal = ? AND scope <> '{DEFAULT_SCOPE}'"
_SELECT_TOTALS: Final = f"""
SELECT agent, state, sum(tasks) FROM {TOTALS} WHERE owner = ? AND tasks > 0 AND state IN ({_LIVE_STATES})
GROUP BY agent, state
"""
_SHARED: Final = "owner = ?1 AND agent = ?2 AND state = ?3 AND principal = ?4"
_COUNT_IN_SHARED: Final = f"""
SELECT (SELECT count(*) FROM tasks WHERE listed AND {_SHARED})
    + (SELECT count(*) FROM tasks INDEXED BY tasks_unlisted WHERE listed = 0 AND visible AND {_SHARED})
"""
_HIDDEN_TASKS: Final = """
SELECT agent FROM tasks INDEXED BY tasks_unlisted WHERE listed = 0 AND session > 0 AND NOT visible AND principal = ?1
UNION ALL SELECT agent FROM tasks INDEXED BY tasks_ready WHERE ready AND NOT visible AND principal = ?1
"""
_UNFINISHED_TASKS: Final = f"""
SELECT owner, task FROM tasks INDEXED BY tasks_ready WHERE ready AND (?1 = '' OR principal = ?1)
UNION ALL SELECT owner, task FROM {CLAIMED} WHERE ?1 = '' OR principal = ?1
"""
_SUM_QUEUED_BYTES: Final = """
SELECT coalesce(sum(m.size), 0) FROM tasks t JOIN messages m USING (owner, task) JOIN owners o USING (owner)
WHERE t.owner = ? AND t.task = ? AND m.number > t.last_delivered AND m.size > 0
    AND iif(m.sender = '', o.principal, m.sender) = ?
"""
_SELECT_MESSAGE_SIZES: Final = """
SELECT number, size, sender FROM messages WHERE owner = ? AND task = ? AND number > ? AND number <= ? AND size > 0
"""

UnreadMessages = list[tuple[int, int, str]]  # that no turn has received: number, size, and sender

K = TypeVar("K")
V = TypeVar("V")


@dataclass(slots=True)
class SqlitePrincipalLoad:
    """Unfinished tasks by agent, and bytes of undelivered messages."""

    live_tasks: Counter[str] = field(default_factory=Counter)
    queued_bytes: int = 0


class SqliteQuotaCounters(CommitObserver):
    """Counters of principals, for admission: loaded on first use, and cached in memory.

    Appends of principals without a quota cost nothing. The cache is bounded, and cleared whenever a batch is rolled
    back; the tables always have the same figures, so they are only read again.
    """

    def __init__(self) -> None:
        self.loads: dict[str, SqlitePrincipalLoad] = {}  # by principal, as far as they are cached
        self.unread: dict[bytes, UnreadMessages] = {}  # by task, as far as they are cached
        self._token_buckets = TokenBuckets()

    def admit(self, batch: SqliteTransaction, plan: Plan, now: int) -> None:
        """Raises QuotaExceeded for a message that would exceed its sender's quota."""
        if (quota := plan.change.quota) is None:
            return
        agent, sender = plan.record.agent, sender_of(plan)
        load = self.loads.get(sender)
        if load is None:
            load = read_load(batch.flushed_connection(), sender)
            _remember(self.loads, sender, load)
        wait, every = 0.0, 0.0
        if quota.starts_per_minute:
            every = MINUTE_MS / quota.starts_per_minute
            wait = self._token_buckets.delay((sender, agent), now, every, quota.starts_per_minute)
        scopes, own = 0, Owner(plan.record.ref.owner.scope, sender)
        if quota.scopes and plan.before is None and batch.owner_number(own) < 0:
            (scopes,) = batch.connection.execute(_COUNT_SCOPES, (sender,)).fetchone()
        live_tasks = sum(load.live_tasks.values()), load.live_tasks[agent]
        check_quota(quota, PrincipalLoad(*live_tasks, load.queued_bytes, wait, scopes), plan)
        if quota.scopes and plan.before is None:
            batch.owner_number(own, True)  # also where the task belongs to all of its scope
        if every and starts_turn(plan):
            self._token_buckets.take((sender, agent), now, every)

    def record(self, batch: SqliteTransaction, owner: int, plan: Plan, now: int, is_usage_counted: bool) -> None:
        if not self.loads:
            return
        before, record = plan.before, plan.record
        if plan.change.message is not None:
            self._add_messages(plan)
        if before is None:
            self._count(record.principal, record.agent, 1)
        elif record.state in states.TERMINAL or plan.change.discard:
            self._count(record.principal, record.agent, -1)
            self._remove_messages(batch.flushed_connection, owner, record, before.last_delivered, record.last_received)
        elif record.last_delivered > before.last_delivered:
            self._remove_messages(batch.flushed_connection, owner, record, before.last_delivered, record.last_delivered)
        elif record.last_delivered < before.last_delivered:  # returned, to be delivered again
            self.unread.pop(record.ref.key, None)
            self._queue(
                _message_sizes(batch.flushed_connection(), owner, record, record.last_delivered, before.last_delivered),
                1,
            )

    def record_erasure(self, connection: sqlite3.Connection, owner: int, record: TaskRecord) -> None:
        """Counts a task that is erased, while its messages still exist."""
        if self.loads and record.state not in states.TERMINAL:
            self._count(record.principal, record.agent, -1)
            self._remove_messages(lambda: connection, owner, record, record.last_delivered, record.last_received)

    def end_batch(self, *, committed: bool) -> None:
        if not committed:
            self.clear()

    def clear(self) -> None:
        """After a batch was rolled back, or owners were deleted: everything is read again."""
        self.loads.clear()
        self.unread.clear()

    def _count(self, principal: str, agent: str, delta: int) -> None:
        if load := self.loads.get(principal):
            load.live_tasks[agent] = max(load.live_tasks[agent] + delta, 0)

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
        self,
        flushed_connection: Callable[[], sqlite3.Connection],
        owner: int,
        record: TaskRecord,
        after: int,
        upto: int,
    ) -> None:
        """Subtracts the messages after one number, up to another: they are delivered."""
        unread = self.unread.pop(record.ref.key, None)
        if unread is None and record.last_received > after:
            unread = _message_sizes(flushed_connection(), owner, record, after, record.last_received)
        unread = unread or []
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
            load.live_tasks[agent] += tasks
    for (agent,) in connection.execute(_HIDDEN_TASKS, (principal,)):
        load.live_tasks[agent] += 1
    # Tasks of others can have messages of this principal only where tasks are shared.
    for owner, task in connection.execute(_UNFINISHED_TASKS, ("" if shared else principal,)).fetchall():
        load.queued_bytes += connection.execute(_SUM_QUEUED_BYTES, (owner, task, principal)).fetchone()[0]
    return load


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


# Artifact growth, totals, daily usage ---------------------------------------------------------------------------------

_ADD_GROWTH: Final = """
INSERT INTO artifact_growth (owner, task, rows) VALUES (?, ?, ?)
ON CONFLICT (owner, task) DO UPDATE SET rows = rows + excluded.rows
"""
_INSERT_LONG_LOG: Final = "INSERT OR IGNORE INTO long_logs (ended, owner, task) VALUES (?, ?, ?)"


class SqliteArtifactGrowth(CommitObserver):
    """Records the tasks that are worth compacting."""

    def __init__(self) -> None:
        self._growth = ArtifactGrowth()

    def record(self, batch: SqliteTransaction, owner: int, plan: Plan, now: int, is_usage_counted: bool) -> None:
        row_key = owner, plan.record.ref.key
        rows, is_long = self._growth.record(row_key, plan)
        if rows:
            batch.connection.execute(_ADD_GROWTH, (*row_key, rows))
        if is_long:
            batch.connection.execute(_INSERT_LONG_LOG, (plan.record.updated, *row_key))


ADD_TO_TOTALS: Final = SqliteBulkStatement(
    "INSERT INTO totals (owner, agent, state, tasks)",
    4,
    "ON CONFLICT (owner, agent, state) DO UPDATE SET tasks = tasks + excluded.tasks",
)


MAX_SESSION: Final = 2**62  # above every session
MAX_NEW_TASKS: Final = 256  # after which a commit lists tasks

_UNLISTED: Final = "tasks INDEXED BY tasks_unlisted {} WHERE listed = 0 AND visible AND session <= ?"
_LIST_TASKS: Final = (
    f"INSERT INTO totals (owner, agent, state, tasks) SELECT owner, agent, state, count(*) FROM {_UNLISTED.format('')}"
    " GROUP BY owner, agent, state ON CONFLICT (owner, agent, state) DO UPDATE SET tasks = tasks + excluded.tasks",
    f"UPDATE {_UNLISTED.format('SET listed = 1')}",
)
_HAS_UNLISTED: Final = f"SELECT 1 FROM {_UNLISTED.format('')} LIMIT 1"


def has_unlisted(connection: sqlite3.Connection) -> bool:
    """Whether a search would miss a task."""
    return connection.execute(_HAS_UNLISTED, (MAX_SESSION,)).fetchone() is not None


def list_tasks(connection: sqlite3.Connection, last_session: int = MAX_SESSION) -> None:
    """Adds tasks to `totals` and to the indexes of lists: all, or those without a turn (`last_session=0`)."""
    for statement in _LIST_TASKS:
        connection.execute(statement, (last_session,))


class SqliteTotals(CommitObserver):
    """Numbers of visible tasks by owner, agent and state, and the indexes of lists and searches.

    Six indexes and the totals change with every status. A new task is in none of them. It is listed with many others,
    when no turn runs it, before operators search, and at a start; callers' lists read both. Most tasks have ended by
    then. A lone send so writes 4 and 5 pages instead of 10 and 14. The row tells whether its task is listed, so a crash
    changes nothing.
    """

    def __init__(self) -> None:
        self._totals: defaultdict[tuple[int, str, int], int] = defaultdict(int)
        self._new_tasks = 0  # since a commit listed tasks

    def record(self, batch: SqliteTransaction, owner: int, plan: Plan, now: int, is_usage_counted: bool) -> None:
        before, record = plan.before, plan.record
        if before is None:
            self._new_tasks += 1
        elif (owner, record.ref.key) in batch.listed:
            self._totals[owner, record.agent, before.state] -= 1
            if not plan.change.discard:
                self._totals[owner, record.agent, record.state] += 1

    def flush(self, batch: SqliteTransaction, reason: Flush) -> None:
        if self._totals:
            ADD_TO_TOTALS.run(batch.cursor, [(*key, count) for key, count in self._totals.items() if count])
            self._totals.clear()
        if reason is Flush.COMMIT and self._new_tasks >= MAX_NEW_TASKS:
            self._new_tasks = 0
            list_tasks(batch.connection, 0)

    def end_batch(self, *, committed: bool) -> None:
        self._totals.clear()


_ADD_FIGURES: Final = SqliteBulkStatement(
    f"INSERT INTO hourly_usage (hour, scope, principal, agent, {HOUR_COLUMNS})",
    4 + HOUR_COLUMNS.count(",") + 1,
    f"ON CONFLICT ({HOUR_KEY}) DO UPDATE SET {added_columns('', 'min', TIME_COLUMNS)}",
)
_SELECT_NAMES: Final = f"SELECT DISTINCT scope, principal, agent FROM {BY_DAY} WHERE day = ?"


class SqliteDailyFigures(CommitObserver):
    """Daily usage. Figures of tasks begun and turns may wait for the next commit (`DailyCounter.can_wait`)."""

    def __init__(self) -> None:
        self._keys = DailyKeys()
        self._counter = DailyCounter()  # figures of this batch that are not written
        self._deferred = DailyCounter()  # those of the commit before, until this batch has written them
        self._committed = DailyCounter()  # those of the commit before, while they are not in a later commit

    def record(self, batch: SqliteTransaction, owner: int, plan: Plan, now: int, is_usage_counted: bool) -> None:
        self._counter.count(plan, now)
        report = plan.change.usage_report
        if is_usage_counted and report is not None and report.has_amount:
            self._counter.count_usage(plan.record, report, now)

    def flush(self, batch: SqliteTransaction, reason: Flush) -> None:
        if reason is Flush.JOB or (reason is Flush.COMMIT and (self._deferred or not self._counter.can_wait)):
            self._counter.add(self._deferred)
            for day in self._keys.missing(self._counter.days):
                self._keys.load(day, batch.connection.execute(_SELECT_NAMES, (day,)))
            if rows := self._counter.rows(self._keys):
                _ADD_FIGURES.run(batch.cursor, rows)
            self._counter, self._deferred = DailyCounter(), DailyCounter()

    def end_batch(self, *, committed: bool) -> None:
        if committed:
            self._committed = self._counter
            self.has_deferred_rows = bool(self._committed)
        self._counter, self._deferred = DailyCounter(), self._committed
