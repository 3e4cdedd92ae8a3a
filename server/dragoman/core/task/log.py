"""A task is a log, and this is its one door.

`Append` says what someone wants to add to a task and what must hold for it (the guard); `Appended` says what was
written. What an append means is decided in `core.plan`, what is kept of it in the stores.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Any, Final, NamedTuple, Protocol

from dragoman.core.limits.quotas import Quota, Usage, UsageReport
from dragoman.core.names import Owner
from dragoman.core.push.configuration import PushConfig

ROLE_USER: Final = 1
ROLE_AGENT: Final = 2
"""Roles of a stored message: the numbers of `lf.a2a.v1.Role`."""


class TaskRef(NamedTuple):
    """Where a task is kept: its owner and its key of 16 bytes.

    A tuple, since it is looked up by at each step of a task: a dataclass's hash costs three times as much.
    """

    owner: Owner
    key: bytes


@dataclass(slots=True)
class TaskRecord:
    """What the store knows of a task without reading its log. Message numbers count from 1; 0 is none.

    Never changed once it was handed out: `core.plan` works on a copy of its own.
    """

    ref: TaskRef
    agent: str
    id: str
    context: str
    state: int
    updated: int
    """Time of the status, in milliseconds since the epoch."""
    last_sequence: int
    """Sequence of the last event."""
    message_count: int = 0
    status_message: int = 0
    """The message that the present status carries: not yet history."""
    question: int = 0
    """The message with which the agent last asked for input or authentication."""
    last_received: int = 0
    """The user's last message."""
    last_delivered: int = 0
    """The user's last message that a run has seen."""
    session: int = 0
    """The worker session that runs the task; 0 when nobody does."""
    token: int = 0
    """Counts claims: a write under an older token is refused."""
    ready: bool = False
    """Waits for a worker to claim it."""
    visible: bool = True
    """False while a `direct` agent may still answer with a Message instead."""
    attempt: int = 1
    """How often the present turn was begun; more than once after a crash."""
    last_completed: int = 0
    """The user's last message that a turn which ended has dealt with."""
    has_live_push: bool = False
    """It has a push configuration that is live: something of it is, or will be, to be delivered."""
    dialect: str = ""
    """The dialect it was made in, as its maker calls it."""
    alias: bool = False
    """Its client chose `id` (A2A 0.1); otherwise it is the key's text."""
    principal: str = ""
    """Who made it: the owner's principal, unless tasks are shared."""

    @property
    def running(self) -> bool:
        return self.session != 0

    def copy(self) -> TaskRecord:
        """The same once more, to be changed."""
        return TaskRecord(*_field_values(self))


_field_values: Final = attrgetter(*(field.name for field in fields(TaskRecord)))


# What an append may carry --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NewTask:
    """The task to create. `metadata` is a serialized Struct."""

    agent: str
    id: str
    context: str
    metadata: bytes = b""
    visible: bool = True
    dialect: str = ""
    fresh_context: bool = False
    """The conversation began with this task, so that it has no state yet."""
    alias: bool = False
    """`id` is the client's choice: refused as EXISTS when its owner's agent has a task of that alias."""
    joinable: bool = False
    """Others may join its conversation, because the server named it."""
    parent: bytes = b""
    """The key of the task that it works for, of the same owner: what it uses, that uses too."""


@dataclass(frozen=True, slots=True)
class IncomingMessage:
    """A user's message: a serialized Message, and the SendMessageRequest it came in, less the message."""

    message: bytes
    envelope: bytes = b""
    sender: str = ""
    """The principal that sent it; empty for the owner's."""


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


