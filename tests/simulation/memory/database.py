"""The tasks of a store in memory: what an append writes, and what is read of it.

`core.task.plan` decides each write, as in every store. The rest is dictionaries: nothing is fast for many tasks, and
everything is for few. Each method is one transaction: it writes all or raises before it writes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace

from dragoman.core.daily_usage import DailyCounter, DailyFigures, DailyKeys
from dragoman.core.limits.admission import PrincipalLoad, TokenBuckets, check_quota, starts_turn
from dragoman.core.limits.quotas import MAX_DELEGATION_DEPTH, MAX_USAGE, Usage, UsageReport, usage_metadata
from dragoman.core.names import DEFAULT_SCOPE, Owner, task_id_of, task_key_of
from dragoman.core.push.configuration import MAX_PUSH_CONFIGS
from dragoman.core.push.delivery import DeliveryAttempt, PushRecord, PushState, replace_record
from dragoman.core.task import states
from dragoman.core.task.contents import (
    ArtifactSize,
    ReadRows,
    ResponseBudget,
    RowData,
    RowSize,
    StoredContent,
    fold_artifacts,
    limit_message,
    run_fold,
    unlimited_budget,
)
from dragoman.core.task.failures import TaskFailure
from dragoman.core.task.log import (
    CHANGED,
    EXISTS,
    MAX_READ_EVENT_BYTES,
    TOO_MANY_CONFIGS,
    Append,
    Appended,
    AppendRejected,
    ContextState,
    DuplicateKey,
    Event,
    IdempotencyKey,
    KeyRecord,
    LogTruncated,
    TaskRecord,
    TaskRef,
    is_key_expired,
)
from dragoman.core.task.plan import ArtifactRow, MessageRow, Plan, encode_task, plan
from dragoman.core.task.projection import merge_metadata, unframe_message
from dragoman.core.task.steps import CURRENT_TURN, StepRecord
from dragoman.ports import StoredMessage, TaskMessages, TaskSnapshot

MINUTE_MS = 60_000.0

OWNER = 0
"""In the names of contents: here a task's key is enough."""


@dataclass(slots=True)
class TaskRows:
    """Everything that belongs to one task."""

    record: TaskRecord
    created: int
    metadata: bytes = b""
    state: bytes = b""
    """The agent's JSON."""
    log: list[list[Event]] = field(default_factory=list)
    """One list of events for each append."""
    messages: list[MessageRow] = field(default_factory=list)
    artifacts: dict[str, tuple[bytes, list[ArtifactRow]]] = field(default_factory=dict)
    """Head and chunks, by id."""
    steps: dict[tuple[int, str, int], StepRecord] = field(default_factory=dict)
    pushes: dict[str, PushRecord] = field(default_factory=dict)
    attempts: dict[str, list[DeliveryAttempt]] = field(default_factory=dict)
    """Newest first."""
    usage: dict[str, tuple[int, int]] = field(default_factory=dict)
    delegated: tuple[int, int] = (0, 0)
    parent: bytes = b""
    failure: TaskFailure | None = None

    def task(self, history: int | None, *, artifacts: bool = True, budget: ResponseBudget | None = None) -> bytes:
        """The serialized Task within the budget of its response."""
        record, messages, budget = self.record, self.messages, budget or unlimited_budget()
        key = record.ref.key
        status_message = messages[record.status_message - 1].data if record.status_message else b""
        status_message = limit_message(status_message, record.status_message, OWNER, key, budget)
        parts: list[bytes] = []
        if artifacts:
            parts += run_fold(fold_artifacts(self._artifact_sizes(), OWNER, key, budget), self._chunks)
        if history != 0:
            shown = [row for row in messages if row.number != record.status_message]
            newest = (shown if history is None else shown[-history:])[::-1]
            parts += [limit_message(row.data, row.number, OWNER, key, budget) for row in newest][::-1]
        return encode_task(record, status_message, parts, self.metadata)

    def _artifact_sizes(self) -> Iterator[ArtifactSize]:
        for id, (head, rows) in self.artifacts.items():
            sizes = [RowSize(row.sequence, row.text, len(row.data)) for row in rows]
            yield ArtifactSize(id, head, rows[0].sequence, sum(size.size for size in sizes), sizes)

    def _chunks(self, wanted: ReadRows) -> list[bytes]:
        _, rows = self.artifacts[wanted.artifact]
        return [row.data for row in rows if wanted.first <= row.sequence <= wanted.last]

    def content_rows(self, content: StoredContent, first: int, limit: int) -> list[RowData]:
        """The rows of a content from a sequence on, until they have `limit` bytes."""
        if content.artifact is None:
            return [RowData(row.number, False, row.data) for row in self.messages if row.number == content.row]
        _, rows = self.artifacts.get(content.artifact, (b"", []))
        found = list[RowData]()
        for row in rows:
            if row.sequence >= first and limit > 0:
                found.append(RowData(row.sequence, row.text, row.data))
                limit -= len(row.data)
        return found

    @property
    def total_usage(self) -> Usage:
        """What the task has used, with its delegated tasks."""
        rows = [(*amount, 0) for amount in self.usage.values()]
        return Usage.total([*rows, (*self.delegated, 1)] if any(self.delegated) else rows)


