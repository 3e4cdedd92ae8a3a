"""The types of a task's event log: records, appends, guards and events.

`Append` is the only way to write to a task: it holds the change and its precondition, the guard. `Appended` is what was
written. `core.task.plan` decides what an append writes; the stores execute that decision.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Any, Final, NamedTuple, Protocol

from dragoman.core.limits.quotas import Quota, Usage, UsageReport
from dragoman.core.names import Owner
from dragoman.core.push.configuration import PushConfig
from dragoman.core.task.steps import StepRecord

ROLE_USER: Final = 1
ROLE_AGENT: Final = 2
"""Roles of a stored message: the numbers of `lf.a2a.v1.Role`."""


class TaskRef(NamedTuple):
    """The primary key of a task: its owner and its key of 16 bytes.

    A tuple, because every step of a task looks it up: a dataclass's hash costs three times as much.
    """

    owner: Owner
    key: bytes


@dataclass(slots=True)
class TaskRecord:
    """The task's row: what the store knows without reading the log. Message numbers count from 1; 0 is none.

    Never changed once it was handed out: `core.task.plan` works on its own copy. The reference page of the schema shows
    the docstrings of its fields.
    """

    ref: TaskRef
    agent: str
    id: str
    context: str
    state: int
    updated: int
    """Timestamp of the status, in milliseconds since the epoch."""
    last_sequence: int
    """Sequence of the last event."""
    message_count: int = 0
    status_message: int = 0
    """The message of the current status, which is not part of the history yet."""
    question: int = 0
    """The message with which the agent last asked for input or authentication."""
    last_received: int = 0
    """The user's last message."""
    last_delivered: int = 0
    """The user's last message that the agent has received."""
    session: int = 0
    """The session that runs the task; 0 for none."""
    token: int = 0
    """The fencing token. Each claim increments it; a write under an older token is rejected."""
    ready: bool = False
    """Waiting to be claimed."""
    visible: bool = True
    """False while a `direct` agent may still reply with a Message instead of a task."""
    attempt: int = 1
    """The number of the current turn's attempt: above 1 after a crash."""
    last_completed: int = 0
    """The user's last message that a completed turn has handled."""
    has_live_push: bool = False
    """Whether a push configuration of it is live: it has, or will have, events to deliver."""
    wake_at: int = 0
    """When its turn continues, in milliseconds since the epoch; 0 unless it sleeps."""
    turn_at: int = 0
    """When its current or last turn was claimed; while one waits to be claimed, since when. Milliseconds as above."""
    status_text: str = ""
    """The beginning of the error or question in its status message; empty in other states."""
    dialect: str = ""
    """The dialect of the request that created it."""
    alias: bool = False
    """Whether the client chose `id` (A2A 0.1); otherwise `id` is the text of the key."""
    principal: str = ""
    """The principal that created it: the owner's, unless tasks are shared."""
    summary: str = ""
    """The beginning of its first message; empty for tasks of releases that did not store it."""

    @property
    def running(self) -> bool:
        return self.session != 0

    @property
    def has_open_turn(self) -> bool:
        """Whether a turn of it runs, waits to be claimed, or sleeps."""
        return self.ready or self.session != 0 or self.wake_at != 0

    def copy(self) -> TaskRecord:
        """A copy that may be changed."""
        return TaskRecord(*_field_values(self))


_field_values: Final = attrgetter(*(field.name for field in fields(TaskRecord)))


# What an append may carry --------------------------------------------------------------------------------------


@dataclass(slots=True)
class NewTask:
    """The task to create. `metadata` is a serialized Struct."""

    agent: str
    id: str
    context: str
    metadata: bytes = b""
    visible: bool = True
    dialect: str = ""
    fresh_context: bool = False
    """Whether the conversation began with this task and so has no state yet."""
    alias: bool = False
    """Whether the client chose `id`. Rejected as EXISTS when the owner's agent already has a task of that alias."""
    restarts: bool = False
    """Whether a task of that alias that has ended gives it up: from then on its id is the text of its key."""
    summary: str = ""  # the beginning of its first message
    parent: bytes = b""
    """The key of the parent task, of the same owner. Usage of this task also counts for the parent."""


@dataclass(slots=True)
class IncomingMessage:
    """A user's message: a serialized Message, and the SendMessageRequest it came in, less the message."""

    message: bytes
    envelope: bytes = b""
    sender: str = ""  # the principal that sent it; empty for the owner


@dataclass(slots=True)
class StatusChange:
    """The task enters `state`. `message` is a serialized Message, `metadata` a serialized Struct."""

    state: int
    message: bytes = b""
    metadata: bytes = b""
    failure: bytes = b""  # why it is FAILED, for operators and in no event: a serialized `worker.v1.Failure`