class AppendRejected(Exception):
    """The guard did not hold; nothing was written. `head` is the task as it is, None when there is none."""

    def __init__(self, reason: str, record: TaskRecord | None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.record = record


@dataclass(frozen=True, slots=True)
class KeyRecord:
    """What an idempotency key was used for: the digest of the message, and the task or the Message it led to."""

    digest: bytes
    task: TaskRef | None
    """None for a task that was erased."""
    reply: bytes = b""
    sequence_before: int = 0
    """The last sequence before the message: 0 for one that made its task."""


class DuplicateKey(AppendRejected):
    """The idempotency key was used before; nothing was written."""

    def __init__(self, key_record: KeyRecord) -> None:
        super().__init__("repeated", None)
        self.key_record = key_record


class LogTruncated(Exception):
    """The log of a finished task no longer has the events asked for. `oldest` is the first sequence that it has."""

    def __init__(self, oldest_sequence: int) -> None:
        super().__init__(f"the log begins at {oldest_sequence}")
        self.oldest_sequence = oldest_sequence


ABSENT: Final = "absent"
ENDED: Final = "ended"
EXISTS: Final = "exists"
FENCED: Final = "fenced"
RUNNING: Final = "running"
NOT_READY: Final = "taken"
CHANGED: Final = "changed"
TOO_MANY_CONFIGS: Final = "crowded"
OVER_QUOTA: Final = "over"


class Guard(Protocol):
    """What must hold of a task inside the store's transaction."""

    def rejection(self, record: TaskRecord | None) -> str | None:
        """The reason why an append may not be written, or None."""
        ...


@dataclass(frozen=True, slots=True)
class New:
    """There is no such task yet."""

    def rejection(self, record: TaskRecord | None) -> str | None:
        return EXISTS if record else None


@dataclass(frozen=True, slots=True)
class ClaimHeld:
    """The claim (session, token) still holds: the guard of whoever runs the task."""

    session: int
    token: int

    def rejection(self, record: TaskRecord | None) -> str | None:
        if record is None:
            return ABSENT
        return None if (record.session, record.token) == (self.session, self.token) else FENCED


@dataclass(frozen=True, slots=True)
class NotTerminal:
    """The task has not ended: the guard of a cancel, and of a message to a task that may be running."""

    def rejection(self, record: TaskRecord | None) -> str | None:
        return None if record else ABSENT


@dataclass(frozen=True, slots=True)
class NotRunning:
    """The task has not ended and nobody runs it: the guard of a message to an agent that refuses company."""

    def rejection(self, record: TaskRecord | None) -> str | None:
        if record is None:
            return ABSENT
        return RUNNING if record.running or record.ready else None


@dataclass(frozen=True, slots=True)
class Ready:
    """The task waits for a worker: the guard of a claim."""

    def rejection(self, record: TaskRecord | None) -> str | None:
        if record is None:
            return ABSENT
        return None if record.ready else NOT_READY


@dataclass(frozen=True, slots=True)
class Version:
    """The last event is still number `last`: for read, decide, write."""

    last_sequence: int

    def rejection(self, record: TaskRecord | None) -> str | None:
        if record is None:
            return ABSENT
        return None if record.last_sequence == self.last_sequence else CHANGED


@dataclass(frozen=True, slots=True)
class IdempotencyKey:
    """An idempotency key, unique to an owner's agent, and the digest of the message that it stands for."""

    agent: str
    text: str
    digest: bytes
    owner: Owner | None = None
    """Whose key it is, where that is not the task's owner."""


@dataclass(frozen=True, slots=True)
class ContextState:
    """The agent's JSON for a conversation, and how often it was written."""

    data: bytes = b""
    version: int = 0


@dataclass(frozen=True, slots=True)
class Blob:
    """Bytes that are kept beside the rows: their SHA-256, and how many they are."""

    digest: bytes
    size: int


@dataclass(slots=True, kw_only=True)
class Append:
    """One change of one task, written whole or not at all.

    Never changed once it is on its way. Not frozen: a making would cost 2.0 us instead of 0.5, and each `replace`,
    of which a send had three, 4.
    """

    task: TaskRef
    guard: Guard
    create: NewTask | None = None
    message: IncomingMessage | None = None
    events: Sequence[StatusChange | ArtifactChange] = ()
    claim_session: int = 0
    """The session that takes the run, if this change leaves the task ready for one."""
    last_delivered: int = 0
    """The user's last message that the run has seen."""
    task_state: bytes | None = None
    """The agent's own JSON for this task (`turn.state`); None leaves it."""
    release: bool = False
    """The turn ends here, unless messages wait (`again`)."""
    discard: bool = False
    """Nobody saw the task and nobody will: it goes."""
    reply: bytes = b""
    """With `discard`: the serialized Message that came instead, kept for the idempotency key if there is one."""
    retry: bool = False
    """Nobody runs the task any more: its turn is to be begun again."""
    idempotency_key: IdempotencyKey | None = None
    """Refuses the append as Repeated when the key was used, and is used by it."""
    context_state: ContextState | None = None
    """The agent's JSON for the conversation; refused as CHANGED when its version is not the next one."""
    quota: Quota | None = None
    """Refuses a message as OVER (core.admission.Overrun) when it would take its sender over these limits."""
    participant: Owner | None = None
    """Takes part in the task's conversation from now on."""
    usage_report: UsageReport | None = None
    """What the agent reports to have used."""
    push_config: PushConfig | None = None
    """Who else is to be told from this change on; refused as CROWDED when the task has too many such already."""
    blobs: Sequence[Blob] = ()
    """What this change refers to; filled in by a store that keeps large parts beside its rows."""


@dataclass(slots=True)
class Event:
    """One event as clients may see it: a serialized `lf.a2a.v1.StreamResponse` and its sequence."""

    sequence: int
    data: bytes
    state: int = 0
    """The state it brings; 0 for an artifact."""
    ends: bool = False
    """The turn ends with it: a send's stream and a blocking send stop here."""
    cursor: str = ""
    """What a reader gives back to go on after it (core/task/cursors.py); empty for a Message, which has no task."""
    encodings: dict[object, Any] = field(default_factory=dict)
    """Its encodings, one for each wire form, shared by all who read it."""


@dataclass(frozen=True, slots=True)
class Appended:
    """What was written: the new head, the events with their sequences, and what the run must know."""

    record: TaskRecord
    events: list[Event]
    turn_continues: bool = False
    """The turn did not end: unread messages wait, and the claim still holds."""
    claimed: bool = False
    """This append took the run for the session it named."""
    usage: Usage | None = None
    """With a report: all that the task has used by now."""
