"""What an agent upstream says of its task, as changes of ours: each thing once, whatever it was learnt from.

Streams say what is added; a Task read afterwards says everything again. Of each artifact it is remembered how much of
it was put, as a count and a digest and not as the content, so that a Task adds only what is new, or replaces the
artifact where it became another one (`dragoman.core.task.projection`).
"""

from __future__ import annotations

import hashlib
from typing import Final

from dragoman.agents.values import NewId, artifact_change, checked_part, encode_artifact_head, message_of
from dragoman.calling.errors import CallRefused
from dragoman.core.errors import InvalidAgentResponse
from dragoman.core.task import states
from dragoman.core.task.log import ArtifactChange, StatusChange
from dragoman.core.task.projection import ArtifactDigest, is_plain_text
from dragoman.ports import StateUpdate, TurnContext, TurnResult
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

MAX_TASK_ARTIFACTS = 10_000
"""Artifacts of one task; their ids are kept while the turn lasts."""


class ArtifactSync:
    """One task upstream, as far as it was put into our log. Raises InvalidAgentResponse for what breaks a rule."""

    def __init__(self, new_id: NewId) -> None:
        self._new_id = new_id
        self._contents: dict[str, ArtifactDigest] = {}

    @property
    def has_any(self) -> bool:
        """Whether an artifact was seen."""
        return bool(self._contents)

    def snapshot(self, task: pb.Task) -> list[ArtifactChange]:
        """What a Task says that is not put yet."""
        changes = (self._compare(artifact) for artifact in task.artifacts)
        return [change for change in changes if change is not None]

    def update(self, update: pb.TaskArtifactUpdateEvent) -> ArtifactChange | None:
        """What an event of a stream adds; None when it adds nothing, and says nothing else."""
        artifact = self._check_artifact(update.artifact)
        if not artifact.parts:  # the last chunk of some servers: it is only said that it was the last
            if not (update.last_chunk and artifact.artifact_id in self._contents):
                return None
            return ArtifactChange(
                artifact.artifact_id, encode_artifact_head(artifact.artifact_id), append=True, last_chunk=True
            )
        known = self._contents.get(artifact.artifact_id)
        append = update.append and known is not None
        content = known if append and known is not None else ArtifactDigest.of(artifact)
        content.add(artifact.parts)
        self._contents[artifact.artifact_id] = content
        made = artifact_change(artifact, append=append, last=update.last_chunk)
        if not update.HasField("metadata"):
            return made
        return ArtifactChange(
            made.artifact_id,
            made.head,
            made.parts,
            made.tail,
            append=made.append,
            last_chunk=made.last_chunk,
            metadata=update.metadata.SerializeToString(),
        )

    def _compare(self, received: pb.Artifact) -> ArtifactChange | None:
        artifact = self._check_artifact(received)
        if not artifact.parts:
            return None
        known = self._contents.get(artifact.artifact_id)
        rest = known.remaining_parts(artifact) if known is not None else None
        if known is None or rest is None:
            content = self._contents[artifact.artifact_id] = ArtifactDigest.of(artifact)
            content.add(artifact.parts)
            if len(artifact.parts) == 1 and is_plain_text(artifact.parts[0]):
                # A text that may grow is put as a chunk of our own, so that it stays one text when it does.
                content.may_grow = True
                whole = artifact_change(artifact)
                return ArtifactChange(whole.artifact_id, whole.head, tail=whole.tail, text=artifact.parts[0].text)
            return artifact_change(artifact)
        if not rest:
            return None
        known.add(rest)
        id = artifact.artifact_id
        if known.may_grow and len(rest) == 1 and is_plain_text(rest[0]):
            return ArtifactChange(id, encode_artifact_head(id), text=rest[0].text, append=True)
        known.may_grow = False
        return artifact_change(pb.Artifact(artifact_id=id, parts=rest), append=True)

    def _check_artifact(self, artifact: pb.Artifact) -> pb.Artifact:
        """The artifact with an id and checked."""
        for part in artifact.parts:
            checked_part(part)
        if not artifact.artifact_id:
            artifact.artifact_id = self._new_id()
        if artifact.artifact_id not in self._contents and len(self._contents) >= MAX_TASK_ARTIFACTS:
            raise InvalidAgentResponse(f"the task has more than {MAX_TASK_ARTIFACTS} artifacts")
        return artifact


