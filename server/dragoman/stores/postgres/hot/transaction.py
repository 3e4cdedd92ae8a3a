"""Applying a batch of appends inside one transaction: the only place that writes tasks.

`core.plan` decides what is written; here is in which order it is read, locked and sent. Everybody locks in the same
order, so batches of several processes wait for each other and never in a circle:

1. names that have to be unique or are counted (`lock_numbers`): keys, aliases, conversations with state, principals
with a
   quota;
2. the heads of the tasks, by scope, principal and key;
3. owners that are new.

Then all is decided in memory, and written with one statement. What few batches need costs them one more.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any, Final

from asyncpg import Connection

from dragoman.core.limits.admission import TokenBuckets
from dragoman.core.names import Owner
from dragoman.core.task.log import EXISTS, Append, Appended, AppendRejected, NewTask, TaskRecord
from dragoman.core.task.plan import ArtifactRow, Plan, plan
from dragoman.stores.postgres import blobs, pushes, task_tables
from dragoman.stores.postgres.hot import quota_counters
from dragoman.stores.postgres.hot.quota_counters import PostgresQuotaCounters, TaskRowKey, unread_after
from dragoman.stores.postgres.maintenance import compaction
from dragoman.stores.postgres.maintenance.compaction import PostgresArtifactGrowth
from dragoman.stores.postgres.rows import (
    MUTABLE_TYPES,
    RECORD_TYPES,
    PostgresBulkStatement,
    combine_statements,
    insert_statement,
)
from dragoman.stores.shared.rows import MUTABLE_COLUMNS, RECORD_COLUMNS, mutable_values, qualified, record_values

_SELECT_BY_ALIAS: Final = "SELECT 1 FROM tasks WHERE owner = $1 AND agent = $2 AND id = $3 AND alias"

AppendResult = Appended | AppendRejected


class PostgresTransaction:
    """One batch, on a connection that has begun its transaction."""

    def __init__(
        self,
        connection: Connection,
        counter_slot: int,
        artifact_growth: PostgresArtifactGrowth,
        token_buckets: TokenBuckets,
    ) -> None:
        self._connection = connection
        self._counter_slot = counter_slot
        self._artifact_growth = artifact_growth
        self._quota_counters = PostgresQuotaCounters(token_buckets)
        self._now = 0
        self._owner_numbers: dict[Owner, int] = {}
        self._records: dict[TaskRowKey, TaskRecord | None] = {}
        self._used_keys: task_tables.UsedKeys = {}
        self._aliases: set[tuple[int, str, str]] = set()
        self._totals: defaultdict[tuple[int, str, int], int] = defaultdict(int)
        self._pending = PostgresPendingRows()
        self._delegated: task_tables.DelegatedUsage = {}

    async def run(self, changes: Sequence[Append], fixed_now: int | None) -> list[AppendResult]:
        """What became of each, once all is written. `at` is the time, unless it is the server's."""
        await self._lock_and_load(changes, fixed_now)
        results: list[AppendResult] = []
        for change in changes:
            try:
                results.append(await self._apply(change))
            except AppendRejected as refused:  # before anything of it was written
                results.append(refused)
        await self._flush()
        if self._delegated:
            await task_tables.add_delegated_usage(self._connection, self._delegated)
        return results

    # Reading and locking ----------------------------------------------------------------------------------------

    async def _lock_and_load(self, changes: Sequence[Append], fixed_now: int | None) -> None:
        new: set[Owner] = set()
        for change in changes:
            if change.create is not None:
                new.add(change.task.owner)
            if change.idempotency_key is not None:
                new.add(change.idempotency_key.owner or change.task.owner)
            if change.participant is not None:
                new.add(change.participant)
        refs = {change.task for change in changes}
        found = await task_tables.lock_tasks(self._connection, refs, new, fixed_now)
        self._now, self._owner_numbers = found.now, found.owner_numbers
        self._records = {self._row_key(change): found.records.get(change.task) for change in changes}
        await self._load_counters(changes)
        self._used_keys = await task_tables.find_keys(
            self._connection, [self._key_name(change) for change in changes if change.idempotency_key is not None]
        )

    async def _load_counters(self, changes: Sequence[Append]) -> None:
        principals = {_sender(change) for change in changes if change.quota is not None and change.message is not None}
        tasks: dict[TaskRowKey, int] = {}
        for change in changes:
            place = self._row_key(change)
            if (after := unread_after(change, self._records[place])) is not None:
                tasks[place] = min(after, tasks.get(place, after))
        await self._quota_counters.load(self._connection, principals, tasks)

    def _row_key(self, change: Append) -> TaskRowKey:
        return self._owner_numbers[change.task.owner], change.task.key

    def _key_name(self, change: Append) -> task_tables.KeyName:
        assert change.idempotency_key is not None
        return (
            self._owner_numbers[change.idempotency_key.owner or change.task.owner],
            change.idempotency_key.agent,
            change.idempotency_key.text,
        )

    # Deciding ---------------------------------------------------------------------------------------------------

    async def _apply(self, change: Append) -> Appended:
        place, connection, pending = self._row_key(change), self._connection, self._pending
        owner, now = place[0], self._now
        if change.idempotency_key is not None:
            task_tables.check_key(
                self._used_keys, self._key_name(change), change.idempotency_key.owner or change.task.owner, now
            )
        if change.create is not None and change.create.alias:
            await self._check_alias(owner, change.create)
        made = plan(self._records[place], change, now)
        if change.quota is not None:
            self._quota_counters.admit(change.quota, made, now)
        if change.push_config is not None:
            await pushes.check_push_limit(connection, place, made.record, change.push_config.id)
        if change.context_state is not None:
            await task_tables.write_context_state(connection, owner, made.record, change.context_state)
        if change.idempotency_key is not None:
            host = change.task.owner if change.idempotency_key.owner not in (None, change.task.owner) else None
            first = made.before.last_sequence if made.before else 0
            used = task_tables.UsedKey(
                change.idempotency_key.digest, change.task.key, None, first, now, host, owner if host else None
            )
            self._used_keys[self._key_name(change)] = pending.used_keys[self._key_name(change)] = used
        if change.participant is not None:
            pending.participants.add((self._owner_numbers[change.participant], owner, made.record.context))
        self._quota_counters.record(place, made)
        if made.before is not None and made.before.visible:
            self._totals[owner, made.record.agent, made.before.state] -= 1
        if change.discard:
            await self._discard(place, change)
            return made.outcome
        if made.record.visible:
            self._totals[owner, made.record.agent, made.record.state] += 1
        if change.create is not None and change.create.alias:
            self._aliases.add((owner, change.create.agent, change.create.id))
        if change.create is not None and change.create.parent:
            await task_tables.add_parent(connection, place, change.create.parent)
        self._add_to_pending(place, made)
        if change.push_config is not None:
            await pushes.record_new_push(connection, place, made, change.push_config, now)
        self._records[place] = made.record
        if change.usage_report is not None:
            await self._flush()
            return replace(
                made.outcome,
                usage=await task_tables.record_usage(connection, place, change.usage_report, self._delegated),
            )
        return made.outcome

    async def _check_alias(self, owner: int, new: NewTask) -> None:
        name = owner, new.agent, new.id
        if name in self._aliases or await self._connection.fetchval(_SELECT_BY_ALIAS, *name):
            raise AppendRejected(EXISTS, None)

    def _add_to_pending(self, row_key: TaskRowKey, plan: Plan) -> None:
        """What a change writes, where it does not write it at once."""
        change, head, pending = plan.change, plan.record, self._pending
        if change.create is not None and change.create.joinable:
            pending.open_tasks.append((head.context, *row_key))
        if head.has_live_push and plan.events:
            pending.due_tasks.add(row_key)
        pending.blob_uses.update((*row_key, blob.digest) for blob in change.blobs)
        grew, is_long = self._artifact_growth.record(row_key, plan)
        if grew:
            pending.grown.append((*row_key, grew))
        if is_long:
            pending.long_logs.append((head.updated, *row_key))
        pending.add(row_key, plan)

    async def _discard(self, row_key: TaskRowKey, change: Append) -> None:
        await self._flush()
        await task_tables.record_reply(self._connection, row_key, change.reply)
        await delete_task(self._connection, row_key)
        await task_tables.remove_open_task(self._connection, row_key)
        await pushes.delete_pushes_of_task(self._connection, row_key)
        await task_tables.delete_usage(self._connection, row_key)
        for name, used in self._used_keys.items():
            if used.task == change.task.key:
                self._used_keys[name] = task_tables.with_reply(used, change.reply)
        self._records[row_key] = None

    async def _flush(self) -> None:
        totals = sorted((*key[:3], self._counter_slot, count) for key, count in self._totals.items() if count)
        self._totals.clear()
        pending, self._pending = self._pending, PostgresPendingRows()
        await pending.write(self._connection, totals, self._quota_counters.rows(self._counter_slot), self._now)


