"""Turns a server's responses about one task into events, each reported once. No I/O.

Streams contain additions; a Task repeats everything. A digest of each artifact (`dragoman.core.task.projection`) tells
which parts of a Task are new, and whether an artifact was replaced.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from dragoman.calling.errors import ProtocolError
from dragoman.calling.retry import pop_cursor
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
    question_text,
    text_of,
)
from dragoman.core.task import states
from dragoman.core.task.projection import ArtifactDigest
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

NO_STATUS_KEY: Final = b""


class EventReducer:
    """The part of one task that was reported to the caller."""

    def __init__(self, cursor: str = "") -> None:
        self.task = pb.Task()  # the task as reported: status, and artifacts so far
        self.message: pb.Message | None = None  # the message returned instead of a task
        self.cursor = cursor  # the cursor after the last reported event; empty where the server has no cursors
        self.is_complete = not cursor  # whether the complete task was received, not only the events after a cursor
        self._artifacts: dict[str, pb.Artifact] = {}
        self._digests: dict[str, ArtifactDigest] = {}
        self._message_ids: set[str] = set()  # ids of reported status messages
        self._just_sent = False
        """A message was just sent: some servers start a new task for each, whichever task it names."""
        self._answered_status = NO_STATUS_KEY  # the key of the last interrupted status that was answered

    @property
    def state(self) -> int:
        return self.task.status.state

    @property
    def is_over(self) -> bool:
        """Whether no more events will follow: the task has ended, or a message was returned."""
        return self.message is not None or self.state in states.TERMINAL

    @property
    def awaits_caller(self) -> bool:
        """Whether the task waits for an answer of its caller."""
        return self.state in states.INTERRUPTED and _status_key(self.task.status) != self._answered_status

    @property
    def has_artifacts(self) -> bool:
        return bool(self._digests)

    @property
    def result(self) -> Result:
        return Result(self.task, self.message, self.cursor)

    def load(self, task: pb.Task) -> None:
        """Records a task as reported, before a message is sent to it."""
        for _ in self._reduce_task(task):
            pass
        self.mark_answered()

    def mark_answered(self) -> None:
        """Records that a message was sent to the task, which answers its current question."""
        self._just_sent = True
        self._answered_status = _status_key(self.task.status) if self.state in states.INTERRUPTED else NO_STATUS_KEY

    def reduce(self, response: pb.StreamResponse) -> Iterator[Event]:
        """Yields the events of a response. Raises ProtocolError for a response about another task."""
        after = pop_cursor(response)
        events = list(self._events(response))
        for event in events:
            event.raw, event.task_id, event.cursor = response, self.task.id, self.cursor
        # Only the last event has the new cursor: a caller that stops earlier must receive the remaining events again.
        self.cursor = after or self.cursor
        if events:
            events[-1].cursor = self.cursor
        yield from events

    def finish(self) -> Finished:
        return Finished(self.result, task_id=self.task.id, cursor=self.cursor)

    def _events(self, response: pb.StreamResponse) -> Iterator[Event]:
        match response.WhichOneof("payload"):
            case "message":
                self.message = response.message
                yield from contents(response.message.parts)
            case "task":
                yield from self._reduce_task(response.task)
            case "status_update":
                update = response.status_update
                self._check_task_id(update.task_id, update.context_id)
                # The update that ends a turn repeats what the turn has set; the metadata of others is their own.
                if update.HasField("metadata") and update.status.state in states.TERMINAL | states.INTERRUPTED:
                    self.task.metadata.MergeFrom(update.metadata)
                yield from self._reduce_status(update.status, is_update=True)
            case "artifact_update":
                self._check_task_id(response.artifact_update.task_id, response.artifact_update.context_id)
                yield from self._reduce_artifact_update(response.artifact_update)

    def _check_task_id(self, task: str, context: str) -> None:
        if task and self.task.id and task != self.task.id:
            if not self._just_sent:
                raise ProtocolError(f"the server responded with task {task[:100]} when asked about {self.task.id}")
            self.task = pb.Task()
            self._artifacts, self._digests, self._answered_status = {}, {}, NO_STATUS_KEY
        self._just_sent = self._just_sent and not task
        self.task.id = self.task.id or task
        self.task.context_id = context or self.task.context_id

    def _reduce_task(self, task: pb.Task) -> Iterator[Event]:
        self._check_task_id(task.id, task.context_id)
        self.is_complete = True
        if task.history:
            del self.task.history[:]
            self.task.history.extend(task.history)
        if task.HasField("metadata"):
            self.task.metadata.CopyFrom(task.metadata)
        for artifact in task.artifacts:
            yield from self._diff_artifact(artifact)
        with_question(task)
        yield from self._reduce_status(task.status, is_update=False)

    # Artifacts --------------------------------------------------------------------------------------------------

    def _reduce_artifact_update(self, update: pb.TaskArtifactUpdateEvent) -> Iterator[Event]:
        artifact = update.artifact
        known = artifact.artifact_id in self._digests
        if known and not artifact.parts:  # some servers end an artifact with an empty last chunk
            return
        if not (update.append and known):
            yield from self._start_artifact(artifact, replaces=known)
        yield from self._append_parts(artifact.artifact_id, artifact.parts)

    def _diff_artifact(self, artifact: pb.Artifact) -> Iterator[Event]:
        known = self._digests.get(artifact.artifact_id)
        new_parts = known.remaining_parts(artifact) if known is not None else None
        if new_parts is None:
            yield from self._start_artifact(artifact, replaces=known is not None)
            new_parts = list(artifact.parts)
        yield from self._append_parts(artifact.artifact_id, new_parts)

    def _start_artifact(self, artifact: pb.Artifact, *, replaces: bool) -> Iterator[Event]:
        id = artifact.artifact_id
        self._digests[id] = ArtifactDigest.of(artifact)
        kept = self._artifacts.get(id)
        if kept is None:
            kept = self._artifacts[id] = self.task.artifacts.add()
        kept.CopyFrom(artifact)
        del kept.parts[:]
        yield Artifact(id, artifact.name, artifact.description, replaces)

    def _append_parts(self, id: str, parts: Sequence[pb.Part]) -> Iterator[Text | Data | File]:
        self._digests[id].add(parts)
        self._artifacts[id].parts.extend(parts)
        yield from contents(parts, id)

    # Status -----------------------------------------------------------------------------------------------------

    def _reduce_status(self, status: pb.TaskStatus, *, is_update: bool) -> Iterator[Event]:
        """Reports a status unless it is a repeat. An update is new unless its message was reported, or it has none and
        the state is unchanged; a Task repeats its status."""
        message, before = status.message, self.task.status
        asks_again = (
            status.state in states.INTERRUPTED
            and self._answered_status != NO_STATUS_KEY
            and _status_key(status) not in (self._answered_status, _status_key(before))
        )
        if asks_again:  # after an answer, a question is new even if its text is the same or missing
            is_new = True
        elif message.message_id and message.message_id in self._message_ids:
            is_new = False
        elif is_update and status.HasField("message"):
            is_new = True
        else:
            is_new = _status_content(status) != _status_content(before)
        self.task.status.CopyFrom(status)
        if status.state not in states.INTERRUPTED:
            self._answered_status = NO_STATUS_KEY
        if not is_new:
            return
        if message.message_id:
            self._message_ids.add(message.message_id)
        if self.awaits_caller:
            yield Question(question_text(message), status.state == states.AUTH_REQUIRED, message)
        else:
            yield Status(states.short_name(status.state), text_of(message.parts))


def with_question(task: pb.Task) -> pb.Task:
    """The task with its question in its status: some servers keep it in the history only."""
    if task.status.state in states.INTERRUPTED and not task.status.HasField("message") and task.history:
        last = task.history[-1]
        if last.role == pb.ROLE_AGENT:
            task.status.message.CopyFrom(last)
    return task


def _status_content(status: pb.TaskStatus) -> bytes:
    """The state and message of a status, without its timestamp."""
    message = status.message if status.HasField("message") else None
    return _status_key(pb.TaskStatus(state=status.state, message=message))


def _status_key(status: pb.TaskStatus) -> bytes:
    """Identifies a status by all of its fields, also the timestamp."""
    return status.SerializeToString(deterministic=True)
