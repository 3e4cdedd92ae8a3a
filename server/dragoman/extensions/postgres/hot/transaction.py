"""Applies a batch of appends inside one transaction.

All appends go through here; apart from them, push configurations and erasure change rows of `tasks`.
`core.plan` decides what is written; this module decides in which order it is read, locked and sent. All processes lock
in the same order, so their batches wait for each other but never deadlock: first the names that have to be unique or
are counted (`lock_numbers`), then the records of the tasks by key, then new owners. Everything
is then decided in memory and written with one statement; rare kinds of rows cost another one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from operator import attrgetter
from typing import Any, Final

from asyncpg import Connection

from dragoman.core.daily_usage import DailyCounter, DailyKeys
from dragoman.core.limits.admission import TokenBuckets
from dragoman.core.names import Owner, task_id_of
from dragoman.core.task import states
from dragoman.core.task.log import EXISTS, Append, Appended, AppendRejected, NewTask, TaskRecord, TaskRef
from dragoman.core.task.plan import ArtifactRow, Plan, plan
from dragoman.core.task.projection import merge_metadata
from dragoman.extensions.postgres import blobs, daily_usage, pushes, task_tables
from dragoman.extensions.postgres.claims import WaitingTask
from dragoman.extensions.postgres.database import SQL_NOW, WRITE_LOCK
from dragoman.extensions.postgres.hot import quota_counters
from dragoman.extensions.postgres.hot.quota_counters import PostgresQuotaCounters, TaskRowKey, UnreadMessage
from dragoman.extensions.postgres.hot.steps import END_TURN, WRITE_STEPS
from dragoman.extensions.postgres.maintenance import compaction
from dragoman.extensions.postgres.rows import (
    MUTABLE_TYPES,
    RECORD_TYPES,
    PostgresBulkStatement,
    combine_statements,
    insert_statement,
)
from dragoman.ids import SteadyClock
from dragoman.stores.shared.compaction import ArtifactGrowth
from dragoman.stores.shared.rows import (
    MUTABLE_COLUMNS,
    RECORD_COLUMNS,
    mutable_values,
    qualified,
    record_values,
    step_values,
)

_SELECT_BY_ALIAS: Final = """
SELECT t.task, t.state FROM aliases a JOIN tasks t ON t.owner = a.owner AND t.task = a.task
WHERE a.owner = $1 AND a.agent = $2 AND a.id = $3
"""
_GIVE_UP_ALIAS: Final = "UPDATE tasks SET id = $3, alias = false WHERE owner = $1 AND task = $2"

AppendResult = Appended | AppendRejected


class PostgresTransaction:
    """One batch, on a connection inside a transaction."""

    def __init__(
        self,
        connection: Connection,
        counter_slot: int,
        artifact_growth: ArtifactGrowth,
        token_buckets: TokenBuckets,
        daily_keys: DailyKeys,
        known: KnownTasks,
    ) -> None:
        self._connection = connection
        self._known = known
        self._counter_slot = counter_slot
        self._artifact_growth = artifact_growth
        self._quota_counters = PostgresQuotaCounters(token_buckets)
        self._daily_keys = daily_keys
        self._daily_counter = DailyCounter()
        self._now = 0
        self._owner_numbers: dict[Owner, int] = {}
        self._records: dict[TaskRowKey, TaskRecord | None] = {}
        self._used_keys: task_tables.UsedKeys = {}
        self._aliases: set[tuple[int, str, str]] = set()
        self._totals: defaultdict[tuple[int, str, int], int] = defaultdict(int)
        self._pending = PostgresPendingRows()
        self._delegated: task_tables.DelegatedUsage = {}
        self._is_planned = False
        self.results: list[AppendResult] = []

    async def run(self, changes: Sequence[Append], fixed_now: int | None) -> None:
        """Applies the changes. Their results count once all is committed."""
        await self._lock_and_load(changes, fixed_now)
        for change in changes:
            try:
                self.results.append(await self._apply(change))
            except AppendRejected as rejected:  # before anything of it was written
                self.results.append(rejected)
        await self._flush(await daily_usage.counter_rows(self._connection, self._daily_keys, self._daily_counter))
        if self._delegated:
            await task_tables.add_delegated_usage(self._connection, self._delegated)

    async def plan(
        self, changes: Sequence[Append], fixed_now: int | None, mark: bytes
    ) -> tuple[str, Sequence[Any]] | None:
        """Applies the changes to known tasks, without the database. Returns the statement that writes all, and its
        arguments; None if a change takes more, or may be rejected: the database decides that.

        The statement divides by zero if a task has changed, or an owner was erased, or the time is off.
        """
        self._is_planned = True
        if not self._load_known(changes, fixed_now):
            return None
        before = {row_key: record for row_key, record in self._records.items() if record is not None}
        try:
            for change in changes:
                self.results.append(await self._apply(change))
        except (AppendRejected, _SeveralStatements):
            return None
        if self._daily_keys.missing(self._daily_counter.days):
            return None
        counts = self._counts(self._daily_counter.rows(self._daily_keys))
        owners = sorted({row_key[0] for row_key in self._pending.new_tasks})
        return self._pending.statement(before, counts, (owners, mark, fixed_now, self._now))

    def _load_known(self, changes: Sequence[Append], fixed_now: int | None) -> bool:
        """Loads all from memory. False if something is not known, or a change takes several statements."""
        if self._known.clock is None or not all(map(_takes_one_statement, changes)):
            return False
        self._now = self._known.clock() if fixed_now is None else fixed_now
        for change in changes:
            number = self._known.owners.get(change.task.owner)
            task = self._known.tasks.get(change.task)
            if number is None or (task is None and change.create is None):
                return False
            self._owner_numbers[change.task.owner] = number
            record, unread = task or (None, ())
            self._records[number, change.task.key] = record
            self._quota_counters.unread[number, change.task.key] = list(unread)
        return True

    def remember(self) -> None:
        """Makes what was committed known to the next batch."""
        if len(self._known.owners) > MAX_KNOWN_OWNERS:
            self._known.owners.clear()
        self._known.owners |= {
            owner: number for owner, number in self._owner_numbers.items() if number != task_tables.NO_OWNER
        }
        for row_key, record in self._records.items():
            if record is not None:
                self._known.note(record, self._quota_counters.unread.get(row_key, ()))

    # Reading and locking ----------------------------------------------------------------------------------------

    async def _lock_and_load(self, changes: Sequence[Append], fixed_now: int | None) -> None:
        new = await self._quota_counters.load_scopes(self._connection, changes)
        for change in changes:
            if change.idempotency_key is not None and (change.create is None or change.task.owner in new):
                new.add(change.idempotency_key.owner or change.task.owner)
        refs = {change.task for change in changes}
        found = await task_tables.lock_tasks(self._connection, refs, new, fixed_now)
        self._now, self._owner_numbers = found.now, found.owner_numbers
        self._known.follow(found.now)
        self._records = {self._row_key(change): found.records.get(change.task) for change in changes}
        principals = {_sender(change) for change in changes if change.quota is not None and change.message is not None}
        await self._quota_counters.load(self._connection, principals)
        self._quota_counters.unread.update(found.unread)
        self._used_keys = await task_tables.find_keys(
            self._connection, [self._key_name(change) for change in changes if change.idempotency_key is not None]
        )

    def _row_key(self, change: Append) -> TaskRowKey:
        return self._owner_numbers[change.task.owner], change.task.key

    def _key_name(self, change: Append) -> task_tables.KeyName:
        assert change.idempotency_key is not None
        return (
            self._owner_numbers.get(change.idempotency_key.owner or change.task.owner, task_tables.NO_OWNER),
            change.idempotency_key.agent,
            change.idempotency_key.text,
        )

    # Deciding ---------------------------------------------------------------------------------------------------

    async def _apply(self, change: Append) -> Appended:
        row_key, connection, pending = self._row_key(change), self._connection, self._pending
        owner, now = row_key[0], self._now
        if change.idempotency_key is not None:
            task_tables.check_key(
                self._used_keys, self._key_name(change), change.idempotency_key.owner or change.task.owner, now
            )
        named = change.create if change.create is not None and change.create.alias else None
        earlier = await self._earlier_alias(owner, named) if named is not None else None
        planned = plan(self._records[row_key], change, now)
        if change.quota is not None:
            self._quota_counters.admit(change.quota, planned, now)
        if change.push_config is not None:
            await pushes.check_push_limit(connection, row_key, planned.record, change.push_config.id)
        if change.context_state is not None:
            await task_tables.write_context_state(connection, owner, planned.record, change.context_state)
        if change.idempotency_key is not None:
            is_shared = change.idempotency_key.owner not in (None, change.task.owner)
            task_owner = change.task.owner if is_shared else None
            first = planned.before.last_sequence if planned.before else 0
            used = task_tables.UsedKey(
                change.idempotency_key.digest,
                change.task.key,
                None,
                first,
                now,
                task_owner,
                owner if is_shared else None,
            )
            self._used_keys[self._key_name(change)] = pending.used_keys[self._key_name(change)] = used
        self._quota_counters.record(row_key, planned)
        self._daily_counter.count(planned, now)
        if planned.before is not None and planned.before.visible:
            self._totals[owner, planned.record.agent, planned.before.state] -= 1
        if change.discard:
            await self._discard(row_key, change)
            return planned.outcome
        if planned.record.visible:
            self._totals[owner, planned.record.agent, planned.record.state] += 1
        if earlier is not None:
            await connection.execute(_GIVE_UP_ALIAS, owner, earlier, task_id_of(earlier))
        if named is not None:
            self._aliases.add((owner, named.agent, named.id))
            await connection.execute(task_tables.UPSERT_ALIAS, owner, named.agent, named.id, change.task.key)
        if change.create is not None and change.create.parent:
            await task_tables.add_parent(connection, row_key, change.create.parent)
        self._add_to_pending(row_key, planned)
        if planned.past_turn:
            if self._is_planned:
                raise _SeveralStatements
            await self._flush()
            await connection.execute(END_TURN, *row_key, planned.past_turn)
        if change.push_config is not None:
            await pushes.record_new_push(connection, row_key, planned, change.push_config, now)
        self._records[row_key] = planned.record
        if change.usage_report is not None:
            await self._flush()
            report = change.usage_report
            usage, is_counted = await task_tables.record_usage(connection, row_key, report, self._delegated)
            if is_counted and report.has_amount:
                self._daily_counter.count_usage(planned.record, report, now)
            return replace(planned.outcome, usage=usage)
        return planned.outcome

    async def _earlier_alias(self, owner: int, new: NewTask) -> bytes | None:
        """The key of the ended task whose alias a new one takes over. Raises AppendRejected."""
        name = owner, new.agent, new.id
        row = await self._connection.fetchrow(_SELECT_BY_ALIAS, *name)
        if name in self._aliases or (row is not None and not (new.restarts and row["state"] in states.TERMINAL)):
            raise AppendRejected(EXISTS, None)
        return bytes(row["task"]) if row is not None else None

    def _add_to_pending(self, row_key: TaskRowKey, plan: Plan) -> None:
        """Adds what a change writes to the pending rows."""
        change, record, pending = plan.change, plan.record, self._pending
        if record.has_live_push and plan.events:
            pending.due_tasks.add(row_key)
        pending.blob_uses.update((*row_key, blob.digest) for blob in change.blobs)
        grew, is_long = self._artifact_growth.record(row_key, plan)
        if grew:
            pending.growth.append((*row_key, grew))
        if is_long:
            pending.long_logs.append((record.updated, *row_key))
        pending.add(row_key, plan)

    async def _discard(self, row_key: TaskRowKey, change: Append) -> None:
        await self._flush()
        await task_tables.record_reply(self._connection, row_key, change.reply)
        await delete_task(self._connection, row_key)
        await pushes.delete_pushes_of_task(self._connection, row_key)
        await task_tables.delete_usage(self._connection, row_key)
        for name, used in self._used_keys.items():
            if used.task == change.task.key:
                self._used_keys[name] = task_tables.with_reply(used, change.reply)
        self._records[row_key] = None

    async def _flush(self, daily_rows: Sequence[Sequence[Any]] = ()) -> None:
        pending, self._pending = self._pending, PostgresPendingRows()
        await pending.write(self._connection, self._counts(daily_rows), self._now)

    def _counts(self, daily_rows: Sequence[Sequence[Any]]) -> Sequence[Sequence[Any]]:
        """The pending rows of the tables `totals`, `quota_counters` and `daily_usage`."""
        totals = sorted((*key[:3], self._counter_slot, count) for key, count in self._totals.items() if count)
        self._totals.clear()
        daily = [(*row[:4], self._counter_slot, *row[4:]) for row in daily_rows]
        return totals, self._quota_counters.rows(self._counter_slot), daily


class _SeveralStatements(Exception):
    """A planned change takes several statements."""


def _takes_one_statement(change: Append) -> bool:
    """Whether one statement may write a change of a known task: it reads nothing else, and writes no rare row."""
    rare = change.idempotency_key, change.quota, change.context_state, change.usage_report, change.push_config
    if any(part is not None for part in rare) or change.discard or change.blobs or change.steps:
        return False
    new = change.create
    return not (new.alias or new.parent if new is not None else change.task_state is not None or change.task_metadata)


MAX_KNOWN_OWNERS: Final = 10_000
MAX_KNOWN_TASKS: Final = 10_000


class KnownTasks:
    """The knowledge of a process from its last commits and reads: running tasks and those that it is about to claim,
    numbers of owners, and the store's time.

    A batch of changes to these is planned without a read, and written by one statement that checks whether they are
    still so: one round trip. Another process may have changed a task, or erased an owner, but does so rarely.
    """

    def __init__(self) -> None:
        self.clock: SteadyClock | None = None
        self.owners: dict[Owner, int] = {}
        self.tasks: dict[TaskRef, tuple[TaskRecord, Sequence[UnreadMessage]]] = {}

    def follow(self, now: int) -> None:
        """Goes on from the store's time, in milliseconds."""
        self.clock = SteadyClock(lambda: now / 1000)

    def note(self, record: TaskRecord, unread: Iterable[UnreadMessage]) -> None:
        """Notes a task with its messages, if it runs."""
        self.tasks.pop(record.ref, None)
        if record.running:
            after = min(record.last_completed, record.last_delivered)
            self.tasks[record.ref] = record, [message for message in unread if message[0] > after]
            while len(self.tasks) > MAX_KNOWN_TASKS:
                del self.tasks[next(iter(self.tasks))]

    def note_waiting(self, waiting: Iterable[WaitingTask]) -> None:
        """Notes tasks that are about to be claimed, unless it knows of a later claim of them."""
        for record, number, unread in waiting:
            self.owners[record.ref.owner] = number
            self.tasks.setdefault(record.ref, (record, unread))

    def forget(self) -> None:
        """Forgets all, after a failure, or when some was outdated."""
        self.owners.clear()
        self.tasks.clear()


