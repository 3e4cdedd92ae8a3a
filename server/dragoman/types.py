"""The protocol's values for agents: Part, Artifact, Message (A2A 1.0 §4.1), and short ways to make them.

Wherever a constructor takes `record_values`, each may be whatever an agent may return: text, data, bytes, a Path, a
Part.
All of them raise InvalidAgentResponse for what the protocol has no place for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from dragoman.agents.functions.turn import File, Incoming
from dragoman.agents.values import checked_text, data_part, file_part, parts_of, set_metadata
from dragoman.core.errors import InvalidAgentResponse
from dragoman.core.task.states import AUTH_REQUIRED, WORKING
from dragoman_pb.lf.a2a.v1.a2a_pb2 import ROLE_AGENT, Artifact, Message, Part

__all__ = [
    "Part",
    "Artifact",
    "Message",
    "text",
    "data",
    "file",
    "link",
    "artifact",
    "message",
    "File",
    "Incoming",
    "InvalidAgentResponse",
    "WORKING",
    "AUTH_REQUIRED",
]

Metadata = Mapping[str, object]


def text(value: str, *, media_type: str = "", metadata: Metadata | None = None) -> Part:
    """A text part; without a media type it is text/plain."""
    return _with_metadata(Part(text=checked_text(value), media_type=checked_text(media_type)), metadata)


def data(value: object, *, media_type: str = "", metadata: Metadata | None = None) -> Part:
    """A data part: any JSON, a pydantic model or a dataclass; without a media type it is application/json.

    Whole numbers beyond 2^53, NaN and infinity are refused, and more than 24 levels of arrays and objects.
    """
    part = data_part(value)
    part.media_type = checked_text(media_type)
    return _with_metadata(part, metadata)


def file(
    content: bytes | str | Path, *, name: str = "", media_type: str = "", metadata: Metadata | None = None
) -> Part:
    """A file part. A Path is read now; text is encoded as UTF-8. Name and media type are guessed unless given."""
    if isinstance(content, str):
        content, media_type = checked_text(content).encode(), media_type or "text/plain"
    return _with_metadata(file_part(content, name=name, media_type=media_type), metadata)


def link(url: str, *, name: str = "", media_type: str = "", metadata: Metadata | None = None) -> Part:
    """A file part that says where the bytes are instead of carrying them."""
    if not url:
        raise InvalidAgentResponse("a link has no url")
    part = Part(url=checked_text(url), filename=checked_text(name), media_type=checked_text(media_type))
    return _with_metadata(part, metadata)


def artifact(
    *values: object,
    id: str = "",
    name: str = "",
    description: str = "",
    metadata: Metadata | None = None,
    extensions: Iterable[str] = (),
) -> Artifact:
    """An artifact of one or more parts. Without an id it gets one when it is put."""
    made = Artifact(artifact_id=id, name=name, description=description, parts=_parts("artifact", values))
    made.extensions.extend(extensions)
    set_metadata(made, metadata)
    return made


def message(
    *values: object,
    id: str = "",
    metadata: Metadata | None = None,
    extensions: Iterable[str] = (),
    references: Iterable[str] = (),
) -> Message:
    """A message of the agent, of one or more parts. Without an id it gets one when it is put.

    references: ids of tasks it is about (1.0 §4.1.4, `referenceTaskIds`).
    """
    made = Message(message_id=id, role=ROLE_AGENT, parts=_parts("message", values))
    made.extensions.extend(extensions)
    made.reference_task_ids.extend(references)
    set_metadata(made, metadata)
    return made


def _parts(constructor: str, values: Iterable[object]) -> list[Part]:
    parts = [part for value in values for part in parts_of(value)]
    if not parts:
        raise InvalidAgentResponse(f"{constructor}() has no parts; give it at least one value")
    return parts


def _with_metadata(part: Part, metadata: Metadata | None) -> Part:
    set_metadata(part, metadata)
    return part
