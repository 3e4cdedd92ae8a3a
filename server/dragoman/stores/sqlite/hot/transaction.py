"""Applies one batch of appends, with many rows in each statement.

Each statement releases the interpreter lock, and the writer then waits to get it back from a busy event loop. A batch
of 64 sends costs seven statements instead of six hundred. The rows of a table are written in the order of the appends.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from enum import Enum
from typing import Any, Final

from dragoman.core.names import Owner, task_id_of
from dragoman.core.task import states
from dragoman.core.task.log import EXISTS, Append, Appended, AppendRejected, NewTask, TaskRecord, TaskRef
from dragoman.core.task.plan import Plan, plan
from dragoman.core.task.projection import merge_metadata
from dragoman.stores.shared.rows import (
    MUTABLE_COLUMNS,
    RECORD_COLUMNS,
    RECORD_WIDTH,
    TABLE_RECORD_COLUMNS,
    record_from_row,
    record_values,
    step_values,
)
from dragoman.stores.sqlite.cold import pushes, task_tables
from dragoman.stores.sqlite.cold.blobs import use_blobs
from dragoman.stores.sqlite.hot.rows import SELECT_BY_ALIAS, SELECT_OWNER, SqliteBulkStatement

MAX_CACHED_OWNERS: Final = 16_384  # whose number is cached

SELECT_RECORD: Final = f"SELECT {RECORD_COLUMNS} FROM tasks WHERE owner = ? AND task = ?"
_SELECT_RECORDS: Final = SqliteBulkStatement(
    "WITH wanted (owner, task) AS (",
    2,
    f") SELECT t.owner, t.task, t.listed, {TABLE_RECORD_COLUMNS}"
    " FROM wanted w CROSS JOIN tasks t ON t.owner = w.owner AND t.task = w.task",
)

_WRITE_TASKS: Final = SqliteBulkStatement(
    f"INSERT INTO tasks (owner, task, created, metadata, agent_state, {RECORD_COLUMNS})",
    5 + RECORD_WIDTH,
    "ON CONFLICT (owner, task) DO UPDATE SET "
    + ", ".join(f"{name} = excluded.{name}" for name in MUTABLE_COLUMNS.split(", ")),
    large=(3, 4),
)
"""Inserts new tasks and changes others. UPDATE FROM would make a temporary table, which costs more than a row."""
_EXISTING: Final = (0, bytearray(), bytearray())
"""In the row of a task that exists: the columns that only its creation writes."""

_UPDATE_TASK_STATES: Final = SqliteBulkStatement(
    "WITH changed (owner, task, agent_state) AS (",
    3,
    ") UPDATE tasks SET agent_state = changed.agent_state FROM changed"
    " WHERE tasks.owner = changed.owner AND tasks.task = changed.task",
    large=(2,),
)
_WRITE_FAILURES: Final = SqliteBulkStatement(
    "WITH failed (owner, task, cause, text, data) AS (",
    5,
    ") UPDATE tasks SET cause = failed.cause, failure_text = failed.text, failure = failed.data FROM failed"
    " WHERE tasks.owner = failed.owner AND tasks.task = failed.task",
)
_INSERT_LOG: Final = SqliteBulkStatement("INSERT INTO log (owner, task, first, count, ends, data)", 6, large=(5,))
_INSERT_MESSAGES: Final = SqliteBulkStatement(
    "INSERT INTO messages (owner, task, number, role, data, envelope, sender, size)", 8, large=(4, 5)
)
_SELECT_REPLACED_ARTIFACTS: Final = SqliteBulkStatement(
    "WITH fresh (owner, task, artifact) AS (",
    3,
    ") SELECT a.owner, a.task, a.artifact FROM fresh f CROSS JOIN artifacts a"
    " ON a.owner = f.owner AND a.task = f.task AND a.artifact = f.artifact",
)
_GIVE_UP_ALIAS: Final = "UPDATE tasks SET id = ?, alias = 0 WHERE owner = ? AND task = ?"
_DELETE_CHUNKS: Final = "DELETE FROM chunks WHERE owner = ? AND task = ? AND artifact = ?"
_UPSERT_ARTIFACTS: Final = SqliteBulkStatement(
    "INSERT INTO artifacts (owner, task, artifact, position, head)",
    5,
    "ON CONFLICT (owner, task, artifact) DO UPDATE SET head = excluded.head",
    large=(4,),
)
_INSERT_ARTIFACTS: Final = SqliteBulkStatement(
    "INSERT OR IGNORE INTO artifacts (owner, task, artifact, position, head)", 5, large=(4,)
)
_INSERT_CHUNKS: Final = SqliteBulkStatement(
    "INSERT INTO chunks (owner, task, artifact, sequence, text, data)", 6, large=(5,)
)
_DELETE_TASK_ROWS: Final = tuple(
    f"DELETE FROM {table} WHERE owner = ? AND task = ?"
    for table in ("tasks", "log", "messages", "artifacts", "chunks", "steps")
)


class Flush(Enum):
    """Why rows are written now."""

    READ = "a statement of the batch may read them"
    COMMIT = "the batch is complete"
    JOB = "a job follows, which may read and change everything"


class CommitObserver:
    """Figures that are kept of appends, in the same commit. A subclass has what it needs of these."""

    has_deferred_rows = False
    """Whether rows of earlier commits wait for the next one."""

    def admit(self, batch: SqliteTransaction, plan: Plan, now: int) -> None:
        """Raises AppendRejected for a change with a quota that must not be applied, before any of it is written."""

    def record(self, batch: SqliteTransaction, owner: int, plan: Plan, now: int, is_usage_counted: bool) -> None:
        """Counts a change, after its rows were written; or, if it discards its task, before that."""

    def flush(self, batch: SqliteTransaction, reason: Flush) -> None:
        """Writes the rows that cannot wait."""

    def end_batch(self, *, committed: bool) -> None:
        """Called after the commit, or when the batch was rolled back."""


class SqliteTransaction:
    """One batch on the writer's connection.

    Rows are gathered, and `flush` writes them, one table at a time. A change that reads or deletes rows which may
    still be pending has them written first.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        clock: Callable[[], int],
        owner_numbers: dict[Owner, int],
        observers: Sequence[CommitObserver],
    ) -> None:
        self.connection = connection
        self.cursor = connection.cursor()  # each execution on a connection makes a cursor
        self._clock = clock
        self._owner_numbers = owner_numbers
        self._observers = observers
        self._wanted: dict[tuple[int, bytes], TaskRef] = {}
        """The tasks of this batch."""
        self._records: dict[tuple[int, bytes], TaskRecord | None] = {}
        self.listed: set[tuple[int, bytes]] = set()
        """The tasks of this batch that the indexes of lists have."""
        self._changed_records: dict[tuple[int, bytes], TaskRecord] = {}
        self._new_tasks: dict[tuple[int, bytes], tuple[int, bytearray, bytearray]] = {}
        """The new tasks of this batch: when created, metadata, and state of the agent."""
        self._log: list[tuple[Any, ...]] = []
        self._messages: list[tuple[Any, ...]] = []
        self._replaced_artifacts: list[tuple[Any, ...]] = []
        self._new_artifacts: list[tuple[Any, ...]] = []
        self._chunks: list[tuple[Any, ...]] = []
        self._steps: list[tuple[Any, ...]] = []
        self._task_states: dict[tuple[int, bytes], bytes] = {}
        self._task_metadata: dict[tuple[int, bytes], bytes] = {}
        self._failures: list[tuple[Any, ...]] = []
        self._touched_artifacts: set[tuple[int, bytes, str]] = set()

    def load_records(self, changes: Iterable[Append]) -> None:
        """Reads the records of the tasks of these changes, and again those that a job may have changed."""
        for change in changes:
            owner = self.owner_number(change.task.owner)
            self._wanted[owner, change.task.key] = change.task
        missing = [key for key in self._wanted if key not in self._records]
        self._records.update(dict.fromkeys(missing))
        self.listed.difference_update(missing)
        for owner, key, listed, *row in _SELECT_RECORDS.fetch(self.cursor, missing):
            self._records[owner, key] = record_from_row(self._wanted[owner, key], row)
            if listed:
                self.listed.add((owner, key))

    def run(self, job: Callable[[sqlite3.Connection], Any]) -> Any:
        """Runs another write. It sees all changes before it, and may change what was cached."""
        self.flush(Flush.JOB)
        self._records.clear()
        return job(self.connection)

    def apply(self, change: Append) -> Appended:
        """Applies one change. Raises AppendRejected before it writes anything but a new owner."""
        ref = change.task
        owner = self.owner_number(ref.owner)
        if (owner, ref.key) not in self._records:
            self.load_records((change,))
        now = self._clock()
        if change.idempotency_key is not None:
            holder = change.idempotency_key.owner or ref.owner
            task_tables.check_key(self.connection, self.owner_number(holder), holder, change.idempotency_key, now)
        named = change.create if change.create is not None and change.create.alias else None
        earlier = self._earlier_alias(owner, named) if named is not None else None
        planned = plan(self._records[owner, ref.key], change, now)
        if change.quota is not None:
            for observer in self._observers:
                observer.admit(self, planned, now)
        if change.create is not None:
            owner = self.owner_number(ref.owner, True)
        if change.push_config is not None:
            pushes.check_push_limit(self.connection, owner, ref.key, change.push_config.id, planned.record)
        if change.context_state is not None:
            task_tables.write_context_state(self.connection, owner, planned.record, change.context_state)
        if change.idempotency_key is not None:
            first = planned.before.last_sequence if planned.before else 0
            task_tables.record_key(
                self.connection, self.owner_number(holder, True), owner, change.idempotency_key, ref.key, first, now
            )
        if change.discard:
            self._record(owner, planned, now, is_usage_counted=False)
            self._write_pending()
            task_tables.record_reply(self.connection, owner, ref.key, change.reply)
            for statement in _DELETE_TASK_ROWS:
                self.connection.execute(statement, (owner, ref.key))
            task_tables.delete_rows_beside_task(self.connection, owner, ref.key)
            self._records[owner, ref.key] = None
            return planned.outcome
        if earlier is not None:
            self.connection.execute(_GIVE_UP_ALIAS, (task_id_of(earlier), owner, earlier))
            self._records.pop((owner, earlier), None)
        self._write_plan(owner, planned)
        if planned.record.has_live_push:
            pushes.record_append(self.connection, owner, planned, now)
        self._records[owner, ref.key] = planned.record
        outcome, is_usage_counted = planned.outcome, False
        if change.usage_report is not None:
            usage, is_usage_counted = task_tables.record_usage(
                self.flushed_connection(), owner, ref.key, change.usage_report
            )
            outcome = replace(outcome, usage=usage)
        self._record(owner, planned, now, is_usage_counted=is_usage_counted)
        return outcome

    def _earlier_alias(self, owner: int, new: NewTask) -> bytes | None:
        """The key of the ended task whose alias a new one takes over. Raises AppendRejected."""
        self._write_pending()
        row = self.connection.execute(SELECT_BY_ALIAS, (owner, new.agent, new.id)).fetchone()
        if row is None:
            return None
        if not (new.restarts and row[1] in states.TERMINAL):
            raise AppendRejected(EXISTS, None)
        return bytes(row[0])

    def flush(self, reason: Flush = Flush.COMMIT) -> None:
        """Writes all pending rows, and the figures of the batch that cannot wait for the next one."""
        self._write_pending()
        for observer in self._observers:
            observer.flush(self, reason)

    def flushed_connection(self) -> sqlite3.Connection:
        """The connection, after everything was written that a statement of this batch may read."""
        self.flush(Flush.READ)
        return self.connection

    def _record(self, owner: int, plan: Plan, now: int, *, is_usage_counted: bool) -> None:
        for observer in self._observers:
            observer.record(self, owner, plan, now, is_usage_counted)

    def owner_number(self, owner: Owner, create: bool = False) -> int:
        """The owner's number; -1, which no owner has, for an unknown owner unless `create`."""
        number = self._owner_numbers.get(owner)
        if number is None:
            if create:
                self.connection.execute("INSERT OR IGNORE INTO owners (scope, principal) VALUES (?, ?)", owner)
            row = self.connection.execute(SELECT_OWNER, owner).fetchone()
            if row is None:
                return -1
            if len(self._owner_numbers) >= MAX_CACHED_OWNERS:  # callers can invent scopes
                self._owner_numbers.clear()
            number = self._owner_numbers[owner] = row[0]
        return number

    def _write_plan(self, owner: int, plan: Plan) -> None:
        change, record, before = plan.change, plan.record, plan.before
        key = record.ref.key
        bound_key = bytearray(key)
        if before is None:
            assert change.create is not None
            self._changed_records[owner, key] = record
            state = bytearray(change.task_state or b"")
            self._new_tasks[owner, key] = (record.updated, bytearray(change.create.metadata), state)
            if change.create.parent:
                self.connection.execute(task_tables.INSERT_PARENT, (owner, key, change.create.parent))
        elif plan.events or record != before:
            self._changed_records[owner, key] = record
        if change.task_state is not None and before is not None:
            self._task_states[owner, key] = change.task_state
        if change.task_metadata:
            pending = self._task_metadata.get((owner, key), b"")
            self._task_metadata[owner, key] = merge_metadata(pending, change.task_metadata)
        if plan.events:
            first, last = plan.events[0].sequence, plan.events[-1]
            self._log.append((owner, bound_key, first, len(plan.events), +last.ends, bytearray(plan.log_row)))
        for message in plan.messages:
            sender = "" if message.sender == record.ref.owner.principal else message.sender
            content = bytearray(message.data), bytearray(message.envelope), sender, message.size
            self._messages.append((owner, bound_key, message.number, message.role, *content))
        has_artifacts = before is not None and before.last_sequence > 1
        written: set[str] = set()
        for row in plan.artifacts:
            # The first events of a task replace only what they have written themselves.
            replaces = row.replaces and (has_artifacts or row.artifact_id in written)
            written.add(row.artifact_id)
            place = (owner, key, row.artifact_id)
            if replaces and place in self._touched_artifacts:  # what it replaces may still be pending
                self._write_pending()
            self._touched_artifacts.add(place)
            bound = (owner, bound_key, row.artifact_id, row.sequence)
            (self._replaced_artifacts if replaces else self._new_artifacts).append((*bound, bytearray(row.head)))
            self._chunks.append((*bound, +row.text, bytearray(row.data)))
        if change.steps:
            self._steps += [(owner, bound_key, *step_values(step)) for step in change.steps]
        if plan.failure is not None:
            self._failures.append((owner, bound_key, plan.failure.cause, plan.failure.text, plan.failure.data))
        if plan.past_turn:
            self.flushed_connection().execute(task_tables.END_TURN, (plan.past_turn, owner, key))
        if change.blobs:
            use_blobs(self.connection, owner, key, change.blobs)

    def _write_pending(self) -> None:
        connection, cursor = self.connection, self.cursor
        if self._changed_records:
            created = self._new_tasks
            rows = [
                (key[0], bytearray(key[1]), *created.get(key, _EXISTING), *record_values(record))
                for key, record in self._changed_records.items()
            ]
            _WRITE_TASKS.run(cursor, rows)
            self._changed_records.clear()
            created.clear()
        if self._task_states:
            _UPDATE_TASK_STATES.run(cursor, [(*key, state) for key, state in self._task_states.items()])
            self._task_states.clear()
        for (owner, key), update in self._task_metadata.items():
            task_tables.merge_task_metadata(connection, owner, key, update)
        self._task_metadata.clear()
        if self._replaced_artifacts:
            wanted = [row[:3] for row in self._replaced_artifacts]
            for replaced in _SELECT_REPLACED_ARTIFACTS.fetch(cursor, wanted):
                connection.execute(_DELETE_CHUNKS, replaced)
        for statement, rows in (
            (_INSERT_LOG, self._log),
            (_INSERT_MESSAGES, self._messages),
            (_UPSERT_ARTIFACTS, self._replaced_artifacts),
            (_INSERT_ARTIFACTS, self._new_artifacts),
            (_INSERT_CHUNKS, self._chunks),
            (task_tables.WRITE_STEPS, self._steps),
            (_WRITE_FAILURES, self._failures),
        ):
            if rows:
                statement.run(cursor, rows)
                rows.clear()
        self._touched_artifacts.clear()
