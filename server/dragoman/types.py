"""Part, Artifact and Message (A2A 1.0 §4.1) for agents, with constructors; ids and states of tasks.

`values` accepts everything that an agent may return: text, data, bytes, a Path, a Part. Every constructor raises
InvalidAgentResponse for a value that the protocol cannot represent.

States are numbers of `lf.a2a.v1.TaskState`. `can_transition_to(state, next_state)`: whether one may follow the other.
In A2A terminal states are final and everything else is allowed; `strict=True` uses the narrower table of a2a-rust.
"""

from __future__ import annotations

import mimetypes
from collections.abc import Iterable, Mapping
from pathlib import Path

from dragoman.agents.functions.turn import Incoming, ReceivedFile
from dragoman.agents.values import checked_string, data_part, file_part, parts_of, set_metadata
from dragoman.core.errors import InvalidAgentResponse
from dragoman.core.names import ArtifactId, ContextId, MessageId, TaskId
from dragoman.core.task.states import (
    AUTH_REQUIRED,
    CANCELED,
    COMPLETED,
    FAILED,
    INPUT_REQUIRED,
    REJECTED,
    SUBMITTED,
    WORKING,
    can_transition_to,
    is_terminal,
)
from dragoman_pb.lf.a2a.v1.a2a_pb2 import ROLE_AGENT, Artifact, Message, Part

__all__ = [
    "Part", "Artifact", "Message", "text", "data", "file", "link", "artifact", "message", "ReceivedFile", "Incoming",
    "InvalidAgentResponse", "TaskId", "ContextId", "MessageId", "ArtifactId", "SUBMITTED", "WORKING", "INPUT_REQUIRED",
    "AUTH_REQUIRED", "COMPLETED", "FAILED", "CANCELED", "REJECTED", "is_terminal", "can_transition_to",
]  # fmt: skip

Metadata = Mapping[str, object]


def text(value: str, *, media_type: str = "", metadata: Metadata | None = None) -> Part:
    """A text part. The default media type is text/plain."""
    return _with_metadata(Part(text=checked_string(value), media_type=checked_string(media_type)), metadata)


def data(value: object, *, media_type: str = "", metadata: Metadata | None = None) -> Part:
    """A data part from any JSON value, pydantic model or dataclass. The default media type is application/json.

    Rejects integers beyond 2^53, NaN, infinity and more than 24 levels of arrays and objects.
    """
    part = data_part(value)
    part.media_type = checked_string(media_type)
    return _with_metadata(part, metadata)


def file(
    content: bytes | str | Path, *, name: str = "", media_type: str = "", metadata: Metadata | None = None
) -> Part:
    """A file part. A Path is read now; text is encoded as UTF-8.

    A missing media type is guessed from the name, else from the content; a missing name from the media type.
    """
    if isinstance(content, str):
        content = checked_string(content).encode()
        media_type = media_type or mimetypes.guess_type(name)[0] or "text/plain"
    return _with_metadata(file_part(content, name=name, media_type=media_type), metadata)


def link(url: str, *, name: str = "", media_type: str = "", metadata: Metadata | None = None) -> Part:
    """A file part that carries a URL in place of the bytes."""
    if not url:
        raise InvalidAgentResponse("link() has an empty url; pass the URL of the file")
    part = Part(url=checked_string(url), filename=checked_string(name), media_type=checked_string(media_type))
    return _with_metadata(part, metadata)


def artifact(
    *values: object,
    id: str = "",
    name: str = "",
    description: str = "",
    metadata: Metadata | None = None,
    extensions: Iterable[str] = (),
) -> Artifact:
    """An artifact of one or more parts. An empty id is filled in when the artifact is sent."""
    result = Artifact(artifact_id=id, name=name, description=description, parts=_parts("artifact", values))
    result.extensions.extend(extensions)
    set_metadata(result, metadata)
    return result


def message(
    *values: object,
    id: str = "",
    metadata: Metadata | None = None,
    extensions: Iterable[str] = (),
    references: Iterable[str] = (),
) -> Message:
    """An agent message of one or more parts. An empty id is filled in when the message is sent.

    references: ids of related tasks (1.0 §4.1.4, `referenceTaskIds`).
    """
    result = Message(message_id=id, role=ROLE_AGENT, parts=_parts("message", values))
    result.extensions.extend(extensions)
    result.reference_task_ids.extend(references)
    set_metadata(result, metadata)
    return result


def _parts(constructor: str, values: Iterable[object]) -> list[Part]:
    parts = [part for value in values for part in parts_of(value)]
    if not parts:
        raise InvalidAgentResponse(f"{constructor}() has no parts; give it at least one value")
    return parts


def _with_metadata(part: Part, metadata: Metadata | None) -> Part:
    set_metadata(part, metadata)
    return part