@dataclass(slots=True)
class UsedKey:
    """The use of an idempotency key."""

    digest: bytes
    task: TaskRef | None
    first: int
    created: int
    reply: bytes = b""


class MemoryDatabase:
    """All rows of a store. `clock`: milliseconds since the epoch."""

    def __init__(self, clock: Callable[[], int], epoch: str = "51f15eed") -> None:
        self.clock = clock
        self.epoch = epoch
        self.tasks: dict[TaskRef, TaskRows] = {}
        self.owners: set[Owner] = set()
        self.running: dict[TaskRef, None] = {}
        self.ready: dict[TaskRef, None] = {}
        self.asleep: dict[TaskRef, None] = {}
        """Indexes over `tasks`."""
        self.sessions: dict[int, int] = {}
        """Expiries, by session; 0 for one that has certainly ended."""
        self.keys: dict[tuple[Owner, str, str], UsedKey] = {}
        self.contexts: dict[tuple[Owner, str, str], ContextState] = {}
        """By owner, context and agent."""
        self.cancels: dict[TaskRef, tuple[int, bytes, int]] = {}
        """The last message to which a request applies, and its metadata."""
        self.key_values: dict[str, str] = {}
        self.daily = DailyCounter()
        self.hourly: dict[tuple[int, str, str, str], DailyFigures] = {}
        self.times: dict[tuple[tuple[int, str, str, str], int], tuple[int, int]] = {}
        self.days: dict[tuple[int, str, str, str], DailyFigures] = {}
        """Figures by hour or day, scope, principal and agent."""
        self.daily_keys = DailyKeys()
        self.live_pushes: dict[TaskRef, None] = {}
        """Tasks that have push configurations."""
        self.on_append: Callable[[TaskRows], None] | None = None
        """Called after each change of a task that is still there."""

    # Appends --------------------------------------------------------------------------------------------------------

    def append(self, change: Append, buckets: TokenBuckets) -> Appended:
        """Applies one change. `buckets`: of the process, which counts the starts of turns. Raises AppendRejected."""
        ref, now = change.task, self.clock()
        if change.idempotency_key is not None:
            self._check_key(change.idempotency_key, ref.owner, now)
        earlier = None
        if change.create is not None and change.create.alias:
            wanted = ref.owner, change.create.agent, change.create.id
            for rows in self.tasks.values():
                record = rows.record
                if record.alias and (record.ref.owner, record.agent, record.id) == wanted:
                    earlier = rows
                    if not (change.create.restarts and record.state in states.TERMINAL):
                        raise AppendRejected(EXISTS, None)
        rows_before = self.tasks.get(ref)
        planned = plan(rows_before.record if rows_before is not None else None, change, now)
        record = planned.record
        if record.agent is None:
            raise TypeError("a task without an agent")
        if change.quota is not None:
            self._admit(change, planned, now, buckets)
        if change.push_config is not None and rows_before is not None:
            others = [id for id in rows_before.pushes if id != change.push_config.id]
            if len(others) >= MAX_PUSH_CONFIGS:
                raise AppendRejected(TOO_MANY_CONFIGS, record)
        if change.context_state is not None:
            place = ref.owner, record.context, record.agent
            if change.context_state.version != self.contexts.get(place, ContextState()).version + 1:
                raise AppendRejected(CHANGED, record)
            self.contexts[place] = change.context_state
        if (key := change.idempotency_key) is not None:
            first = planned.before.last_sequence if planned.before else 0
            self.keys[key.owner or ref.owner, key.agent, key.text] = UsedKey(key.digest, ref, first, now)
        if earlier is not None:
            earlier.record = replace(earlier.record, id=task_id_of(earlier.record.ref.key), alias=False)
        if change.discard:
            self.record_reply(ref, change.reply)
            self.remove(ref)
        else:
            self._write(planned, now)
            if self.on_append is not None:
                self.on_append(self.tasks[ref])
        self.daily.count(planned, now)
        outcome = planned.outcome
        if change.usage_report is not None:
            return replace(outcome, usage=self._record_usage(ref, change.usage_report, now))
        return outcome

    def _write(self, planned: Plan, now: int) -> None:
        change, record, ref = planned.change, planned.record, planned.record.ref
        rows = self.tasks.get(ref)
        if rows is None:
            assert change.create is not None
            self.owners.add(ref.owner)
            rows = self.tasks[ref] = TaskRows(record, record.updated, change.create.metadata, change.task_state or b"")
            rows.parent = change.create.parent
        rows.record = record
        if change.task_state is not None:
            rows.state = change.task_state
        if change.task_metadata:
            rows.metadata = merge_metadata(rows.metadata, change.task_metadata)
        if planned.events:
            rows.log.append([Event(event.sequence, event.data, event.state, event.ends) for event in planned.events])
        rows.messages += planned.messages
        rows.failure = planned.failure or rows.failure
        for chunk in planned.artifacts:
            known = rows.artifacts.get(chunk.artifact_id)
            if known is None or chunk.replaces:
                rows.artifacts[chunk.artifact_id] = (chunk.head, [chunk])
            else:
                known[1].append(chunk)
        for step in change.steps:
            rows.steps[step.turn, step.name, step.number] = step
        if planned.past_turn:
            for place in [place for place in rows.steps if place[0] == CURRENT_TURN]:
                step = replace(rows.steps.pop(place), turn=planned.past_turn)
                rows.steps[planned.past_turn, step.name, step.number] = step
        self._index(record)
        if change.push_config is not None:
            before = planned.before
            after, state = (before.last_sequence, before.state) if before else (0, 0)
            new = PushRecord(
                task=ref, config=change.push_config, created=now, last_delivered=after, last_state_sent=state
            )
            self.put_push(new, now)
        if planned.events and rows.pushes:
            for id, push in rows.pushes.items():
                if push.state is PushState.LIVE and not push.due_at:
                    rows.pushes[id] = replace(push, due_at=now)

    def _index(self, record: TaskRecord) -> None:
        ref = record.ref
        for index, belongs in (
            (self.running, record.session),
            (self.ready, record.ready),
            (self.asleep, record.wake_at),
        ):
            if belongs:
                index[ref] = None
            else:
                index.pop(ref, None)

    def remove(self, ref: TaskRef) -> TaskRows:
        """Deletes a task with everything that belongs to it."""
        for index in (self.running, self.ready, self.asleep, self.live_pushes):
            index.pop(ref, None)
        for rows in self.tasks.values():
            if rows.parent == ref.key and rows.record.ref.owner == ref.owner:
                rows.parent = b""
        return self.tasks.pop(ref)

    # Idempotency keys -------------------------------------------------------------------------------------------------

    def _check_key(self, key: IdempotencyKey, owner: Owner, now: int) -> None:
        used = self.keys.get((key.owner or owner, key.agent, key.text))
        if used is not None and not is_key_expired(used.created, now):
            raise DuplicateKey(KeyRecord(used.digest, used.task, used.reply, used.first))

    def record_reply(self, ref: TaskRef, reply: bytes) -> None:
        """The Message that was sent instead of a task; without one its keys may be reused."""
        for place, used in [(place, used) for place, used in self.keys.items() if used.task == ref]:
            if reply:
                self.keys[place] = replace(used, reply=reply)
            else:
                del self.keys[place]

    def clear_keys(self, ref: TaskRef) -> None:
        """The keys of an erased task answer NOT_FOUND until they expire."""
        for place, used in self.keys.items():
            if used.task == ref:
                self.keys[place] = replace(used, task=None, reply=b"")

    # Quotas and usage -------------------------------------------------------------------------------------------------

    def _admit(self, change: Append, planned: Plan, now: int, buckets: TokenBuckets) -> None:
        assert change.message is not None
        assert change.quota is not None
        quota, agent = change.quota, planned.record.agent
        sender = change.message.sender or change.task.owner.principal
        live: dict[str, int] = {}
        queued = 0
        for rows in self.tasks.values():
            record = rows.record
            if record.state in states.TERMINAL:
                continue
            if record.principal == sender:
                live[record.agent] = live.get(record.agent, 0) + 1
            queued += sum(
                row.size
                for row in rows.messages[record.last_delivered :]
                if row.size and (row.sender or record.ref.owner.principal) == sender
            )
        interval, delay = 0.0, 0.0
        if quota.starts_per_minute:
            interval = MINUTE_MS / quota.starts_per_minute
            delay = buckets.delay((sender, agent), now, interval, quota.starts_per_minute)
        own = Owner(change.task.owner.scope, sender)
        scopes = 0
        if quota.scopes and planned.before is None and own not in self.owners:
            scopes = sum(one.principal == sender and one.scope != DEFAULT_SCOPE for one in self.owners)
        check_quota(quota, PrincipalLoad(sum(live.values()), live.get(agent, 0), queued, delay, scopes), planned)
        if quota.scopes and planned.before is None:
            self.owners.add(own)
        if interval and starts_turn(planned):
            buckets.take((sender, agent), now, interval)

    def _record_usage(self, ref: TaskRef, report: UsageReport, now: int) -> Usage:
        rows = self.tasks[ref]
        known = rows.usage.get(report.key)
        if known is None or not report.key:
            rows.usage[report.key] = _sum(known or (0, 0), report)
            if report.has_amount:
                for ancestor in self._ancestors(rows):
                    ancestor.delegated = _sum(ancestor.delegated, report)
                self.daily.count_usage(rows.record, report, now)
        usage = rows.total_usage
        if usage:
            rows.metadata = merge_metadata(rows.metadata, usage_metadata(usage))
        return usage

    def _ancestors(self, rows: TaskRows) -> Iterator[TaskRows]:
        parent: TaskRows | None = rows
        for _ in range(MAX_DELEGATION_DEPTH):
            if parent is None or not parent.parent:
                return
            parent = self.tasks.get(TaskRef(rows.record.ref.owner, parent.parent))
            if parent is not None:
                yield parent

    # Pushes -----------------------------------------------------------------------------------------------------------

    def with_task(self, push: PushRecord) -> PushRecord:
        """A push with what its task's row says now."""
        record = self.tasks[push.task].record
        ended = record.state in states.TERMINAL
        if (push.last_sequence, push.task_ended, push.task_id) == (record.last_sequence, ended, record.id):
            return push  # the agent never changes
        return replace(
            push, last_sequence=record.last_sequence, task_ended=ended, task_id=record.id, agent=record.agent
        )

    def put_push(self, new: PushRecord, now: int) -> PushRecord:
        """Stores a configuration, in place of one with its id."""
        rows = self.tasks[new.task]
        previous = rows.pushes.get(new.config.id)
        stored = replace_record(self.with_task(new), self.with_task(previous) if previous else None, now)
        rows.pushes[new.config.id] = stored
        self.live_pushes[new.task] = None
        return stored

    def update_live(self, ref: TaskRef) -> None:
        """Notes on the task whether it has a live configuration."""
        rows = self.tasks.get(ref)
        if rows is not None:
            live = any(push.state is PushState.LIVE for push in rows.pushes.values())
            if rows.record.has_live_push != live:
                rows.record = replace(rows.record, has_live_push=live)

    # Reads ------------------------------------------------------------------------------------------------------------

    def find(self, owner: Owner, agent: str, task_id: str) -> TaskRows | None:
        """The visible task with this id."""
        key = task_key_of(task_id)
        rows = self.tasks.get(TaskRef(owner, key)) if key else None
        if rows is not None and self._is(rows, agent, task_id):
            return rows
        for rows in self.tasks.values():
            if rows.record.alias and rows.record.ref.owner == owner and self._is(rows, agent, task_id):
                return rows
        return None

    @staticmethod
    def _is(rows: TaskRows, agent: str, task_id: str) -> bool:
        record = rows.record
        return record.visible and record.agent == agent and record.id == task_id

    def read(self, ref: TaskRef, history: int | None, artifacts: bool, budget: ResponseBudget) -> TaskSnapshot | None:
        """See dragoman.ports.Store."""
        rows = self.tasks.get(ref)
        return self.snapshot(rows, history, artifacts, budget) if rows is not None else None

    def snapshot(self, rows: TaskRows, history: int | None, artifacts: bool, budget: ResponseBudget) -> TaskSnapshot:
        """A task with its serialized Task."""
        return TaskSnapshot(rows.record, rows.task(history, artifacts=artifacts, budget=budget))

    def events(self, ref: TaskRef, after: int, limit: int) -> list[Event]:
        """See dragoman.ports.Store."""
        rows, found = self.tasks.get(ref), list[Event]()
        if rows is None:
            return found
        first = rows.log[0][0].sequence
        if first > after + 1:
            raise LogTruncated(first)
        for batch in rows.log:
            found += [
                Event(event.sequence, event.data, event.state, event.ends) for event in batch if event.sequence > after
            ]
            if len(found) >= limit or sum(len(event.data) for event in found) >= MAX_READ_EVENT_BYTES:
                break
        return found

    def messages(self, ref: TaskRef, after: int) -> TaskMessages | None:
        """See dragoman.ports.Store."""
        rows = self.tasks.get(ref)
        if rows is None:
            return None
        own = ref.owner.principal
        stored = [
            StoredMessage(
                row.number, row.role, unframe_message(row.data), row.envelope, "" if row.sender == own else row.sender
            )
            for row in rows.messages[after:]
        ]
        context = self.contexts.get((ref.owner, rows.record.context, rows.record.agent), ContextState())
        return TaskMessages(rows.record, stored, rows.state, rows.metadata, rows.total_usage, context)

    def pending_cancels(self) -> Iterator[tuple[TaskRecord, bytes, int]]:
        """The cancel requests that apply to a turn which runs or waits to run, and when each was made first."""
        for ref, (until, metadata, requested) in self.cancels.items():
            rows = self.tasks.get(ref)
            if rows is None:
                continue
            record = rows.record
            if record.last_completed < until and (record.session or record.ready):
                yield record, metadata, requested

    def live_sessions(self, now: int) -> Collection[int]:
        """The sessions that have not expired at `now`; at 0, those that have not certainly ended."""
        return {session for session, expiry in self.sessions.items() if expiry > now}


def _sum(amount: tuple[int, int], report: UsageReport) -> tuple[int, int]:
    return min(amount[0] + report.tokens, MAX_USAGE), min(amount[1] + report.cost, MAX_USAGE)