def lock_numbers(changes: Sequence[Append]) -> list[int]:
    """The advisory locks that a batch needs before it reads, in the order that all processes use."""
    found: set[int] = set()
    for change in changes:
        owner = change.task.owner
        if change.idempotency_key is not None:
            holder = change.idempotency_key.owner or owner
            found.add(
                _lock_number(
                    "key", holder.scope, holder.principal, change.idempotency_key.agent, change.idempotency_key.text
                )
            )
        if change.create is not None and change.create.alias:
            found.add(_lock_number("alias", owner.scope, owner.principal, change.create.agent, change.create.id))
        if change.context_state is not None:  # its agent is known only after the record was read
            found.add(_lock_number("state", owner.scope, owner.principal))
        if change.quota is not None and change.message is not None:
            found.add(_lock_number("quota", _sender(change)))
    return sorted(found)


def _sender(change: Append) -> str:
    assert change.message is not None
    return change.message.sender or change.task.owner.principal


def _lock_number(kind: str, *parts: Any) -> int:
    """The number of an advisory lock. Names with the same number only wait for each other."""
    digest = blake2b(repr((kind, *parts)).encode("utf-8", "surrogatepass"), digest_size=8)
    return int.from_bytes(digest.digest(), "big", signed=True)


ADD_TO_TOTALS: Final = insert_statement(
    "totals",
    "itiii",
    "owner, agent, state, slot, tasks",
    "ON CONFLICT (owner, agent, state, slot) DO UPDATE SET tasks = totals.tasks + excluded.tasks",
)
_INSERT_TASKS: Final = insert_statement(
    "tasks", "iyiyy" + RECORD_TYPES, f"owner, task, created, metadata, agent_state, {RECORD_COLUMNS}"
)
_UPDATE_TASKS: Final = PostgresBulkStatement(
    f"UPDATE tasks SET ({MUTABLE_COLUMNS}) = ({qualified(MUTABLE_COLUMNS, 'r')})"
    " FROM {rows} WHERE tasks.owner = r.owner AND tasks.task = r.task AND tasks.task {own}",
    "iy" + MUTABLE_TYPES,
    f"owner, task, {MUTABLE_COLUMNS}",
    as_json=True,
)
_CHECKED_COLUMNS: Final = (
    "last_sequence, message_count, last_delivered, session, token, ready, attempt, has_live_push, wake_at"
)
"""Columns of a task of which every change of another process changes one."""
_EXPECTED: Final = qualified(_CHECKED_COLUMNS, "r").replace("r.", "r.before_")
_checked_values: Final = attrgetter(*_CHECKED_COLUMNS.split(", "))
_UPDATE_KNOWN_TASKS: Final = PostgresBulkStatement(
    f"{_UPDATE_TASKS.sql} AND ({qualified(_CHECKED_COLUMNS, 'tasks')}) = ({_EXPECTED}) RETURNING 1",
    _UPDATE_TASKS.types + "iiiiibibi",
    f"{_UPDATE_TASKS.names}, {_EXPECTED.replace('r.', '')}",
    as_json=True,
)
MAX_CLOCK_ERROR_MS: Final = 1000
"""By which the time of a planned batch may differ from the store's."""
_PREPARE_APPEND: Final = (
    f"locked AS MATERIALIZED (SELECT lock_for_append({WRITE_LOCK}, $1) AS done),"
    " marked AS (INSERT INTO commits (mark) VALUES ($2))"
)
_CHECK_APPEND: Final = (
    f"{SQL_NOW.format('$3')} / (locked.done AND abs({SQL_NOW.format('$3')} - $4) < {MAX_CLOCK_ERROR_MS}"
    " AND $5::bigint = {updated})::int FROM locked"
)
_FIRST_ROW_ARGUMENT: Final = 6
_INSERT_LOG: Final = insert_statement("log", "iyiiby", "owner, task, first, count, ends, data")
_INSERT_MESSAGES: Final = insert_statement(
    "messages", "iyiiyyti", "owner, task, number, role, data, envelope, sender, size"
)

