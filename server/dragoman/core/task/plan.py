"""Decides record, events, messages and artifacts of an append: a pure function, so every store writes the same log.

`plan` takes the task's record from inside the store's transaction. These rules are here and nowhere else:

- An ended task takes no append, under every guard. Status timestamps are the store's and never go back in a task.
- Sequences have no gaps: event 1 is the Task as created, then status and artifact updates (1.0 §3.1.2).
- A user's message is stored with the status update that accepts it; a status message joins the history with the next.
- A turn that ends while messages are unread continues: the task stays WORKING (`Appended.turn_continues`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from dragoman.core.task import frames, states
from dragoman.core.task.failures import TaskFailure, task_failure
from dragoman.core.task.log import (
    ENDED,
    EXISTS,
    ROLE_AGENT,
    ROLE_USER,
    Append,
    Appended,
    AppendRejected,
    ArtifactChange,
    ChunkTemplate,
    Event,
    IncomingMessage,
    StatusChange,
    TaskRecord,
)
from dragoman.core.task.projection import MAX_STATUS_TEXT, summary_of
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

MAX_APPENDED_ROW_BYTES: Final = 256 * 1024
"""Bytes of neighboring text chunks of one append that become one row; a longer chunk is a row of its own."""


@dataclass(slots=True)
class MessageRow:
    """A message framed as field 5 of Task (`history`).

    Not changed once it is planned. Not frozen, like the other rows: construction would cost several times as much.
    """

    number: int
    role: int
    data: bytes
    envelope: bytes
    sender: str = ""
    size: int = 0
    """Bytes that a user's message adds to its sender's `queued_bytes` until it is delivered."""


@dataclass(slots=True)
class ArtifactRow:
    """A chunk of an artifact. `replaces` drops earlier chunks; `text` rows hold UTF-8, others framed fields."""

    artifact_id: str
    head: bytes
    sequence: int
    data: bytes
    text: bool
    replaces: bool


@dataclass(slots=True)
class Plan:
    """The writes of one append. `before` is None for a new task."""

    before: TaskRecord | None
    record: TaskRecord
    change: Append
    events: list[Event]
    messages: list[MessageRow]
    artifacts: list[ArtifactRow]
    turn_continues: bool = False
    past_turn: int = 0
    """The number under which the steps of the current turn are kept from now on, because the next turn begins."""
    failure: TaskFailure | None = None  # why the task is FAILED from now on

    @property
    def log_row(self) -> bytes:
        """The bytes of the log row: the events of this append, each prefixed with its length."""
        return frames.delimited([event.data for event in self.events])

    @property
    def outcome(self) -> Appended:
        before = self.before.token if self.before else 0
        return Appended(self.record, self.events, self.turn_continues, self.record.token > before)


def plan(before: TaskRecord | None, change: Append, now: int) -> Plan:
    """Plans `change` at `now` (milliseconds since the epoch). Raises AppendRejected; then nothing may be written."""
    if before is not None and before.state in states.TERMINAL:
        raise AppendRejected(EXISTS if change.create else ENDED, before)
    if reason := change.guard.rejection(before) or (EXISTS if change.discard and before and before.visible else ""):
        raise AppendRejected(reason, before)
    if before is None:
        planned = _create_task(change, now)
    else:
        planned = Plan(before, before.copy(), change, [], [], [])
        _accept_message(planned, max(now, before.updated))
    _apply_events(planned, max(now, planned.record.updated))
    _update_claim(planned, max(now, planned.record.updated))
    return planned


def _create_task(change: Append, now: int) -> Plan:
    new, message = change.create, change.message
    assert new is not None, "only New may meet no task"
    assert message is not None, "a task begins with a message"
    record = TaskRecord(
        change.task, new.agent, new.id, new.context, states.SUBMITTED, now, last_sequence=1, message_count=1,
        last_received=1, ready=True, visible=new.visible, dialect=new.dialect, alias=new.alias,
        principal=message.sender or change.task.owner.principal, summary=new.summary, turn_at=now,
    )  # fmt: skip
    row = _user_message_row(change, message, 1)
    task = encode_task(record, b"", (row.data,), new.metadata)
    return Plan(None, record, change, [Event(1, frames.frame(1, task), states.SUBMITTED)], [row], [])


MESSAGE_OVERHEAD_BYTES: Final = 256
"""Bytes that each message counts for on top of its own, for rows and indexes: empty messages are not free."""


def _user_message_row(change: Append, message: IncomingMessage, number: int) -> MessageRow:
    data = frames.frame(5, message.message)
    size = MESSAGE_OVERHEAD_BYTES + len(data) + len(message.envelope) + sum(blob.size for blob in change.blobs)
    return MessageRow(number, ROLE_USER, data, message.envelope, message.sender, size)


def _accept_message(planned: Plan, now: int) -> None:
    """Adds a follow-up message and the status update that accepts it (1.0 §3.4.3)."""
    message, record = planned.change.message, planned.record
    if message is None:
        return
    number = record.message_count + 1
    planned.messages.append(_user_message_row(planned.change, message, number))
    waits = record.has_open_turn
    state = record.state if waits else states.WORKING
    record.message_count = record.last_received = number
    record.status_message = 0
    if not waits:
        record.ready, record.turn_at = True, now
    _write_status(planned, StatusChange(state), now)


def _apply_events(planned: Plan, now: int) -> None:
    change, record = planned.change, planned.record
    record.last_delivered = max(record.last_delivered, change.last_delivered)
    for event in change.events:
        if isinstance(event, StatusChange):
            if (
                change.release
                and event.state not in _STATES_KEPT_ON_RELEASE
                and record.last_received > record.last_delivered
            ):
                if event.state not in states.INTERRUPTED:  # the message answers a question: the turn goes on
                    planned.past_turn = record.last_delivered
                event = replace(event, state=states.WORKING)
                planned.turn_continues = True
            _write_status(planned, event, now)
        else:
            _write_artifact(planned, event)
    if change.events:
        record.visible = True


_STATES_KEPT_ON_RELEASE: Final = frozenset({states.FAILED, states.REJECTED, states.CANCELED, states.WORKING})
"""Statuses that a release writes as they are although messages are unread: FAILED, REJECTED and CANCELED end the task,
and WORKING only precedes the end of the turn in the same append."""


def _write_status(planned: Plan, event: StatusChange, now: int) -> None:
    record = planned.record
    record.status_message = 0
    if event.message:
        record.message_count = record.status_message = record.message_count + 1
        planned.messages.append(MessageRow(record.message_count, ROLE_AGENT, frames.frame(5, event.message), b""))
    if event.state in states.INTERRUPTED:
        record.question = record.status_message
    fields = frames.integer(1, event.state) + frames.submessage(2, event.message)
    status = frames.frame(3, fields + frames.frame(3, frames.timestamp(now)))
    update = _task_fields(record.id, record.context) + status + frames.submessage(4, event.metadata)
    record.last_sequence += 1
    record.state, record.updated = event.state, now
    record.status_text = ""
    if event.message and event.state in states.EXPLAINED:
        record.status_text = summary_of(pb.Message.FromString(event.message), MAX_STATUS_TEXT)
    if event.state == states.FAILED:
        planned.failure = task_failure(event.failure, event.message, record.agent, record.attempt)
    planned.events.append(Event(record.last_sequence, frames.frame(3, update), event.state))


def _write_artifact(planned: Plan, event: ArtifactChange) -> None:
    record = planned.record
    record.last_sequence = sequence = record.last_sequence + 1
    content = b"" if event.text is None else event.text.encode()
    parts = event.parts if event.text is None else frames.frame(4, frames.frame(1, content))
    text = event.text is not None and not event.tail
    new_template = _chunk_template if text else _artifact_template
    template = new_template(record.id, record.context, event.head, event.append, event.last_chunk, event.metadata)
    update = template.before + frames.frame(3, event.head + parts + event.tail) + template.after
    chunk = (template, event.text) if text and event.text else None
    planned.events.append(Event(sequence, frames.frame(4, update), chunk=chunk))
    data = content if text else parts + event.tail
    rows = planned.artifacts
    last = rows[-1] if rows else None
    if text and event.append and last and last.text and last.artifact_id == event.artifact_id and _fits(last, data):
        last.data += data
    else:
        rows.append(ArtifactRow(event.artifact_id, event.head, sequence, data, text, not event.append))


def _artifact_template(
    task_id: str, context: str, head: bytes, append: bool, last_chunk: bool, metadata: bytes
) -> ChunkTemplate:
    after = frames.integer(4, append) + frames.integer(5, last_chunk) + frames.submessage(6, metadata)
    return ChunkTemplate(_task_fields(task_id, context), after)


_chunk_template: Final = lru_cache(maxsize=256)(_artifact_template)
"""A task has many chunks within a short time."""


def _fits(row: ArtifactRow, data: bytes) -> bool:
    """Whether a row takes more text: readers take rows as a whole."""
    return len(row.data) + len(data) <= MAX_APPENDED_ROW_BYTES


def _update_claim(planned: Plan, now: int) -> None:
    """Sets who runs the task after this append, and since when."""
    change, record = planned.change, planned.record
    if change.release:
        record.attempt, record.last_completed = 1, record.last_delivered
    if change.retry or change.suspend:
        record.session, record.ready, record.wake_at = 0, not change.wake_at, change.wake_at
        record.attempt, record.last_delivered = record.attempt + change.retry, record.last_completed
    if change.wake:
        record.ready, record.wake_at = True, 0
    if change.retry or change.suspend or change.wake or planned.turn_continues:
        record.turn_at = now
    if change.release and not planned.turn_continues:
        record.session, record.ready, record.wake_at = 0, False, 0
        if planned.events:
            planned.events[-1].ends = True
    if change.claim_session and record.ready:
        record.session, record.token, record.ready = change.claim_session, record.token + 1, False
        record.turn_at = now
    if change.push_config is not None and not change.discard:
        record.has_live_push = True


@lru_cache(maxsize=256)
def _task_fields(task_id: str, context: str) -> bytes:
    """Fields 1 and 2 of a Task and of its updates: a task has several of them within a short time."""
    return frames.text(1, task_id) + frames.text(2, context)


def encode_task(record: TaskRecord, status_message: bytes, rows: Sequence[bytes], metadata: bytes) -> bytes:
    """A serialized Task, as the first event of its log and every reader of a store show it.

    status_message: the row of the status's message, empty for none. rows: those of artifacts, then of messages, framed
    as fields 4 and 5 of Task. metadata: a serialized Struct.
    """
    message_field = b"\x12" + status_message[1:] if status_message else b""  # field 5 of Task, 2 of TaskStatus
    status = frames.integer(1, record.state) + message_field + frames.frame(3, frames.timestamp(record.updated))
    head = _task_fields(record.id, record.context) + frames.frame(3, status)
    return b"".join((head, *rows, frames.submessage(6, metadata)))
