"""What a worker says that a turn produced, read and checked: the changes that the log takes.

Everything here raises InvalidAgentResponse, naming the field and the rule; the turn then ends as FAILED with that.
"""

from __future__ import annotations

from typing import Final

import orjson

from dragoman.agents.values import NewId, artifact_of, change_of, head_of, message_of
from dragoman.core import states
from dragoman.core.errors import InvalidAgentResponse
from dragoman.core.log import ArtifactChange, StatusChange
from dragoman.ports import NOTHING, Desk, Ending, Notes
from dragoman_pb.dragoman.worker.v1 import worker_pb2 as wk
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

ON_THE_WAY: Final = frozenset({states.WORKING, states.AUTH_REQUIRED})
AT_THE_END: Final = frozenset(
    {states.COMPLETED, states.FAILED, states.REJECTED, states.INPUT_REQUIRED, states.AUTH_REQUIRED}
)
"""States that a turn may show while it runs, and that it may end in."""


def change(event: wk.Event, desk: Desk, new_id: NewId) -> StatusChange | ArtifactChange:
    """One event."""
    match event.WhichOneof("event"):
        case "status":
            return status(event.status, ON_THE_WAY, desk, new_id)
        case "artifact":
            return artifact(event.artifact)
        case "text":
            text = event.text
            return ArtifactChange(
                _id(text.artifact_id, "text.artifact_id"),
                head_of(text.artifact_id),
                text=text.text,
                append=text.append,
                last_chunk=text.last_chunk,
            )
    raise InvalidAgentResponse("an event says nothing; set one of status, artifact, text")


def status(said: wk.StatusChange, allowed: frozenset[int], desk: Desk, new_id: NewId) -> StatusChange:
    """A change of state, if it is one of these."""
    if said.state not in allowed:
        known = ", ".join(sorted(states.name(state) for state in allowed))
        raise InvalidAgentResponse(f"status.state: {states.name(said.state)} is none of {known}")
    message = b""
    if said.HasField("message"):
        message = _message(said.message, desk, new_id).SerializeToString()
    return StatusChange(said.state, message, said.metadata.SerializeToString())


def artifact(said: wk.ArtifactChange) -> ArtifactChange:
    """An artifact or a piece of one."""
    _id(said.artifact.artifact_id, "artifact.artifact.artifact_id")
    made = change_of(artifact_of(said.artifact, _none), append=said.append, last=said.last_chunk)
    if said.HasField("metadata"):
        return ArtifactChange(
            made.artifact_id,
            made.head,
            made.parts,
            made.tail,
            append=made.append,
            last_chunk=made.last_chunk,
            metadata=said.metadata.SerializeToString(),
        )
    return made


def ending(end: wk.TurnEnd, desk: Desk, new_id: NewId) -> Ending:
    """How a turn ended, with a status or a reply."""
    artifacts = [artifact(one) for one in end.artifacts]
    kept = notes(end.notes) if end.HasField("notes") else NOTHING
    match end.WhichOneof("outcome"):
        case "status":
            return Ending(status(end.status, AT_THE_END, desk, new_id), artifacts, None, kept)
        case "reply":
            message = _message(end.reply, desk, new_id)
            change = StatusChange(states.COMPLETED, message.SerializeToString())
            message.ClearField("task_id")  # of a task that will not have been
            return Ending(change, artifacts, message, kept)
    raise InvalidAgentResponse("turn_end says nothing of how it ended; set one of status, reply, canceled, given_back")


def failure(text: str, desk: Desk, new_id: NewId) -> Ending:
    """FAILED with a text, for a turn that broke a rule."""
    message = message_of(text, new_id, task_id=desk.task_id, context_id=desk.context_id)
    return Ending(StatusChange(states.FAILED, message.SerializeToString()))


def notes(said: wk.Notes) -> Notes:
    """What the agent keeps."""
    return Notes(
        _object(said.task_state, "task_state") if said.HasField("task_state") else None,
        _object(said.context_state, "context_state") if said.HasField("context_state") else None,
    )


def _object(text: str, field: str) -> bytes:
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise InvalidAgentResponse(f"notes.{field} is no JSON: {error}") from None
    if not isinstance(value, dict):
        raise InvalidAgentResponse(f"notes.{field} must be a JSON object")
    return text.encode()


def _message(said: pb.Message, desk: Desk, new_id: NewId) -> pb.Message:
    return message_of(said, new_id, task_id=desk.task_id, context_id=desk.context_id)


def _id(id: str, field: str) -> str:
    if not id:
        raise InvalidAgentResponse(f"{field} is required")
    return id


def _none() -> str:
    return ""