_UPDATE_TASK_STATES: Final = PostgresBulkStatement(
    "UPDATE tasks SET agent_state = r.agent_state FROM {rows}"
    " WHERE tasks.owner = r.owner AND tasks.task = r.task AND tasks.task {own}",
    "iyy",
    "owner, task, agent_state",
)
_WRITE_FAILURES: Final = PostgresBulkStatement(
    "UPDATE tasks SET cause = r.cause, failure_text = r.failure_text, failure = r.failure FROM {rows}"
    " WHERE tasks.owner = r.owner AND tasks.task = r.task AND tasks.task {own}",
    "iytty",
    "owner, task, cause, failure_text, failure",
)
_DELETE_CHUNKS: Final = PostgresBulkStatement(
    "DELETE FROM chunks c USING {rows}"
    " WHERE c.owner = r.owner AND c.task = r.task AND c.artifact = r.artifact AND c.sequence < r.sequence"
    " AND c.task {own}",
    "iyti",
    "owner, task, artifact, sequence",
    as_json=True,
)
_UPSERT_ARTIFACTS: Final = insert_statement(
    "artifacts",
    "iytiy",
    "owner, task, artifact, position, head",
    "ON CONFLICT (owner, task, artifact) DO UPDATE SET head = excluded.head",
)
_INSERT_ARTIFACTS: Final = insert_statement(
    "artifacts", "iytiy", "owner, task, artifact, position, head", "ON CONFLICT DO NOTHING"
)
_INSERT_CHUNKS: Final = insert_statement("chunks", "iytiby", "owner, task, artifact, sequence, text, data")
_MAIN_STATEMENTS: Final = (
    _INSERT_TASKS,
    _UPDATE_TASKS,
    _INSERT_LOG,
    _INSERT_MESSAGES,
    ADD_TO_TOTALS,
    quota_counters.ADD_TO_COUNTERS,
    daily_usage.ADD_DAILY_USAGE,
    compaction.ADD_GROWTH,
    compaction.INSERT_LONG_LOGS,
    _DELETE_CHUNKS,
    _UPSERT_ARTIFACTS,
    _INSERT_ARTIFACTS,
    _INSERT_CHUNKS,
)
_DELETE_TASK_ROWS: Final = tuple(
    f"DELETE FROM {table} WHERE owner = $1 AND task = $2"
    for table in ("tasks", "log", "messages", "artifacts", "chunks", "blob_uses", "steps", "aliases")
)

