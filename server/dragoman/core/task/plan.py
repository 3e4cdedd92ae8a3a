"""What an append writes: a pure function, so that every store writes the same log and each adapter holds only SQL.

`plan` decides from the task's head, as the store has it inside its transaction: which events with which sequence,
which rows, which new head. Rules that live here and nowhere else:

- Terminal is final under every guard.
- Sequences have no gaps: event 1 is the Task as created, then status and artifact updates (1.0 §3.1.2).
- A status's time is the store's, and never goes back within a task.
- A message from the user is stored with the status update that accepts it. What a status said becomes history
  with the next status.
- A run that ends its turn while messages wait unread does not end it: the task stays WORKING, and the run is
  told to go `again`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from dragoman.core.task import frames, states
from dragoman.core.task.log import (
    ENDED,
    EXISTS,
    ROLE_AGENT,
    ROLE_USER,
    Append,
    Appended,
    AppendRejected,
    ArtifactChange,
    Event,
    IncomingMessage,
    StatusChange,
    TaskRecord,
)


@dataclass(frozen=True, slots=True)
class MessageRow:
    """A message framed as field 5 of Task (`history`)."""

    number: int
    role: int
    data: bytes
    envelope: bytes
    sender: str = ""
    size: int = 0
    """What a user's message counts for as long as nobody has taken it up, in bytes."""


@dataclass(frozen=True, slots=True)
class ArtifactRow:
    """A chunk of an artifact. `fresh` drops what there was; `text` rows hold UTF-8, others framed fields."""

    artifact_id: str
    head: bytes
    sequence: int
    data: bytes
    text: bool
    replaces: bool


@dataclass(slots=True)
class Plan:
    """What a store writes for one append. `before` is None for a new task."""

    before: TaskRecord | None
    record: TaskRecord
    change: Append
    events: list[Event] = field(default_factory=list)
    messages: list[MessageRow] = field(default_factory=list)
    artifacts: list[ArtifactRow] = field(default_factory=list)
    turn_continues: bool = False

    @property
    def log_row(self) -> bytes:
        """The bytes of the log row: the events of this append, each with its length before it."""
        return frames.delimited([event.data for event in self.events])

    @property
    def outcome(self) -> Appended:
        before = self.before.token if self.before else 0
        return Appended(self.record, self.events, self.turn_continues, self.record.token > before)


def plan(before: TaskRecord | None, change: Append, now: int) -> Plan:
    """Decides what `change` writes at `now` (milliseconds). Raises Refused, and then nothing may be written."""
    if before is not None and before.state in states.TERMINAL:
        raise AppendRejected(EXISTS if change.create else ENDED, before)
    if reason := change.guard.rejection(before):
        raise AppendRejected(reason, before)
    if before is None:
        made = _create_task(change, now)
    else:
        made = Plan(before, before.copy(), change)
        _accept_message(made, max(now, before.updated))
    _apply_events(made, max(now, made.record.updated))
    _update_claim(made)
    return made


def _create_task(change: Append, now: int) -> Plan:
    new, message = change.create, change.message
    assert new is not None, "only New may meet no task"
    assert message is not None, "a task begins with a message"
    head = TaskRecord(
        change.task, new.agent, new.id, new.context, states.SUBMITTED, now, last_sequence=1, message_count=1,
        last_received=1, ready=True, visible=new.visible, dialect=new.dialect, alias=new.alias,
        principal=message.sender or change.task.owner.principal,
    )  # fmt: skip
    row = _user_message_row(change, message, 1)
    task = b"".join(
        (
            frames.text(1, new.id),
            frames.text(2, new.context),
            frames.frame(3, _encode_status(states.SUBMITTED, b"", now)),
            row.data,
            frames.submessage(6, new.metadata),
        )
    )
    return Plan(None, head, change, [Event(1, frames.frame(1, task), states.SUBMITTED)], [row])


MESSAGE_OVERHEAD_BYTES: Final = 256
"""Bytes that any message counts for besides its own: rows and indexes, so that empty ones are not free."""


def _user_message_row(change: Append, message: IncomingMessage, number: int) -> MessageRow:
    """The row of a user's message."""
    data = frames.frame(5, message.message)
    size = MESSAGE_OVERHEAD_BYTES + len(data) + len(message.envelope) + sum(blob.size for blob in change.blobs)
    return MessageRow(number, ROLE_USER, data, message.envelope, message.sender, size)


