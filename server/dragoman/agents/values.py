"""What an agent gives, and what the protocol makes of it: parts, artifacts and messages (A2A 1.0 §4.1).

| value                                                          | parts                                        |
|----------------------------------------------------------------|----------------------------------------------|
| `str`                                                          | one text part                                |
| `dict`, `list`, number, bool, pydantic model, dataclass         | one data part                                |
| `bytes`, `Path`                                                | one file part, media type and name guessed   |
| `Part`, list of `Part`                                         | those                                        |
| `Artifact`, `Message`                                          | a thing of its own, not parts                |

Part, Artifact and Message of another library (a2a-sdk) are taken by their bytes. Whatever breaks a rule of the
protocol raises InvalidAgentResponse here, before anything is put.
"""

from __future__ import annotations

import inspect
import mimetypes
from collections.abc import Callable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any, Final

from google.protobuf.message import Message as AnyMessage

from dragoman.agents.plain import check, checked_text, fill, fill_object, is_record, plain
from dragoman.core import frames
from dragoman.core.errors import InvalidAgentResponse
from dragoman.core.log import ArtifactChange
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

NewId = Callable[[], str]
"""Where the ids of an agent's messages and artifacts come from."""

OCTETS: Final = "application/octet-stream"
MAGIC: Final = (
    (b"\x89PNG\r\n\x1a\n", "image/png", ".png"),
    (b"\xff\xd8\xff", "image/jpeg", ".jpg"),
    (b"GIF8", "image/gif", ".gif"),
    (b"%PDF-", "application/pdf", ".pdf"),
    (b"PK\x03\x04", "application/zip", ".zip"),
    (b"\x1f\x8b", "application/gzip", ".gz"),
    (b"OggS", "audio/ogg", ".ogg"),
    (b"ID3", "audio/mpeg", ".mp3"),
)
_OURS: Final = {one.DESCRIPTOR.full_name: one for one in (pb.Part, pb.Artifact, pb.Message)}


def adopted(value: object) -> object:
    """`value`, or the same Part, Artifact or Message as our class when it is another library's."""
    if not isinstance(value, AnyMessage) or isinstance(value, (pb.Part, pb.Artifact, pb.Message)):
        return value
    ours = _OURS.get(value.DESCRIPTOR.full_name)
    if ours is None:
        raise InvalidAgentResponse(f"{value.DESCRIPTOR.full_name} cannot be an answer; use Part, Artifact or Message")
    return ours.FromString(value.SerializeToString())


def parts_of(value: object) -> list[pb.Part]:
    """The parts that `value` means. Raises InvalidAgentResponse for everything that is no parts."""
    value = adopted(value)
    match value:
        case pb.Part():
            return [checked_part(value)]
        case str():
            return [pb.Part(text=checked_text(value))]
        case bytes() | bytearray() | memoryview():
            return [file_part(bytes(value))]
        case PathLike():
            return [file_part(Path(value))]
        case list() | tuple() if any(isinstance(item, AnyMessage) for item in value):
            return [checked_part(_only_part(item)) for item in map(adopted, value)]
        case dict() | Mapping() | list() | tuple() | int() | float():
            return [data_part(value)]
        case pb.Artifact() | pb.Message():
            raise InvalidAgentResponse(f"{type(value).__name__} stands for itself and cannot be a part")
    if is_record(value):
        return [data_part(value)]
    raise _unusable(value)


def data_part(value: object) -> pb.Part:
    """One data part. Raises InvalidAgentResponse unless `value` is JSON."""
    part = pb.Part()
    fill(part.data, plain(value))
    return part


def file_part(content: bytes | Path, *, name: str = "", media_type: str = "") -> pb.Part:
    """One file part; a Path is read now. Name and media type are guessed unless given."""
    if isinstance(content, Path):
        name = name or content.name
        try:
            raw = content.read_bytes()
        except OSError as error:
            # The caller learns the name only; the whole path stands in the log.
            raise InvalidAgentResponse(f"{content.name}: cannot be read: {error.strerror}") from error
        media_type = media_type or mimetypes.guess_type(name)[0] or OCTETS
    else:
        raw = content
        guessed, suffix = next((found[1:] for found in MAGIC if raw.startswith(found[0])), (OCTETS, ".bin"))
        if name and not media_type:
            guessed = mimetypes.guess_type(name)[0] or guessed
        media_type = media_type or guessed
        name = name or f"output{suffix if media_type == guessed else mimetypes.guess_extension(media_type) or '.bin'}"
    return pb.Part(raw=raw, filename=checked_text(name), media_type=checked_text(media_type))