ArtifactKey = tuple[int, bytes, str]


def _combine(
    statements: Sequence[PostgresBulkStatement], rows: Sequence[Sequence[Any]]
) -> tuple[tuple[PostgresBulkStatement, ...], list[Any]]:
    """Those of these statements that have rows, and their arguments."""
    used = [(statement, some) for statement, some in zip(statements, rows, strict=False) if some]
    return tuple(statement for statement, _ in used), [
        column for statement, some in used for column in statement.columns(some)
    ]


@dataclass(slots=True)
class PostgresPendingRows:
    """Rows that are not sent yet."""

    new_tasks: dict[TaskRowKey, tuple[Any, ...]] = field(default_factory=dict)
    """Creation time, metadata and state of tasks that are not in the table yet; `records` has their records."""
    records: dict[TaskRowKey, TaskRecord] = field(default_factory=dict)
    task_states: dict[TaskRowKey, bytes] = field(default_factory=dict)
    task_metadata: dict[TaskRowKey, bytes] = field(default_factory=dict)
    """Serialized Structs to merge."""
    failures: list[tuple[Any, ...]] = field(default_factory=list)
    log: list[tuple[Any, ...]] = field(default_factory=list)
    messages: list[tuple[Any, ...]] = field(default_factory=list)
    replaced_artifacts: dict[ArtifactKey, tuple[int, bytes]] = field(default_factory=dict)
    """Replaced artifacts: position and record."""
    new_artifacts: dict[ArtifactKey, tuple[int, bytes]] = field(default_factory=dict)
    """Artifacts to insert unless they exist: position and record."""
    first_kept_chunks: dict[ArtifactKey, int] = field(default_factory=dict)
    """Chunks before this sequence are deleted."""
    chunks: dict[ArtifactKey, list[tuple[int, bool, bytes]]] = field(default_factory=dict)
    used_keys: task_tables.UsedKeys = field(default_factory=dict)
    due_tasks: set[TaskRowKey] = field(default_factory=set)
    """Tasks with events to deliver."""
    blob_uses: set[tuple[int, bytes, bytes]] = field(default_factory=set)
    """New references: owner, task key and digest."""
    steps: dict[tuple[int, bytes, str, int], tuple[Any, ...]] = field(default_factory=dict)
    """Values of STEP_COLUMNS, by task, name and number."""
    growth: list[tuple[int, bytes, int]] = field(default_factory=list)
    long_logs: list[tuple[int, int, bytes]] = field(default_factory=list)

    def add(self, row_key: TaskRowKey, plan: Plan) -> None:
        """Adds the rows that a change writes for its task."""
        change, record, before = plan.change, plan.record, plan.before
        if before is None:
            assert change.create is not None
            self.new_tasks[row_key] = record.updated, change.create.metadata, change.task_state or b""
            self.records[row_key] = record
        else:
            if record != before:
                self.records[row_key] = record
            if change.task_state is not None:
                self.task_states[row_key] = change.task_state
        if change.task_metadata:
            pending = self.task_metadata.get(row_key, b"")
            self.task_metadata[row_key] = merge_metadata(pending, change.task_metadata)
        if plan.events:
            first, last = plan.events[0].sequence, plan.events[-1]
            self.log.append((*row_key, first, len(plan.events), last.ends, plan.log_row))
        for message in plan.messages:
            sender = "" if message.sender == record.ref.owner.principal else message.sender
            content = message.data, message.envelope, sender, message.size
            self.messages.append((*row_key, message.number, message.role, *content))
        if plan.failure is not None:
            self.failures.append((*row_key, plan.failure.cause, plan.failure.text, plan.failure.data))
        for step in change.steps:
            self.steps[*row_key, step.name, step.number] = step_values(step)
        for row in plan.artifacts:
            self._add_artifact((*row_key, row.artifact_id), row)

    def _add_artifact(self, artifact_key: ArtifactKey, row: ArtifactRow) -> None:
        known = self.replaced_artifacts.get(artifact_key) or self.new_artifacts.get(artifact_key)
        position = known[0] if known else row.sequence
        if row.replaces:
            self.new_artifacts.pop(artifact_key, None)
            self.replaced_artifacts[artifact_key] = position, row.head
            self.first_kept_chunks[artifact_key] = row.sequence
            self.chunks[artifact_key] = []
        elif known is None:
            self.new_artifacts[artifact_key] = position, row.head
        self.chunks.setdefault(artifact_key, []).append((row.sequence, row.text, row.data))

    async def write(self, connection: Connection, counts: Sequence[Sequence[Any]], now: int) -> None:
        """Sends the pending rows, and these rows of the tables `totals`, `quota_counters` and `daily_usage`."""
        await self._write_main_tables(connection, counts)
        await _UPDATE_TASK_STATES.run(connection, [(*row_key, state) for row_key, state in self.task_states.items()])
        await _WRITE_FAILURES.run(connection, self.failures)
        for row_key, update in self.task_metadata.items():
            await task_tables.merge_task_metadata(connection, row_key, update)
        await task_tables.record_keys(connection, self.used_keys)
        await pushes.MARK_DUE.run(connection, sorted(self.due_tasks), now)
        await blobs.INSERT_BLOB_USES.run(connection, sorted(self.blob_uses))
        await WRITE_STEPS.run(connection, [(*key[:2], *values) for key, values in self.steps.items()])

    def statement(
        self, before: Mapping[TaskRowKey, TaskRecord], counts: Sequence[Sequence[Any]], arguments: Sequence[Any]
    ) -> tuple[str, Sequence[Any]] | None:
        """One statement that writes all of a planned batch, and its arguments after these; None if it takes several.

        before: the known tasks of the batch. Rows are locked in the order that all processes use.
        """
        rest = (self.task_states, self.task_metadata, self.used_keys, self.due_tasks, self.blob_uses, self.steps)
        if any(rest) or self.failures or before.keys() - self.records.keys():
            return None
        changed = [
            (*row_key, *mutable_values(self.records[row_key]), *_checked_values(record))
            for row_key, record in sorted(before.items(), key=lambda item: item[0][1])
        ]
        rows = [changed, *self._main_rows(counts, [])]
        statements, columns = _combine((_UPDATE_KNOWN_TASKS, *_MAIN_STATEMENTS), rows)
        result = _CHECK_APPEND.format(updated="(SELECT count(*) FROM done0)" if changed else 0)
        sql = combine_statements(statements, _FIRST_ROW_ARGUMENT, _PREPARE_APPEND, result)
        return sql, (*arguments, len(changed), *columns)

    async def _write_main_tables(self, connection: Connection, counts: Sequence[Sequence[Any]]) -> None:
        changed = [
            (*row_key, *mutable_values(record))
            for row_key, record in self.records.items()
            if row_key not in self.new_tasks
        ]
        statements, columns = _combine(_MAIN_STATEMENTS, self._main_rows(counts, changed))
        if statements:
            await connection.execute(combine_statements(statements), *columns)

    def _main_rows(self, counts: Sequence[Sequence[Any]], changed: Sequence[Any]) -> list[Sequence[Any]]:
        """The rows of _MAIN_STATEMENTS."""
        new = [(*row_key, *row, *record_values(self.records[row_key])) for row_key, row in self.new_tasks.items()]
        return [
            new,
            changed,
            self.log,
            self.messages,
            *counts,
            sorted(self.growth),
            self.long_logs,
            *(self._artifact_rows() if self.chunks else ()),
        ]

    def _artifact_rows(self) -> list[Sequence[Any]]:
        return [
            [(*where, sequence) for where, sequence in self.first_kept_chunks.items()],
            [(*where, *row) for where, row in self.replaced_artifacts.items()],
            [(*where, *row) for where, row in self.new_artifacts.items()],
            [(*where, *row) for where, rows in self.chunks.items() for row in rows],
        ]


async def delete_task(connection: Connection, row_key: TaskRowKey) -> None:
    """Deletes a task that was never visible. Pending rows have to be sent before."""
    await blobs.mark_blobs_maybe_unused(connection, [row_key])
    for statement in _DELETE_TASK_ROWS:
        await connection.execute(statement, *row_key)