@dataclass(slots=True)
class ArtifactChange:
    """An artifact is created, replaced or extended.

    head: framed fields of Artifact before its parts (id, name, description). parts: framed parts. tail: framed
    metadata and extensions. text: a text chunk that Dragoman created, instead of parts; adjacent text chunks are shown
    as one text part. metadata: the event's own, a serialized Struct.
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
        """Bytes that this change adds, approximately: used to limit uncommitted data."""
        return len(self.head) + len(self.parts) + len(self.tail) + len(self.text or "") + len(self.metadata)


MAX_READ_EVENT_BYTES: Final = 4 * 1024 * 1024  # bytes of events that are read at a time, and one append more


# Guards --------------------------------------------------------------------------------------------------------


class AppendRejected(Exception):
    """The guard did not hold; nothing was written. `record` is the current task, None when it does not exist."""

    def __init__(self, reason: str, record: TaskRecord | None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.record = record


@dataclass(frozen=True, slots=True)
class KeyRecord:
    """The earlier use of an idempotency key: the digest of its message, and the resulting task or Message."""

    digest: bytes
    task: TaskRef | None  # None for a task that was erased
    reply: bytes = b""
    sequence_before: int = 0
    """The last sequence before the message: 0 when the message created the task."""


class DuplicateKey(AppendRejected):
    """The idempotency key was used before; nothing was written."""

    def __init__(self, key_record: KeyRecord) -> None:
        super().__init__("repeated", None)
        self.key_record = key_record


class LogTruncated(Exception):
    """The log of a finished task no longer has the requested events. `oldest_sequence` is the first that it has."""

    def __init__(self, oldest_sequence: int) -> None:
        super().__init__(f"the log begins at {oldest_sequence}")
        self.oldest_sequence = oldest_sequence


ABSENT: Final = "absent"
ENDED: Final = "ended"
EXISTS: Final = "exists"
FENCED: Final = "fenced"
RUNNING: Final = "running"
NOT_READY: Final = "not_ready"
CHANGED: Final = "changed"
TOO_MANY_CONFIGS: Final = "too_many_configs"
OVER_QUOTA: Final = "over_quota"


class Guard(Protocol):
    """The precondition of an append, checked inside the store's transaction.

    `core.task.plan.plan` rejects an append to a task that has ended before it asks the guard.
    """

    def rejection(self, record: TaskRecord | None) -> str | None:
        """Returns the reason to reject the append, or None."""


@dataclass(frozen=True, slots=True)
class New:
    """The task does not exist yet."""

    def rejection(self, record: TaskRecord | None) -> str | None:
        return EXISTS if record else None


@dataclass(slots=True)
class ClaimHeld:
    """The claim (session, token) still holds: the guard of the turn."""

    session: int
    token: int

    def rejection(self, record: TaskRecord | None) -> str | None:
        if record is None:
            return ABSENT
        return None if (record.session, record.token) == (self.session, self.token) else FENCED


@dataclass(frozen=True, slots=True)
class Exists:
    """The task exists: the guard of a message to a task that may be running."""

    def rejection(self, record: TaskRecord | None) -> str | None:
        return None if record else ABSENT


@dataclass(frozen=True, slots=True)
class NoOpenTurn:
    """No turn runs, waits or sleeps: the guard of an answer, and of a message under `while_working="refuse"`."""

    def rejection(self, record: TaskRecord | None) -> str | None:
        if record is None:
            return ABSENT
        return RUNNING if record.has_open_turn else None


@dataclass(frozen=True, slots=True)
class NotClaimed:
    """No session runs the task: the guard of a cancel that ends the task without an agent.

    `last_sequence`: of the task's last event when the cancel was decided; 0 for any.
    """

    last_sequence: int = 0

    def rejection(self, record: TaskRecord | None) -> str | None:
        if record is None:
            return ABSENT
        if record.running:
            return RUNNING
        return CHANGED if self.last_sequence not in (0, record.last_sequence) else None


@dataclass(frozen=True, slots=True)
class Ready:
    """The task is waiting to be claimed: the guard of a claim."""

    def rejection(self, record: TaskRecord | None) -> str | None:
        if record is None:
            return ABSENT
        return None if record.ready else NOT_READY


@dataclass(frozen=True, slots=True)
class Asleep:
    """The turn sleeps until its `wake_at`: the guard of waking it."""

    def rejection(self, record: TaskRecord | None) -> str | None:
        if record is None:
            return ABSENT
        return None if record.wake_at else NOT_READY


@dataclass(frozen=True, slots=True)
class Version:
    """The last event is still `last_sequence`: for a read-decide-write cycle."""

    last_sequence: int

    def rejection(self, record: TaskRecord | None) -> str | None:
        if record is None:
            return ABSENT
        return None if record.last_sequence == self.last_sequence else CHANGED


IDEMPOTENCY_KEY_TTL_MS: Final = 7 * 24 * 3600 * 1000


def is_key_expired(created: int, now: int) -> bool:
    """Whether a key that was used at `created` may be used for something else."""
    return created + IDEMPOTENCY_KEY_TTL_MS < now


@dataclass(frozen=True, slots=True)
class IdempotencyKey:
    """An idempotency key, unique per owner and agent, and the digest of its message."""

    agent: str
    text: str
    digest: bytes
    owner: Owner | None = None  # the owner of the key, when it is not the task's owner


@dataclass(frozen=True, slots=True)
class ContextState:
    """The agent's JSON for a conversation, and the number of its last write."""

    data: bytes = b""
    version: int = 0