def lock_numbers(changes: Sequence[Append]) -> list[int]:
    """The numbers of the locks that a batch needs before it looks, in the order in which everybody takes them."""
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
        if change.context_state is not None:  # of which task it is the conversation is known only by its head
            found.add(_lock_number("state", owner.scope, owner.principal))
        if change.quota is not None and change.message is not None:
            found.add(_lock_number("quota", _sender(change)))
    return sorted(found)


def _sender(change: Append) -> str:
    assert change.message is not None
    return change.message.sender or change.task.owner.principal


def _lock_number(kind: str, *parts: Any) -> int:
    """The number of an advisory lock. Two names of one number only wait for each other."""
    digest = blake2b(repr((kind, *parts)).encode("utf-8", "surrogatepass"), digest_size=8)
    return int.from_bytes(digest.digest(), "big", signed=True)


ADD_TO_TOTALS: Final = insert_statement(
    "totals",
    "itiii",
    "owner, agent, state, slot, tasks",
    "ON CONFLICT (owner, agent, state, slot) DO UPDATE SET tasks = totals.tasks + excluded.tasks",
)
_INSERT_TASKS: Final = insert_statement(
    "tasks", "iyiyy" + RECORD_TYPES, f"owner, task, created, metadata, memory, {RECORD_COLUMNS}"
)
_UPDATE_TASKS: Final = PostgresBulkStatement(
    f"UPDATE tasks SET ({MUTABLE_COLUMNS}) = ({qualified(MUTABLE_COLUMNS, 'r')})"
    " FROM {rows} WHERE tasks.owner = r.owner AND tasks.task = r.task",
    "iy" + MUTABLE_TYPES,
    f"owner, task, {MUTABLE_COLUMNS}",
)
_INSERT_LOG: Final = insert_statement("log", "iyiiby", "owner, task, first, count, ends, data")
_INSERT_MESSAGES: Final = insert_statement(
    "messages", "iyiiyyti", "owner, task, number, role, data, envelope, sender, size"
)

