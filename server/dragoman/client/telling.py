"""What a server says of one task, as events for its caller: each thing once, whatever it was learnt from. No I/O.

Streams say what is added; a Task says everything again. Of each artifact it is known what was told already
(`dragoman.core.seen`), so that a Task tells only what is new, or that an artifact was replaced.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from dragoman.client.events import (
    Artifact,
    Data,
    Event,
    File,
    Finished,
    Question,
    Result,
    Status,
    Text,
    contents,
    state_name,
    text_of,
)
from dragoman.client.failure import Nonsense
from dragoman.client.resume import unmarked
from dragoman.core import states
from dragoman.core.seen import Content
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

NO_STATUS: Final = b""


class Teller:
    """One task, as far as its caller was told of it."""

    def __init__(self, cursor: str = "") -> None:
        self.task = pb.Task()
        """The task as it was told: status, and artifacts as far as they came."""
        self.message: pb.Message | None = None
        """The message that answered instead of a task."""
        self.cursor = cursor
        """The place after what was told; empty where the server has no cursors."""
        self.whole = not cursor
        """Everything of the task was seen; otherwise only what came after a cursor."""
        self._kept: dict[str, pb.Artifact] = {}
        self._seen: dict[str, Content] = {}
        self._told: set[str] = set()
        """Ids of messages that were told."""
        self._was_sent = False
        """A message was just sent: some servers begin another task for each, whichever it names."""
        self._waited = NO_STATUS
        """The status with which it asked something that was answered since."""

    @property
    def state(self) -> int:
        """The state that the task is in, as far as is known."""
        return self.task.status.state

    @property
    def is_over(self) -> bool:
        """Nothing more will come: the task has ended, or a message answered."""
        return self.message is not None or self.state in states.TERMINAL

    @property
    def asks(self) -> bool:
        """The task waits for its caller, and has not heard from it since."""
        return self.state in states.INTERRUPTED and _mark(self.task.status) != self._waited

    @property
    def has_artifacts(self) -> bool:
        """Whether an artifact was seen."""
        return bool(self._seen)

    @property
    def result(self) -> Result:
        """What is known."""
        return Result(self.task, self.message, self.cursor)

    def know(self, task: pb.Task) -> None:
        """Takes a task for told, before a message goes to it."""
        for _ in self._snapshot(task):
            pass
        self.heard()

    def heard(self) -> None:
        """The task was sent a message: what it asked until now it does not ask again."""
        self._was_sent = True
        self._waited = _mark(self.task.status) if self.state in states.INTERRUPTED else NO_STATUS

    def tell(self, raw: pb.StreamResponse) -> Iterator[Event]:
        """The events in what a server says. Raises Nonsense for what is about another task."""
        after = _cursor(raw)
        events = list(self._events(raw))
        for event in events:
            event.raw, event.task_id, event.cursor = raw, self.task.id, self.cursor
        # Only who has taken all of them may go on after them.
        self.cursor = after or self.cursor
        if events:
            events[-1].cursor = self.cursor
        yield from events

    def end(self) -> Finished:
        """The last event."""
        return Finished(self.result, task_id=self.task.id, cursor=self.cursor)

    def _events(self, raw: pb.StreamResponse) -> Iterator[Event]:
        match raw.WhichOneof("payload"):
            case "message":
                self.message = raw.message
                yield from contents(raw.message.parts)
            case "task":
                yield from self._snapshot(raw.task)
            case "status_update":
                update = raw.status_update
                self._about(update.task_id, update.context_id)
                yield from self._status(update.status, is_update=True)
            case "artifact_update":
                self._about(raw.artifact_update.task_id, raw.artifact_update.context_id)
                yield from self._update(raw.artifact_update)

    def _about(self, task: str, context: str) -> None:
        if task and self.task.id and task != self.task.id:
            if not self._was_sent:
                raise Nonsense(f"the server speaks of task {task[:100]} when asked about {self.task.id}")
            self.task = pb.Task()
            self._kept, self._seen, self._waited = {}, {}, NO_STATUS
        self._was_sent = self._was_sent and not task
        self.task.id = self.task.id or task
        self.task.context_id = context or self.task.context_id

    def _snapshot(self, task: pb.Task) -> Iterator[Event]:
        self._about(task.id, task.context_id)
        self.whole = True
        if task.history:
            del self.task.history[:]
            self.task.history.extend(task.history)
        if task.HasField("metadata"):
            self.task.metadata.CopyFrom(task.metadata)
        for artifact in task.artifacts:
            yield from self._compared(artifact)
        asked_by(task)
        yield from self._status(task.status, is_update=False)

    # Artifacts --------------------------------------------------------------------------------------------------

    def _update(self, update: pb.TaskArtifactUpdateEvent) -> Iterator[Event]:
        artifact = update.artifact
        known = artifact.artifact_id in self._seen
        if known and not artifact.parts:  # the last chunk of some servers: it is only said that it was the last
            return
        if not (update.append and known):
            yield from self._begun(artifact, replaces=known)
        yield from self._more(artifact.artifact_id, artifact.parts)

    def _compared(self, artifact: pb.Artifact) -> Iterator[Event]:
        known = self._seen.get(artifact.artifact_id)
        rest = known.rest(artifact) if known is not None else None
        if rest is None:
            yield from self._begun(artifact, replaces=known is not None)
            rest = list(artifact.parts)
        yield from self._more(artifact.artifact_id, rest)

    def _begun(self, artifact: pb.Artifact, *, replaces: bool) -> Iterator[Event]:
        id = artifact.artifact_id
        self._seen[id] = Content.of(artifact)
        kept = self._kept.get(id)
        if kept is None:
            kept = self._kept[id] = self.task.artifacts.add()
        kept.CopyFrom(artifact)
        del kept.parts[:]
        yield Artifact(id, artifact.name, artifact.description, replaces)

    def _more(self, id: str, parts: Sequence[pb.Part]) -> Iterator[Text | Data | File]:
        self._seen[id].add(parts)
        self._kept[id].parts.extend(parts)
        yield from contents(parts, id)

    # Status -----------------------------------------------------------------------------------------------------

    def _status(self, status: pb.TaskStatus, *, is_update: bool) -> Iterator[Event]:
        """Said by an update it is news, unless its message was told, or it has none and the state is the same. A Task
        says it again and again."""
        said, before = status.message, self.task.status
        asks_again = (
            status.state in states.INTERRUPTED
            and self._waited != NO_STATUS
            and _mark(status) not in (self._waited, _mark(before))
        )
        if asks_again:  # in the same words, perhaps, or in none; but after it was answered
            news = True
        elif said.message_id and said.message_id in self._told:
            news = False
        elif is_update and status.HasField("message"):
            news = True
        else:
            news = _essence(status) != _essence(before)
        self.task.status.CopyFrom(status)
        if status.state not in states.INTERRUPTED:
            self._waited = NO_STATUS
        if not news:
            return
        if said.message_id:
            self._told.add(said.message_id)
        text = text_of(said.parts)
        if self.asks:
            asks_who = status.state == states.AUTH_REQUIRED
            yield Question(text, asks_who, said)
        else:
            yield Status(state_name(status.state), text)


def asked_by(task: pb.Task) -> pb.Task:
    """The task with its question in its status: some servers keep that among its messages."""
    if task.status.state in states.INTERRUPTED and not task.status.HasField("message") and task.history:
        last = task.history[-1]
        if last.role == pb.ROLE_AGENT:
            task.status.message.CopyFrom(last)
    return task


def _essence(status: pb.TaskStatus) -> bytes:
    """What a status says, apart from when."""
    message = status.message.SerializeToString(deterministic=True) if status.HasField("message") else b""
    return bytes([status.state]) + message


def _mark(status: pb.TaskStatus) -> bytes:
    """By which a status is known again: what it says, and when it was said."""
    return status.SerializeToString(deterministic=True)


def _cursor(raw: pb.StreamResponse) -> str:
    """The cursor of an event, which is taken off it; empty when it has none."""
    holder: pb.Task | pb.TaskStatusUpdateEvent | pb.TaskArtifactUpdateEvent
    match raw.WhichOneof("payload"):
        case "task":
            holder = raw.task
        case "status_update":
            holder = raw.status_update
        case "artifact_update":
            holder = raw.artifact_update
        case _:
            return ""
    return unmarked(holder)
