"""Changes and records for the contract suites, deterministic clocks and ids, and the model of a store."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from dragoman.core.names import Owner, make_task_key, task_id_of
from dragoman.core.task import frames, states
from dragoman.core.task.log import (
    ABSENT,
    CHANGED,
    ENDED,
    EXISTS,
    FENCED,
    NOT_READY,
    RUNNING,
    Append,
    Appended,
    ArtifactChange,
    ClaimHeld,
    Exists,
    IncomingMessage,
    New,
    NewTask,
    NoOpenTurn,
    Ready,
    StatusChange,
    TaskRef,
    Version,
)
from dragoman.ports import Store
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

OWNER: Final = Owner("default", "anonymous")
AGENT: Final = "echo"
SESSION: Final = 7

_count = itertools.count(1)


def message(text: str, role: int = pb.ROLE_USER) -> bytes:
    """Returns a serialized Message with one text part."""
    return pb.Message(message_id=f"m-{text}", role=pb.Role.Name(role), parts=[pb.Part(text=text)]).SerializeToString()


def new_ref(owner: Owner = OWNER) -> TaskRef:
    """Returns a new task reference; references sort in order of creation."""
    return TaskRef(owner, make_task_key(next(_count) * 1_000_000, bytes(8)))


def created(
    ref: TaskRef,
    *,
    text: str = "hello",
    agent: str = AGENT,
    context: str = "context",
    claim: int = 0,
    visible: bool = True,
) -> Append:
    """Returns a change that creates a task with one message."""
    new = NewTask(agent, task_id_of(ref.key), context, visible=visible, summary=text)
    return Append(task=ref, guard=New(), create=new, message=IncomingMessage(message(text)), claim_session=claim)


def status(state: int, text: str = "") -> StatusChange:
    """Returns a status, with an agent message if `text` is not empty."""
    return StatusChange(state, message(text, pb.ROLE_AGENT) if text else b"")


def artifact(name: str, *texts: str, append: bool = False) -> ArtifactChange:
    """Returns an artifact, or an addition to it, with one text part per text."""
    parts = b"".join(frames.frame(4, pb.Part(text=text).SerializeToString()) for text in texts)
    return ArtifactChange(name, frames.text(1, name), parts, append=append)


def chunk(name: str, text: str, *, append: bool = True) -> ArtifactChange:
    """Returns a text chunk in the form that the runtime writes."""
    return ArtifactChange(name, frames.text(1, name), text=text, append=append)


def file(name: str, content: bytes, *, append: bool = False) -> ArtifactChange:
    """Returns an artifact, or an addition to it, with a file."""
    part = pb.Part(raw=content, filename="f", media_type="text/x-test")
    return ArtifactChange(name, frames.text(1, name), frames.frame(4, part.SerializeToString()), append=append)


def file_message(name: str, content: bytes, role: int = pb.ROLE_USER) -> bytes:
    """Returns a serialized Message with a file."""
    parts = [pb.Part(raw=content, filename="f", media_type="text/x-test")]
    return pb.Message(message_id=f"m-{name}", role=pb.Role.Name(role), parts=parts).SerializeToString()


def by_runner(
    claimed: Appended, *events: StatusChange | ArtifactChange, last_delivered: int = 1, end: bool = False
) -> Append:
    """Returns an append by the holder of the claim in `claimed`; `end` ends the turn."""
    guard = ClaimHeld(claimed.record.session, claimed.record.token)
    return Append(task=claimed.record.ref, guard=guard, events=events, last_delivered=last_delivered, release=end)


def follow_up(ref: TaskRef, text: str, *, claim: int = 0) -> Append:
    """Returns a follow-up message of the user."""
    return Append(task=ref, guard=Exists(), message=IncomingMessage(message(text)), claim_session=claim)


def cancel(ref: TaskRef) -> Append:
    """Returns a change that cancels a task, and fences its runner if it has one."""
    return Append(task=ref, guard=Exists(), events=[StatusChange(states.CANCELED)], release=True)


async def running(store: Store, **details: str) -> Appended:
    """Creates a task that is claimed by SESSION."""
    return await store.append(created(new_ref(), claim=SESSION, **details))  # type: ignore[arg-type]  # only texts


async def finished(store: Store, *events: StatusChange | ArtifactChange, state: int = states.COMPLETED) -> Appended:
    """Creates a task that has these events and ended in `state`."""
    claimed = await running(store)
    return await store.append(by_runner(claimed, *events, StatusChange(state), end=True))


def texts(parts: Sequence[pb.Part]) -> list[str]:
    """Returns the text of each part."""
    return [part.text for part in parts]


class Clock:
    """Clock in milliseconds since the epoch that only the test advances."""

    def __init__(self, now: int = 1_700_000_000_000) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now

    def forward(self, seconds: float) -> None:
        """Advances the clock."""
        self.now += round(seconds * 1000)


class Ids:
    """Deterministic ids: the first task is `00000000-0000-7000-8000-000000000001`, the first context `context-1`.

    Messages and artifacts of agents are `id-1` and so on, in order of creation.
    """

    def __init__(self) -> None:
        self._tasks = itertools.count(1)
        self._contexts = itertools.count(1)
        self._others = itertools.count(1)
        self._messages = itertools.count(1)

    def key(self) -> bytes:
        """Returns a task key: 16 bytes in the form of a UUID version 7 that sort in order of creation."""
        return bytes.fromhex("00000000000070008000") + next(self._tasks).to_bytes(6, "big")

    def context(self) -> str:
        """Returns the id of a context."""
        return f"context-{next(self._contexts)}"

    def message(self) -> str:
        """Returns the id of a caller's message."""
        return f"message-{next(self._messages)}"

    def other(self) -> str:
        """Returns the id of a message or artifact of an agent."""
        return f"id-{next(self._others)}"