_UPDATE_TASK_STATES: Final = PostgresBulkStatement(
    "UPDATE tasks SET memory = r.memory FROM {rows} WHERE tasks.owner = r.owner AND tasks.task = r.task",
    "iyy",
    "owner, task, memory",
)
_DELETE_CHUNKS: Final = PostgresBulkStatement(
    "DELETE FROM chunks c USING {rows}"
    " WHERE c.owner = r.owner AND c.task = r.task AND c.artifact = r.artifact AND c.sequence < r.sequence",
    "iyti",
    "owner, task, artifact, sequence",
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
    _DELETE_CHUNKS,
    _UPSERT_ARTIFACTS,
    _INSERT_ARTIFACTS,
    _INSERT_CHUNKS,
)
_DELETE_TASK_ROWS: Final = tuple(
    f"DELETE FROM {table} WHERE owner = $1 AND task = $2"
    for table in ("tasks", "log", "messages", "artifacts", "chunks", "blob_uses")
)

ArtifactKey = tuple[int, bytes, str]


@dataclass(slots=True)
class PostgresPendingRows:
    """Rows that wait to be sent."""

    new_tasks: dict[TaskRowKey, tuple[Any, ...]] = field(default_factory=dict)
    """Created, metadata and memory of tasks that are not in the table yet; their heads are in `heads`."""
    records: dict[TaskRowKey, TaskRecord] = field(default_factory=dict)
    task_states: dict[TaskRowKey, bytes] = field(default_factory=dict)
    log: list[tuple[Any, ...]] = field(default_factory=list)
    messages: list[tuple[Any, ...]] = field(default_factory=list)
    replaced_artifacts: dict[ArtifactKey, tuple[int, bytes]] = field(default_factory=dict)
    """Artifacts that are replaced: position and head."""
    new_artifacts: dict[ArtifactKey, tuple[int, bytes]] = field(default_factory=dict)
    """Artifacts that are there from now on, if they were not before."""
    first_kept_chunks: dict[ArtifactKey, int] = field(default_factory=dict)
    """Chunks before this sequence go."""
    chunks: dict[ArtifactKey, list[tuple[int, bool, bytes]]] = field(default_factory=dict)
    used_keys: task_tables.UsedKeys = field(default_factory=dict)
    participants: set[tuple[int, int, str]] = field(default_factory=set)
    open_tasks: list[tuple[str, int, bytes]] = field(default_factory=list)
    due_tasks: set[TaskRowKey] = field(default_factory=set)
    """Tasks of whose events receivers are to be told."""
    blob_uses: set[tuple[int, bytes, bytes]] = field(default_factory=set)
    """Tasks, and blobs they refer to from now on."""
    grown: list[tuple[int, bytes, int]] = field(default_factory=list)
    long_logs: list[tuple[int, int, bytes]] = field(default_factory=list)

    def add(self, row_key: TaskRowKey, plan: Plan) -> None:
        """What a change writes of its task."""
        change, head, before = plan.change, plan.record, plan.before
        if before is None:
            assert change.create is not None
            self.new_tasks[row_key] = head.updated, change.create.metadata, change.task_state or b""
            self.records[row_key] = head
        else:
            if head != before:
                self.records[row_key] = head
            if change.task_state is not None:
                self.task_states[row_key] = change.task_state
        if plan.events:
            first, last = plan.events[0].sequence, plan.events[-1]
            self.log.append((*row_key, first, len(plan.events), last.ends, plan.log_row))
        for message in plan.messages:
            sender = "" if message.sender == head.ref.owner.principal else message.sender
            said = message.data, message.envelope, sender, message.size
            self.messages.append((*row_key, message.number, message.role, *said))
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

    async def write(self, connection: Connection, totals: Sequence[Any], standings: Sequence[Any], now: int) -> None:
        """Sends what waits, and these counts."""
        await self._write_main_tables(connection, totals, standings)
        await _UPDATE_TASK_STATES.run(connection, [(*place, memory) for place, memory in self.task_states.items()])
        await task_tables.record_keys(connection, self.used_keys)
        await task_tables.add_participants(connection, self.participants)
        await task_tables.add_open_tasks(connection, self.open_tasks)
        await pushes.MARK_DUE.run(connection, sorted(self.due_tasks), now)
        await blobs.INSERT_BLOB_USES.run(connection, sorted(self.blob_uses))
        await compaction.ADD_GROWN.run(connection, sorted(self.grown))
        await compaction.INSERT_LONG_LOGS.run(connection, self.long_logs)

    async def _write_main_tables(self, connection: Connection, totals: Sequence[Any], standings: Sequence[Any]) -> None:
        new = [(*place, *row, *record_values(self.records[place])) for place, row in self.new_tasks.items()]
        changed = [
            (*place, *mutable_values(head)) for place, head in self.records.items() if place not in self.new_tasks
        ]
        rows: list[Sequence[Any]] = [new, changed, self.log, self.messages, totals, standings]
        if self.chunks:
            rows += self._artifact_rows()
        kinds = tuple(one for one, some in zip(_MAIN_STATEMENTS, rows, strict=False) if some)
        if kinds:
            lots = zip(kinds, filter(None, rows), strict=True)
            await connection.execute(
                combine_statements(kinds), *(column for one, some in lots for column in one.columns(some))
            )

    def _artifact_rows(self) -> list[Sequence[Any]]:
        return [
            [(*where, sequence) for where, sequence in self.first_kept_chunks.items()],
            [(*where, *row) for where, row in self.replaced_artifacts.items()],
            [(*where, *row) for where, row in self.new_artifacts.items()],
            [(*where, *row) for where, rows in self.chunks.items() for row in rows],
        ]


async def delete_task(connection: Connection, row_key: TaskRowKey) -> None:
    """Takes away a task that nobody saw. What waits has to be sent before."""
    await blobs.mark_blobs_loose(connection, [row_key])
    for statement in _DELETE_TASK_ROWS:
        await connection.execute(statement, *row_key)
