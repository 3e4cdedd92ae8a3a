"""A task is a log, and this is its one door.

`Append` says what someone wants to add to a task and what must hold for it (the guard). `plan` decides, from the
task's head as the store has it inside its transaction, what is written: which events with which sequence, which
rows, which new head. It is a pure function, so every store writes the same log and each adapter holds only SQL.

Rules that live here and nowhere else:

- Terminal is final under every guard.
- Sequences have no gaps: event 1 is the Task as created, then status and artifact updates (1.0 §3.1.2).
- A status's time is the store's, and never goes back within a task.
- A message from the user is stored with the status update that accepts it. What a status said becomes history
  with the next status.
- A run that ends its turn while messages wait unread does not end it: the task stays WORKING, and the run is
  told to go `again`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from dragoman.core import frames, states
from dragoman.core.names import Owner

USER: Final = 1
AGENT: Final = 2
"""Roles of a stored message: the numbers of `lf.a2a.v1.Role`."""


@dataclass(frozen=True, slots=True)
class TaskRef:
    """Where a task is kept: its owner and its key of 16 bytes."""

    owner: Owner
    key: bytes


@dataclass(frozen=True, slots=True)
class Head:
    """What the store knows of a task without reading its log. Message numbers count from 1; 0 is none."""

    ref: TaskRef
    agent: str
    id: str
    context: str
    state: int
    updated: int
    """Time of the status, in milliseconds since the epoch."""
    last: int
    """Sequence of the last event."""
    messages: int = 0
    status_message: int = 0
    """The message that the present status carries: not yet history."""
    asked: int = 0
    """The message with which the agent last asked for input or authentication."""
    inbox: int = 0
    """The user's last message."""
    taken: int = 0
    """The user's last message that a run has seen."""
    session: int = 0
    """The worker session that runs the task; 0 when nobody does."""
    token: int = 0
    """Counts claims: a write under an older token is refused."""
    ready: bool = False
    """Waits for a worker to claim it."""
    visible: bool = True
    """False while a `direct` agent may still answer with a Message instead."""

    @property
    def running(self) -> bool:
        return self.session != 0


# What an append may carry --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NewTask:
    """The task to create. `metadata` is a serialized Struct."""

    agent: str
    id: str
    context: str
    metadata: bytes = b""
    visible: bool = True


@dataclass(frozen=True, slots=True)
class Inbound:
    """A user's message: a serialized Message, and the SendMessageRequest it came in, less the message."""

    message: bytes
    envelope: bytes = b""


@dataclass(frozen=True, slots=True)
class StatusChange:
    """The task is in `state` now. `message` is a serialized Message, `metadata` a serialized Struct."""

    state: int
    message: bytes = b""
    metadata: bytes = b""


@dataclass(frozen=True, slots=True)
class ArtifactChange:
    """An artifact is there, is replaced, or grows.

    head: framed fields of Artifact before its parts (id, name, description). parts: framed `parts`. tail: framed
    metadata and extensions. text: a chunk that Dragoman made itself, instead of parts; neighbours of that kind
    are shown as one text part. metadata: the event's own, a serialized Struct.
    """

    artifact_id: str
    head: bytes
    parts: bytes = b""
    tail: bytes = b""
    text: str | None = None
    append: bool = False
    last_chunk: bool = False
    metadata: bytes = b""

    @property
    def size(self) -> int:
        """Bytes this change adds, near enough to limit what waits uncommitted."""
        return len(self.head) + len(self.parts) + len(self.tail) + len(self.text or "") + len(self.metadata)


# Guards --------------------------------------------------------------------------------------------------------