def checked_part(part: pb.Part) -> pb.Part:
    """`part`, if the protocol allows it (1.0 §4.1.6: exactly one content)."""
    content = part.WhichOneof("content")
    if content is None:
        raise InvalidAgentResponse("a Part has no content; set one of text, raw, url, data")
    check("metadata of a Part", part.metadata)
    if content == "data":
        check("data", part.data)
    return part


def artifact_of(
    value: object,
    new_id: NewId,
    *,
    id: str = "",
    name: str = "",
    description: str = "",
    metadata: Mapping[str, object] | None = None,
) -> pb.Artifact:
    """The artifact that `value` means, with an id, checked. What is given here wins over what an Artifact says."""
    value = adopted(value)
    artifact = pb.Artifact()
    if isinstance(value, pb.Artifact):
        artifact.CopyFrom(value)  # the author's own object stays as it is
        for part in artifact.parts:
            checked_part(part)
        check("metadata of an Artifact", artifact.metadata)
    else:
        artifact.parts.extend(parts_of(value))
        if isinstance(value, PathLike):
            artifact.name = artifact.parts[0].filename
    if not artifact.parts:
        raise InvalidAgentResponse("an Artifact has no parts; it must have at least one")
    artifact.artifact_id = checked_text(id) or artifact.artifact_id or new_id()
    artifact.name = checked_text(name) or artifact.name
    artifact.description = checked_text(description) or artifact.description
    set_metadata(artifact, metadata)
    return artifact


def message_of(value: object, new_id: NewId, *, task_id: str, context_id: str) -> pb.Message:
    """The message that `value` means, as the agent's own message of this task.

    A Message with the caller's role is taken for its content: it becomes a new message of the agent.
    """
    value = adopted(value)
    message = pb.Message()
    if isinstance(value, pb.Message):
        message.CopyFrom(value)
        for part in message.parts:
            checked_part(part)
        check("metadata of a Message", message.metadata)
        if message.role == pb.ROLE_USER:
            message.message_id = ""
    else:
        message.parts.extend(parts_of(value))
    if not message.parts:
        raise InvalidAgentResponse("a Message has no parts; it must have at least one")
    message.message_id = message.message_id or new_id()
    message.role = pb.ROLE_AGENT
    message.task_id, message.context_id = task_id, context_id
    return message


def set_metadata(target: Any, metadata: Mapping[str, object] | None) -> None:
    """Adds these to the metadata of a Part, Artifact or Message."""
    if metadata:
        fill_object(target.metadata, plain(metadata))


def change_of(artifact: pb.Artifact, *, append: bool = False, last: bool = False) -> ArtifactChange:
    """The event that puts `artifact`, as bytes of its fields."""
    head = head_of(artifact.artifact_id, artifact.name, artifact.description)
    extensions = [frames.text(6, uri) for uri in artifact.extensions]
    return ArtifactChange(
        artifact.artifact_id,
        head,
        frame_parts(artifact.parts),
        frames.submessage(5, artifact.metadata.SerializeToString()) + b"".join(extensions),
        append=append,
        last_chunk=last,
    )


def head_of(id: str, name: str = "", description: str = "") -> bytes:
    """The fields of Artifact that come before its parts."""
    return frames.text(1, id) + frames.text(2, name) + frames.text(3, description)


def frame_parts(parts: Any) -> bytes:
    """Field 4 of Artifact, once for each part."""
    return b"".join([frames.frame(4, part.SerializeToString()) for part in parts])


def _only_part(item: object) -> pb.Part:
    if isinstance(item, pb.Part):
        return item
    raise InvalidAgentResponse(f"a list of Parts also holds {type(item).__qualname__}; it must hold Parts only")


def _unusable(value: object) -> InvalidAgentResponse:
    if value is None:
        return InvalidAgentResponse("None is no content; to say nothing, leave the call or the yield out")
    if inspect.isawaitable(value):
        if inspect.iscoroutine(value):
            value.close()  # or Python warns that nobody awaited it
        return InvalidAgentResponse(f"{type(value).__name__} is no content; an await is missing")
    if inspect.isgenerator(value) or inspect.isasyncgen(value):
        return InvalidAgentResponse(f"{type(value).__name__} is no content; loop over it and yield its values")
    return InvalidAgentResponse(
        f"{type(value).__qualname__} is no content; use str, dict, list, a number, bytes, Path,"
        " a pydantic model, a dataclass, Part, Artifact or Message"
    )