def is_turn_over(state: int) -> bool:
    """Whether a turn upstream is over in this state, until somebody sends something."""
    return state in states.TERMINAL or state == states.INPUT_REQUIRED


_MESSAGE_ERRORS: Final = ("INVALID_PARAMS", "CONTENT_TYPE_NOT_SUPPORTED", "INVALID_REQUEST")
"""Refusals that are about the message, and no failure of the agent."""


class StatusMapper:
    """The statuses of one turn at a desk."""

    def __init__(self, turn_context: TurnContext, new_id: NewId) -> None:
        self._turn_context = turn_context
        self._new_id = new_id
        self._written_message_ids = {
            message.message_id for message in turn_context.history if message.role == pb.ROLE_AGENT
        }
        """The ids of messages that our task has already."""
        self._last_digest: tuple[int, bytes] | None = None

    def to_change(self, status: pb.TaskStatus, metadata: bytes = b"") -> StatusChange:
        """A status of ours. What is only on its way is WORKING here."""
        state = status.state if status.state in states.STORED_STATES - {states.SUBMITTED} else states.WORKING
        message = b""
        if status.HasField("message") and status.message.parts:
            message = self._message(status.message).SerializeToString()
        return StatusChange(state, message, metadata)

    def is_new(self, status: pb.TaskStatus) -> bool:
        """Whether a status says what none before it said."""
        if status.HasField("message") and status.message.message_id:
            return status.message.message_id not in self._written_message_ids
        return self._last_digest != _content_digest(status)

    def mark_written(self, status: pb.TaskStatus) -> None:
        """A status was written."""
        if status.HasField("message") and status.message.message_id:
            self._written_message_ids.add(status.message.message_id)
        self._last_digest = _content_digest(status)

    def reply_result(self, message: pb.Message, state_update: StateUpdate) -> TurnResult:
        """The end of a turn that is answered by a Message, and has no task there."""
        said = self._message(message)
        change = StatusChange(states.COMPLETED, said.SerializeToString())
        said.ClearField("task_id")  # of a task that will not have been
        return TurnResult(change, (), said, state_update)

    def refused_result(self, error: CallRefused, state_update: StateUpdate) -> TurnResult:
        """The end of a turn whose message was refused."""
        state = states.REJECTED if error.reason in _MESSAGE_ERRORS else states.FAILED
        return self._result_with_text(state, f"UPSTREAM_REFUSED: {error.summary}", state_update)

    def failed_result(self, text: str, state_update: StateUpdate) -> TurnResult:
        """FAILED with a text that begins with the reason."""
        return self._result_with_text(states.FAILED, text, state_update)

    def _result_with_text(self, state: int, text: str, state_update: StateUpdate) -> TurnResult:
        message = message_of(
            text, self._new_id, task_id=self._turn_context.task_id, context_id=self._turn_context.context_id
        )
        message.metadata.update({"reason": text.partition(":")[0]})
        return TurnResult(StatusChange(state, message.SerializeToString()), state_update=state_update)

    def _message(self, message: pb.Message) -> pb.Message:
        return message_of(
            message, self._new_id, task_id=self._turn_context.task_id, context_id=self._turn_context.context_id
        )


def status_digest(status: pb.TaskStatus) -> str:
    """By which a status is known again: what it says, and when it was said."""
    return hashlib.blake2b(status.SerializeToString(deterministic=True), digest_size=12).hexdigest()


def _content_digest(status: pb.TaskStatus) -> tuple[int, bytes]:
    message = status.message.SerializeToString(deterministic=True) if status.HasField("message") else b""
    return status.state, hashlib.blake2b(message, digest_size=12).digest()
