"""What a store does, in plain Python and without a disk: the model that `StoreMachine` compares stores with.

It says the same as `core.plan` in another way, on purpose: whoever changes one of them has to mean it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from dragoman.core import states
from dragoman.core.log import (
    ABSENT,
    CHANGED,
    ENDED,
    EXISTS,
    FENCED,
    RUNNING,
    TAKEN,
    Append,
    ArtifactChange,
    New,
    NotRunning,
    Ready,
    Runner,
    StatusChange,
    TaskRef,
    Version,
)
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

REPEATED = "repeated"
LASTING = frozenset({states.FAILED, states.REJECTED, states.CANCELED, states.WORKING})
"""States that end a turn, or do not, whatever messages wait unread."""


@dataclass
class ModelEvent:
    """One event: the state it brings (0 for an artifact), what it adds, and whether the turn ends with it."""

    state: int
    text: str = ""
    ends: bool = False


@dataclass
class ModelTask:
    """One task. `messages` are all there ever were; `status` is the number of the one that the status carries."""

    ref: TaskRef
    agent: str
    visible: bool
    messages: list[str]
    state: int = states.SUBMITTED
    events: list[ModelEvent] = field(default_factory=lambda: [ModelEvent(states.SUBMITTED)])
    artifacts: dict[str, str] = field(default_factory=dict)
    status: int = 0
    memory: bytes = b""
    inbox: int = 1
    taken: int = 0
    answered: int = 0
    attempt: int = 1
    session: int = 0
    token: int = 0
    ready: bool = True

    @property
    def history(self) -> list[str]:
        """What GetTask shows as history."""
        return [text for number, text in enumerate(self.messages, 1) if number != self.status]


@dataclass(frozen=True)
class Outcome:
    """What an append comes to: why it is refused; or its last sequence, whether the run goes again, and the claim."""

    refused: str = ""
    last: int = 0
    again: bool = False
    claimed: bool = False


class StoreModel:
    """All tasks, in the order in which they were made."""

    def __init__(self) -> None:
        self.tasks: dict[bytes, ModelTask] = {}
        self.keys: dict[tuple[str, str], bytes] = {}

    def apply(self, change: Append) -> Outcome:
        """Does what a store has to do with this change."""
        task = self.tasks.get(change.task.key)
        if reason := self._refusal(task, change):
            return Outcome(reason)
        if change.key is not None:
            self.keys[change.key.agent, change.key.text] = change.task.key
        if task is None:
            assert change.create is not None
            assert change.message is not None
            said = [text_of(change.message.message)]
            task = ModelTask(change.task, change.create.agent, change.create.visible, said)
            self.tasks[change.task.key] = task
        elif change.message is not None:
            task.messages.append(text_of(change.message.message))
            task.inbox = len(task.messages)
            if not task.session and not task.ready:
                task.state, task.ready = states.WORKING, True
            task.status = 0
            task.events.append(ModelEvent(task.state))
        again, token = self._put(task, change), task.token
        self._settle(task, change, again=again)
        if change.discard:
            del self.tasks[change.task.key]
            self.keys = {key: kept for key, kept in self.keys.items() if kept != change.task.key}
        return Outcome("", len(task.events), again, task.token > token)

    def _refusal(self, task: ModelTask | None, change: Append) -> str:
        guard = change.guard
        if change.key is not None and (change.key.agent, change.key.text) in self.keys:
            return REPEATED
        if task is not None and task.state in states.TERMINAL:
            return EXISTS if change.create else ENDED
        if isinstance(guard, New):
            return EXISTS if task else ""
        if task is None:
            return ABSENT
        if isinstance(guard, Runner) and (task.session, task.token) != (guard.session, guard.token):
            return FENCED
        if isinstance(guard, Ready) and not task.ready:
            return TAKEN
        if isinstance(guard, NotRunning) and (task.session or task.ready):
            return RUNNING
        if isinstance(guard, Version) and guard.last != len(task.events):
            return CHANGED
        return ""

    def _put(self, task: ModelTask, change: Append) -> bool:
        again = False
        task.taken = max(task.taken, change.taken)
        if change.memory is not None:
            task.memory = change.memory
        for event in change.events:
            task.visible = True
            if isinstance(event, StatusChange):
                waits = change.release and event.state not in LASTING and task.inbox > task.taken
                again = again or waits
                task.state = states.WORKING if waits else event.state
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
        return again

    def _settle(self, task: ModelTask, change: Append, *, again: bool) -> None:
        if change.release:
            task.attempt, task.answered = 1, task.taken
        if change.retry:
            task.session, task.ready, task.attempt, task.taken = 0, True, task.attempt + 1, task.answered
        if change.release and not again:
            task.session, task.ready = 0, False
            if change.events:
                task.events[-1].ends = True
        if change.claim and task.ready:
            task.session, task.token, task.ready = change.claim, task.token + 1, False


def text_of(message: bytes) -> str:
    """The text of a serialized Message."""
    return "".join(part.text for part in pb.Message.FromString(message).parts)


def text_in(change: ArtifactChange) -> str:
    """The text that a change adds to its artifact."""
    if change.text is not None:
        return change.text
    return "".join(part.text for part in pb.Artifact.FromString(change.parts).parts)