def _accept_message(draft: Plan, now: int) -> None:
    """Stores a follow-up with the status update that accepts it (1.0 §3.4.3)."""
    message, head = draft.change.message, draft.record
    if message is None:
        return
    number = head.message_count + 1
    draft.messages.append(_user_message_row(draft.change, message, number))
    waits = head.running or head.ready
    state = head.state if waits else states.WORKING
    head.message_count = head.last_received = number
    head.status_message = 0
    head.ready = head.ready or not waits
    _write_status(draft, StatusChange(state), now)


def _apply_events(draft: Plan, now: int) -> None:
    change, head = draft.change, draft.record
    head.last_delivered = max(head.last_delivered, change.last_delivered)
    for event in change.events:
        if isinstance(event, StatusChange):
            if (
                change.release
                and event.state not in _STATES_KEPT_ON_RELEASE
                and head.last_received > head.last_delivered
            ):
                event = replace(event, state=states.WORKING)
                draft.turn_continues = True
            _write_status(draft, event, now)
        else:
            _write_artifact(draft, event)
    if change.events:
        head.visible = True


_STATES_KEPT_ON_RELEASE: Final = frozenset({states.FAILED, states.REJECTED, states.CANCELED, states.WORKING})
"""Ends that hold even when messages wait unread: those stay in the history (design: streams)."""


def _write_status(draft: Plan, event: StatusChange, now: int) -> None:
    head = draft.record
    head.status_message = 0
    if event.message:
        head.message_count = head.status_message = head.message_count + 1
        draft.messages.append(MessageRow(head.message_count, ROLE_AGENT, frames.frame(5, event.message), b""))
    if event.state in states.INTERRUPTED:
        head.question = head.status_message
    update = b"".join(
        (
            frames.text(1, head.id),
            frames.text(2, head.context),
            frames.frame(3, _encode_status(event.state, event.message, now)),
            frames.submessage(4, event.metadata),
        )
    )
    head.last_sequence += 1
    head.state, head.updated = event.state, now
    draft.events.append(Event(head.last_sequence, frames.frame(3, update), event.state))


def _write_artifact(draft: Plan, event: ArtifactChange) -> None:
    head = draft.record
    head.last_sequence = sequence = head.last_sequence + 1
    parts = event.parts if event.text is None else frames.frame(4, frames.frame(1, event.text.encode()))
    update = b"".join(
        (
            frames.text(1, head.id),
            frames.text(2, head.context),
            frames.frame(3, event.head + parts + event.tail),
            frames.integer(4, event.append),
            frames.integer(5, event.last_chunk),
            frames.submessage(6, event.metadata),
        )
    )
    draft.events.append(Event(sequence, frames.frame(4, update)))
    text = event.text is not None and not event.tail
    data = event.text.encode() if text and event.text is not None else parts + event.tail
    rows = draft.artifacts
    if text and event.append and rows and rows[-1].text and rows[-1].artifact_id == event.artifact_id:
        rows[-1] = replace(rows[-1], data=rows[-1].data + data)
    else:
        rows.append(ArtifactRow(event.artifact_id, event.head, sequence, data, text, not event.append))


def _update_claim(draft: Plan) -> None:
    """Who runs the task after this."""
    change, head = draft.change, draft.record
    if change.release:
        head.attempt, head.last_completed = 1, head.last_delivered
    if change.retry:
        head.session, head.ready = 0, True
        head.attempt, head.last_delivered = head.attempt + 1, head.last_completed
    if change.release and not draft.turn_continues:
        head.session, head.ready = 0, False
        if draft.events:
            draft.events[-1].ends = True
    if change.claim_session and head.ready:
        head.session, head.token, head.ready = change.claim_session, head.token + 1, False
    if change.push_config is not None and not change.discard:
        head.has_live_push = True


def _encode_status(state: int, message: bytes, now: int) -> bytes:
    return frames.integer(1, state) + frames.submessage(2, message) + frames.frame(3, frames.timestamp(now))


def status_field(record: TaskRecord, message_row: bytes) -> bytes:
    """The `status` field of Task, framed, from the head and the framed message it carries (empty for none)."""
    said = b"\x12" + message_row[1:] if message_row else b""  # field 5 of Task becomes field 2 of TaskStatus
    body = frames.integer(1, record.state) + said + frames.frame(3, frames.timestamp(record.updated))
    return frames.frame(3, body)
