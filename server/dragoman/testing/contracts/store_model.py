"""Model of a store: what every append must do, in memory and in the plainest form."""

from __future__ import annotations

from dataclasses import dataclass, field

from dragoman.core.task import states
from dragoman.core.task.log import (
    ABSENT,
    CHANGED,
    ENDED,
    EXISTS,
    FENCED,
    NOT_READY,
    RUNNING,
    Append,
    ArtifactChange,
    ClaimHeld,
    New,
    NoOpenTurn,
    Ready,
    StatusChange,
    TaskRef,
    Version,
)
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

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