class Refused(Exception):
    """The guard did not hold; nothing was written. `head` is the task as it is, None when there is none."""

    def __init__(self, reason: str, head: Head | None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.head = head


ABSENT: Final = "absent"
ENDED: Final = "ended"
EXISTS: Final = "exists"
FENCED: Final = "fenced"
RUNNING: Final = "running"
TAKEN: Final = "taken"
CHANGED: Final = "changed"


class Guard(Protocol):
    """What must hold of a task inside the store's transaction."""

    def refusal(self, head: Head | None) -> str | None:
        """The reason why an append may not be written, or None."""
        ...


@dataclass(frozen=True, slots=True)
class New:
    """There is no such task yet."""

    def refusal(self, head: Head | None) -> str | None:
        return EXISTS if head else None


@dataclass(frozen=True, slots=True)
class Runner:
    """The claim (session, token) still holds: the guard of whoever runs the task."""

    session: int
    token: int

    def refusal(self, head: Head | None) -> str | None:
        if head is None:
            return ABSENT
        return None if (head.session, head.token) == (self.session, self.token) else FENCED


@dataclass(frozen=True, slots=True)
class NotTerminal:
    """The task has not ended: the guard of a cancel, and of a message to a task that may be running."""

    def refusal(self, head: Head | None) -> str | None:
        return None if head else ABSENT


@dataclass(frozen=True, slots=True)
class NotRunning:
    """The task has not ended and nobody runs it: the guard of a message to an agent that refuses company."""

    def refusal(self, head: Head | None) -> str | None:
        if head is None:
            return ABSENT
        return RUNNING if head.running or head.ready else None


@dataclass(frozen=True, slots=True)
class Ready:
    """The task waits for a worker: the guard of a claim."""

    def refusal(self, head: Head | None) -> str | None:
        if head is None:
            return ABSENT
        return None if head.ready else TAKEN


@dataclass(frozen=True, slots=True)
class Version:
    """The last event is still number `last`: for read, decide, write."""

    last: int

    def refusal(self, head: Head | None) -> str | None:
        if head is None:
            return ABSENT
        return None if head.last == self.last else CHANGED


@dataclass(frozen=True, slots=True, kw_only=True)
class Append:
    """One change of one task, written whole or not at all."""

    task: TaskRef
    guard: Guard
    create: NewTask | None = None
    message: Inbound | None = None
    events: Sequence[StatusChange | ArtifactChange] = ()
    claim: int = 0
    """The session that takes the run, if this change leaves the task ready for one."""
    taken: int = 0
    """The user's last message that the run has seen."""
    memory: bytes | None = None
    """The agent's own JSON for this task (`turn.state`); None leaves it."""
    release: bool = False
    """The turn ends here, unless messages wait (`again`)."""
    discard: bool = False
    """Nobody saw the task and nobody will: it goes."""


@dataclass(slots=True)
class Event:
    """One event as clients may see it: a serialized `lf.a2a.v1.StreamResponse` and its sequence."""

    sequence: int
    data: bytes
    state: int = 0
    """The state it brings; 0 for an artifact."""
    ends: bool = False
    """The turn ends with it: a send's stream and a blocking send stop here."""
    forms: dict[object, bytes] = field(default_factory=dict)
    """Its encodings, one for each wire form, shared by all who read it."""


@dataclass(frozen=True, slots=True)
class Appended:
    """What was written: the new head, the events with their sequences, and what the run must know."""

    head: Head
    events: list[Event]
    again: bool = False
    """The turn did not end: unread messages wait, and the claim still holds."""
    claimed: bool = False
    """This append took the run for the session it named."""


# The rows of an append -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MessageRow:
    """A message framed as field 5 of Task (`history`)."""

    number: int
    role: int
    data: bytes
    envelope: bytes


@dataclass(frozen=True, slots=True)
class ArtifactRow:
    """A chunk of an artifact. `fresh` drops what there was; `text` rows hold UTF-8, others framed fields."""

    artifact_id: str
    head: bytes
    sequence: int
    data: bytes
    text: bool
    fresh: bool


@dataclass(slots=True)
class Plan:
    """What a store writes for one append. `before` is None for a new task."""

    before: Head | None
    head: Head
    change: Append
    events: list[Event] = field(default_factory=list)
    messages: list[MessageRow] = field(default_factory=list)
    artifacts: list[ArtifactRow] = field(default_factory=list)
    again: bool = False

    @property
    def log(self) -> bytes:
        """The bytes of the log row: the events of this append, each with its length before it."""
        return frames.delimited([event.data for event in self.events])

    @property
    def outcome(self) -> Appended:
        before = self.before.token if self.before else 0
        return Appended(self.head, self.events, self.again, self.head.token > before)


def plan(before: Head | None, change: Append, now: int) -> Plan:
    """Decides what `change` writes at `now` (milliseconds). Raises Refused, and then nothing may be written."""
    if before is not None and before.state in states.TERMINAL:
        raise Refused(EXISTS if change.create else ENDED, before)
    if reason := change.guard.refusal(before):
        raise Refused(reason, before)
    if before is None:
        made = _create(change, now)
    else:
        made = Plan(before, before, change)
        _accept(made, max(now, before.updated))
    _events(made, max(now, made.head.updated))
    _settle(made)
    return made


def _create(change: Append, now: int) -> Plan:
    new, message = change.create, change.message
    assert new is not None, "only New may meet no task"
    assert message is not None, "a task begins with a message"
    head = Head(
        change.task, new.agent, new.id, new.context, states.SUBMITTED, now,
        last=1, messages=1, inbox=1, ready=True, visible=new.visible,
    )  # fmt: skip
    row = MessageRow(1, USER, frames.frame(5, message.message), message.envelope)
    task = b"".join(
        (
            frames.text(1, new.id),
            frames.text(2, new.context),
            frames.frame(3, _status(states.SUBMITTED, b"", now)),
            row.data,
            frames.submessage(6, new.metadata),
        )
    )
    return Plan(None, head, change, [Event(1, frames.frame(1, task), states.SUBMITTED)], [row])


def _accept(made: Plan, now: int) -> None:
    """Stores a follow-up with the status update that accepts it (1.0 §3.4.3)."""
    message, head = made.change.message, made.head
    if message is None:
        return
    number = head.messages + 1
    made.messages.append(MessageRow(number, USER, frames.frame(5, message.message), message.envelope))
    waits = head.running or head.ready
    state = head.state if waits else states.WORKING
    made.head = replace(head, messages=number, inbox=number, status_message=0, ready=head.ready or not waits)
    _write_status(made, StatusChange(state), now)


def _events(made: Plan, now: int) -> None:
    change = made.change
    if change.taken > made.head.taken:
        made.head = replace(made.head, taken=change.taken)
    for event in change.events:
        if isinstance(event, StatusChange):
            if change.release and event.state not in _NEVER_AGAIN and made.head.inbox > made.head.taken:
                event = replace(event, state=states.WORKING)
                made.again = True
            _write_status(made, event, now)
        else:
            _write_artifact(made, event)
    if change.events and not made.head.visible:
        made.head = replace(made.head, visible=True)


_NEVER_AGAIN: Final = frozenset({states.FAILED, states.REJECTED, states.CANCELED, states.WORKING})
"""Ends that hold even when messages wait unread: those stay in the history (design: streams)."""


def _write_status(made: Plan, event: StatusChange, now: int) -> None:
    head = made.head
    messages, said, asked = head.messages, 0, head.asked
    if event.message:
        messages += 1
        said = messages
        made.messages.append(MessageRow(said, AGENT, frames.frame(5, event.message), b""))
    if event.state in states.INTERRUPTED:
        asked = said
    update = b"".join(
        (
            frames.text(1, head.id),
            frames.text(2, head.context),
            frames.frame(3, _status(event.state, event.message, now)),
            frames.submessage(4, event.metadata),
        )
    )
    sequence = head.last + 1
    made.events.append(Event(sequence, frames.frame(3, update), event.state))
    made.head = replace(
        head, state=event.state, updated=now, last=sequence,
        messages=messages, status_message=said, asked=asked,
    )  # fmt: skip


def _write_artifact(made: Plan, event: ArtifactChange) -> None:
    head, sequence = made.head, made.head.last + 1
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
    made.events.append(Event(sequence, frames.frame(4, update)))
    made.head = replace(head, last=sequence)
    text = event.text is not None and not event.tail
    data = event.text.encode() if text and event.text is not None else parts + event.tail
    rows = made.artifacts
    if text and event.append and rows and rows[-1].text and rows[-1].artifact_id == event.artifact_id:
        rows[-1] = replace(rows[-1], data=rows[-1].data + data)
    else:
        rows.append(ArtifactRow(event.artifact_id, event.head, sequence, data, text, not event.append))


def _settle(made: Plan) -> None:
    """Who runs the task after this."""
    change, head = made.change, made.head
    if change.release and not made.again:
        head = replace(head, session=0, ready=False)
        if made.events:
            made.events[-1].ends = True
    if change.claim and head.ready:
        head = replace(head, session=change.claim, token=head.token + 1, ready=False)
    made.head = head


def _status(state: int, message: bytes, now: int) -> bytes:
    return frames.integer(1, state) + frames.submessage(2, message) + frames.frame(3, frames.timestamp(now))


def status_bytes(head: Head, message_row: bytes) -> bytes:
    """The `status` field of Task, framed, from the head and the framed message it carries (empty for none)."""
    said = b"\x12" + message_row[1:] if message_row else b""  # field 5 of Task becomes field 2 of TaskStatus
    body = frames.integer(1, head.state) + said + frames.frame(3, frames.timestamp(head.updated))
    return frames.frame(3, body)