DUPLICATE_KEY = "repeated"
STATES_IGNORING_UNREAD = frozenset({states.FAILED, states.REJECTED, states.CANCELED, states.WORKING})
"""States that take effect even if messages are undelivered."""


@dataclass
class ModelEvent:
    """One event: its state (0 for an artifact), the text it adds, and whether it ends the turn."""

    state: int
    text: str = ""
    ends: bool = False


@dataclass
class ModelTask:
    """One task. `messages`: all messages. `status`: the number of the message in the current status, 0 for none."""

    ref: TaskRef
    agent: str
    visible: bool
    messages: list[str]
    state: int = states.SUBMITTED
    events: list[ModelEvent] = field(default_factory=lambda: [ModelEvent(states.SUBMITTED)])
    artifacts: dict[str, str] = field(default_factory=dict)
    status: int = 0
    task_state: bytes = b""
    last_received: int = 1
    last_delivered: int = 0
    last_completed: int = 0
    attempt: int = 1
    session: int = 0
    token: int = 0
    ready: bool = True

    @property
    def history(self) -> list[str]:
        """The history in the response to GetTask."""
        return [text for number, text in enumerate(self.messages, 1) if number != self.status]


@dataclass(frozen=True)
class AppendOutcome:
    """Result of an append: the reason of its rejection, or the last sequence, turn continuation and claim."""

    rejected: str = ""
    last: int = 0
    continues: bool = False
    claimed: bool = False


class StoreModel:
    """Model of a store: all tasks, in order of creation."""

    def __init__(self) -> None:
        self.tasks: dict[bytes, ModelTask] = {}
        self.keys: dict[tuple[str, str], bytes] = {}

    def apply(self, change: Append) -> AppendOutcome:
        """Applies a change as a store has to."""
        task = self.tasks.get(change.task.key)
        if reason := self._rejection(task, change):
            return AppendOutcome(reason)
        if change.idempotency_key is not None:
            self.keys[change.idempotency_key.agent, change.idempotency_key.text] = change.task.key
        if task is None:
            assert change.create is not None
            assert change.message is not None
            messages = [text_of(change.message.message)]
            task = ModelTask(change.task, change.create.agent, change.create.visible, messages)
            self.tasks[change.task.key] = task
        elif change.message is not None:
            task.messages.append(text_of(change.message.message))
            task.last_received = len(task.messages)
            if not task.session and not task.ready:
                task.state, task.ready = states.WORKING, True
            task.status = 0
            task.events.append(ModelEvent(task.state))
        continues, token = self._apply_events(task, change), task.token
        self._update_claim(task, change, continues=continues)
        if change.discard:
            del self.tasks[change.task.key]
            self.keys = {key: kept for key, kept in self.keys.items() if kept != change.task.key}
        return AppendOutcome("", len(task.events), continues, task.token > token)

    def _rejection(self, task: ModelTask | None, change: Append) -> str:
        guard = change.guard
        if (
            change.idempotency_key is not None
            and (change.idempotency_key.agent, change.idempotency_key.text) in self.keys
        ):
            return DUPLICATE_KEY
        if task is not None and task.state in states.TERMINAL:
            return EXISTS if change.create else ENDED
        if isinstance(guard, New):
            return EXISTS if task else ""
        if task is None:
            return ABSENT
        if isinstance(guard, ClaimHeld) and (task.session, task.token) != (guard.session, guard.token):
            return FENCED
        if isinstance(guard, Ready) and not task.ready:
            return NOT_READY
        if isinstance(guard, NoOpenTurn) and (task.session or task.ready):
            return RUNNING
        if isinstance(guard, Version) and guard.last_sequence != len(task.events):
            return CHANGED
        return ""

    def _apply_events(self, task: ModelTask, change: Append) -> bool:
        continues = False
        task.last_delivered = max(task.last_delivered, change.last_delivered)
        if change.task_state is not None:
            task.task_state = change.task_state
        for event in change.events:
            task.visible = True
            if isinstance(event, StatusChange):
                has_unread = (
                    change.release
                    and event.state not in STATES_IGNORING_UNREAD
                    and task.last_received > task.last_delivered
                )
                continues = continues or has_unread
                task.state = states.WORKING if has_unread else event.state
                task.status = 0
                if event.message:
                    task.messages.append(text_of(event.message))
                    task.status = len(task.messages)
                task.events.append(ModelEvent(task.state))
            else:
                text = text_in(event)
                before = task.artifacts.get(event.artifact_id, "") if event.append else ""
                task.artifacts[event.artifact_id] = before + text
                task.events.append(ModelEvent(0, text))
        return continues

    def _update_claim(self, task: ModelTask, change: Append, *, continues: bool) -> None:
        if change.release:
            task.attempt, task.last_completed = 1, task.last_delivered
        if change.retry:
            task.session, task.ready, task.attempt, task.last_delivered = 0, True, task.attempt + 1, task.last_completed
        if change.release and not continues:
            task.session, task.ready = 0, False
            if change.events:
                task.events[-1].ends = True
        if change.claim_session and task.ready:
            task.session, task.token, task.ready = change.claim_session, task.token + 1, False


def text_of(message: bytes) -> str:
    """Returns the text of a serialized Message."""
    return "".join(part.text for part in pb.Message.FromString(message).parts)


def text_in(change: ArtifactChange) -> str:
    """Returns the text that a change adds to its artifact."""
    if change.text is not None:
        return change.text
    return "".join(part.text for part in pb.Artifact.FromString(change.parts).parts)