@dataclass(frozen=True, slots=True)
class Blob:
    """Content stored beside the rows: its SHA-256 and its size in bytes."""

    digest: bytes
    size: int


@dataclass(slots=True, kw_only=True)
class Append:
    """One atomic change of one task.

    Not changed after it was submitted, and neither is what it carries. Not frozen, because construction would cost
    2.0 us instead of 0.5, and each `replace` (a send had three) 4 us: a frozen class sets each field by a call.
    """

    task: TaskRef
    guard: Guard
    create: NewTask | None = None
    message: IncomingMessage | None = None
    events: Sequence[StatusChange | ArtifactChange] = ()
    claim_session: int = 0
    """The session that claims the task, if this change leaves it ready."""
    last_delivered: int = 0  # the user's last message that the agent has received
    task_state: bytes | None = None  # the agent's JSON for this task (`turn.state`); None leaves it unchanged
    task_metadata: bytes = b""  # a serialized Struct, merged into the task's metadata by key
    release: bool = False  # the turn ends here, unless messages are waiting (`Appended.turn_continues`)
    discard: bool = False  # deletes the task; rejected if it is visible: a delayed write may have shown it
    reply: bytes = b""
    """With `discard`: the serialized Message that replaces the task, stored under the idempotency key if any."""
    retry: bool = False  # the claim is released and the turn is to be attempted again
    suspend: bool = False  # the claim is released and the turn is to continue in the same attempt
    wake_at: int = 0  # with `retry` or `suspend`: not before this time, in milliseconds since the epoch
    wake: bool = False  # the sleeping turn is ready to be claimed
    steps: Sequence[StepRecord] = ()  # steps of the turn to store, each in place of the same one stored before
    idempotency_key: IdempotencyKey | None = None
    """Stored with the append. Raises DuplicateKey when it was used before."""
    context_state: ContextState | None = None
    """The agent's JSON for the conversation; rejected as CHANGED when its version is not the next one."""
    quota: Quota | None = None
    """Raises core.limits.admission.QuotaExceeded when the message would take its sender over these limits."""
    usage_report: UsageReport | None = None  # usage that the agent reports
    turn_us: int = 0
    """With `release`, `retry`, `suspend` or `discard`: microseconds that the turn took, for `core.daily_usage`."""
    push_config: PushConfig | None = None
    """A push configuration that starts with this change; rejected as TOO_MANY_CONFIGS when the task has too many."""
    blobs: Sequence[Blob] = ()  # the blobs that this change refers to; set by the store when it offloads large parts

    def may_have_part_over(self, size: int) -> bool:
        """Whether it may contain a part of more than `size` bytes, judged by what its parts are in."""
        for step in self.steps:
            if step.size > size:
                return True
        for event in self.events:
            if len(event.message if isinstance(event, StatusChange) else event.parts) > size:
                return True
        return self.message is not None and len(self.message.message) > size


@dataclass(slots=True, eq=False)
class ChunkTemplate:
    """The parts that text chunks of one artifact share: everything but the text."""

    before: bytes  # the serialized TaskArtifactUpdateEvent before its artifact, and after it
    after: bytes
    encodings: dict[object, list[bytes]] = field(default_factory=dict)  # by wire form: what stands around the text


@dataclass(slots=True)
class Event:
    """One event of the log: a serialized `lf.a2a.v1.StreamResponse` and its sequence."""

    sequence: int
    data: bytes
    state: int = 0  # the task's new state; 0 for an artifact
    ends: bool = False  # whether the turn ends with it: a send's stream and a blocking send stop here
    cursor: str = ""
    """The position to resume after this event (core/task/cursors.py); empty for a Message, which has no task."""
    encodings: dict[object, Any] = field(default_factory=dict)  # its encodings by wire form, shared by all readers
    chunk: tuple[ChunkTemplate, str] | None = field(default=None, compare=False, repr=False)
    """A text chunk in its writer's memory: the same as `data`, cheaper to encode."""


@dataclass(slots=True)
class Appended:
    """The result of an append: the new record and the events with their sequences. Never changed; not frozen."""

    record: TaskRecord
    events: list[Event]
    turn_continues: bool = False
    """The turn did not end, because unread messages are waiting; the claim still holds."""
    claimed: bool = False  # whether this append claimed the task for its `claim_session`
    usage: Usage | None = None  # with a usage report: the task's total usage
