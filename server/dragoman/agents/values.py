"""Converts the values of agents to parts, artifacts and messages (A2A 1.0 §4.1).

| value                                                          | parts                                        |
|----------------------------------------------------------------|----------------------------------------------|
| `str`                                                          | one text part                                |
| `dict`, `list`, number, bool, pydantic model, dataclass         | one data part                                |
| `bytes`, `Path`                                                | one file part, media type and name guessed   |
| `Part`, list of `Part`                                         | these parts                                  |
| `Artifact`, `Message`                                          | not parts: sent as they are                  |

Part, Artifact and Message of another library (a2a-sdk) are converted through their bytes. A value that breaks a rule
of the protocol raises InvalidAgentResponse here, before anything is sent.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
import mimetypes
import sys
from collections.abc import Callable, Mapping
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from os import PathLike
from pathlib import Path
from typing import Any, Final, TypeVar
from uuid import UUID

from google.protobuf import struct_pb2
from google.protobuf.message import Message as AnyMessage

from dragoman.core.errors import InvalidAgentResponse
from dragoman.core.limits.message_limits import MAX_NESTING_DEPTH, MAX_TASK_METADATA_BYTES, value_problem
from dragoman.core.limits.quotas import USAGE_METADATA_KEY
from dragoman.core.task import frames
from dragoman.core.task.log import ArtifactChange
from dragoman.core.task.projection import merge_metadata
from dragoman.ports import TurnContext
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

NewId = Callable[[], str]  # creates the ids of an agent's messages and artifacts

OCTET_STREAM_TYPE: Final = "application/octet-stream"
FILE_SIGNATURES: Final = (
    (b"\x89PNG\r\n\x1a\n", "image/png", ".png"),
    (b"\xff\xd8\xff", "image/jpeg", ".jpg"),
    (b"GIF8", "image/gif", ".gif"),
    (b"%PDF-", "application/pdf", ".pdf"),
    (b"PK\x03\x04", "application/zip", ".zip"),
    (b"\x1f\x8b", "application/gzip", ".gz"),
    (b"OggS", "audio/ogg", ".ogg"),
    (b"ID3", "audio/mpeg", ".mp3"),
)
_MESSAGE_CLASSES: Final = {one.DESCRIPTOR.full_name: one for one in (pb.Part, pb.Artifact, pb.Message)}


def to_local_type(value: object) -> object:
    """Converts another library's Part, Artifact or Message to our class. Returns every other value as it is."""
    if not isinstance(value, AnyMessage) or isinstance(value, (pb.Part, pb.Artifact, pb.Message)):
        return value
    ours = _MESSAGE_CLASSES.get(value.DESCRIPTOR.full_name)
    if ours is None:
        raise InvalidAgentResponse(f"{value.DESCRIPTOR.full_name} cannot be a response; use Part, Artifact or Message")
    return ours.FromString(value.SerializeToString())


def parts_of(value: object) -> list[pb.Part]:
    """Converts `value` to parts. Raises InvalidAgentResponse if that is impossible."""
    if isinstance(value, str):
        return [pb.Part(text=checked_string(value))]
    value = to_local_type(value)
    match value:
        case pb.Part():
            return [checked_part(value)]
        case bytes() | bytearray() | memoryview():
            return [file_part(bytes(value))]
        case PathLike():
            return [file_part(Path(value))]
        case list() | tuple() if any(isinstance(item, AnyMessage) for item in value):
            return [checked_part(_only_part(item)) for item in map(to_local_type, value)]
        case dict() | Mapping() | list() | tuple() | int() | float():
            return [data_part(value)]
        case pb.Artifact() | pb.Message():
            raise InvalidAgentResponse(f"{type(value).__name__} cannot be a part of another value; send it by itself")
        case Enum() | date() | time() | timedelta() | UUID() | Decimal():
            return parts_of(to_json(value))  # as in a dict: a text, or the value of the Enum
    if _is_pydantic_model(value) or (dataclasses.is_dataclass(value) and not isinstance(value, type)):
        return [data_part(value)]
    raise _unsupported_value(value)


def data_part(value: object) -> pb.Part:
    """One data part. Raises InvalidAgentResponse if `value` has no JSON form."""
    part = pb.Part()
    fill_value(part.data, to_json(value))
    return part


def file_part(content: bytes | Path, *, name: str = "", media_type: str = "") -> pb.Part:
    """One file part. A Path is read now. A missing name or media type is guessed."""
    if isinstance(content, Path):
        name = name or content.name
        try:
            raw = content.read_bytes()
        except OSError as error:
            # The caller sees the file name only; the full path is in the log.
            raise InvalidAgentResponse(f"file {content.name} cannot be read: {error.strerror}") from error
        media_type = media_type or mimetypes.guess_type(name)[0] or OCTET_STREAM_TYPE
    else:
        raw = content
        guessed, suffix = next(
            (found[1:] for found in FILE_SIGNATURES if raw.startswith(found[0])), (OCTET_STREAM_TYPE, ".bin")
        )
        if name and not media_type:
            guessed = mimetypes.guess_type(name)[0] or guessed
        media_type = media_type or guessed
        name = name or f"output{suffix if media_type == guessed else mimetypes.guess_extension(media_type) or '.bin'}"
    return pb.Part(raw=raw, filename=checked_string(name), media_type=checked_string(media_type))


def checked_part(part: pb.Part) -> pb.Part:
    """Returns `part` if it is valid: exactly one content (1.0 §4.1.6). Raises InvalidAgentResponse otherwise."""
    content = part.WhichOneof("content")
    if content is None:
        raise InvalidAgentResponse("a Part has no content; set one of text, raw, url, data")
    check_json_value("metadata of a Part", part.metadata)
    if content == "data":
        check_json_value("data", part.data)
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
    """Converts `value` to a valid artifact with an id. The arguments override the fields of an Artifact."""
    artifact = _copied_or_with_parts(pb.Artifact, value)
    if id:
        artifact.artifact_id = checked_string(id)
    elif not artifact.artifact_id:
        artifact.artifact_id = new_id()
    if name:
        artifact.name = checked_string(name)
    elif isinstance(value, PathLike):
        artifact.name = artifact.parts[0].filename
    if description:
        artifact.description = checked_string(description)
    set_metadata(artifact, metadata)
    return artifact


def message_of(value: object, new_id: NewId, turn_context: TurnContext) -> pb.Message:
    """Converts `value` to a valid message from the agent, in the task of this turn.

    A Message with ROLE_USER gives its content only: it becomes a new agent message with a new id.
    """
    message = _copied_or_with_parts(pb.Message, value)
    if message.role == pb.ROLE_USER or not message.message_id:
        message.message_id = new_id()
    message.role = pb.ROLE_AGENT
    message.task_id, message.context_id = turn_context.task_id, turn_context.context_id
    return message


M = TypeVar("M", pb.Artifact, pb.Message)


def _copied_or_with_parts(kind: type[M], value: object) -> M:
    """A valid copy of a value of this kind; for another value, a new message with its parts."""
    value, created = to_local_type(value), kind()
    if isinstance(value, kind):
        created.CopyFrom(value)  # do not change the author's object
        for part in created.parts:
            checked_part(part)
        check_json_value(f"metadata of {type_name(value)}", created.metadata)
    else:
        created.parts.extend(parts_of(value))
    if not created.parts:
        raise InvalidAgentResponse(f"{type_name(created)} has no parts; it must have at least one")
    return created


def set_metadata(target: Any, metadata: Mapping[str, object] | None) -> None:
    """Merges `metadata` into the metadata of a Part, Artifact, Message or event."""
    if metadata:
        try:
            target.metadata.update(to_json(metadata))
        except InvalidAgentResponse as error:
            raise InvalidAgentResponse(f"metadata: {error}") from None


def check_task_metadata(label: str, known: bytes, update: Any) -> bytes:
    """Returns the Struct `update` serialized, to be merged into a task's metadata (1.0 §4.1.1) by key.

    `known` is the task's metadata before. Raises InvalidAgentResponse for the key `usage`, which the server writes,
    for values that JSON cannot represent, and beyond the limits of size and depth.
    """
    if USAGE_METADATA_KEY in update.fields:
        raise InvalidAgentResponse(
            f"{label}.{USAGE_METADATA_KEY}: the server writes this key; report usage instead, or use another key"
        )
    if problem := value_problem(update):
        raise InvalidAgentResponse(f"{label} {problem}")
    encoded: bytes = update.SerializeToString(deterministic=True)
    if (size := len(merge_metadata(known, encoded))) > MAX_TASK_METADATA_BYTES:
        raise InvalidAgentResponse(
            f"{label}: the task's metadata would have {size} bytes; at most {MAX_TASK_METADATA_BYTES} are accepted"
        )
    return encoded


def event_metadata(metadata: Mapping[str, object] | None) -> bytes:
    """The metadata of an event as a serialized Struct; empty for none. Raises InvalidAgentResponse."""
    update = pb.TaskStatusUpdateEvent()
    set_metadata(update, metadata)
    return update.metadata.SerializeToString()


def artifact_change(artifact: pb.Artifact, *, append: bool = False, last: bool = False) -> ArtifactChange:
    """The event that sends `artifact`, with its fields as bytes."""
    head = encode_artifact_head(artifact.artifact_id, artifact.name, artifact.description)
    tail = frames.submessage(5, artifact.metadata.SerializeToString())
    for uri in artifact.extensions:
        tail += frames.text(6, uri)
    return ArtifactChange(
        artifact.artifact_id, head, encode_parts(artifact.parts), tail, append=append, last_chunk=last
    )


def text_artifact_change(id: str, text: str) -> ArtifactChange:
    """The event that sends one text as a whole artifact: in 6 calls, in place of 16 by way of an Artifact."""
    part = pb.Part(text=checked_string(text)).SerializeToString()
    return ArtifactChange(id, encode_artifact_head(id), frames.frame(4, part), b"", last_chunk=True)


@lru_cache(maxsize=16)  # chunks of one artifact have the same
def encode_artifact_head(id: str, name: str = "", description: str = "") -> bytes:
    """The Artifact fields before its parts, as bytes."""
    head = frames.text(1, id)
    if name or description:
        head += frames.text(2, name) + frames.text(3, description)
    return head


def encode_parts(parts: Any) -> bytes:
    """Field 4 of Artifact, one entry per part, as bytes."""
    return b"".join([frames.frame(4, part.SerializeToString()) for part in parts])


def _only_part(item: object) -> pb.Part:
    if isinstance(item, pb.Part):
        return item
    raise InvalidAgentResponse(f"a list of Parts contains {type(item).__qualname__}; every item must be a Part")


def _unsupported_value(value: object) -> InvalidAgentResponse:
    if value is None:
        return InvalidAgentResponse("None is not content; to send nothing, omit the call or the yield")
    if inspect.isawaitable(value):
        if inspect.iscoroutine(value):
            value.close()  # prevents the "never awaited" warning
        return InvalidAgentResponse(f"{type(value).__name__} is not content; an await is missing")
    if inspect.isgenerator(value) or inspect.isasyncgen(value):
        return InvalidAgentResponse(f"{type(value).__name__} is not content; iterate over it and yield its values")
    return InvalidAgentResponse(
        f"{type(value).__qualname__} is not content; use str, dict, list, a number, bytes, Path,"
        " a pydantic model, a dataclass, Part, Artifact or Message"
    )


MAX_EXACT_INTEGER: Final = 2**53  # the largest magnitude up to which a double represents every integer exactly


def to_json(value: object, depth_left: int = MAX_NESTING_DEPTH) -> Any:
    """Converts `value` to dict, list, str, float, int, bool and None. Pydantic models and dataclasses become dicts.

    Dates, times and durations become ISO 8601 strings, UUIDs and Decimals strings, members of an Enum their values.

    Raises InvalidAgentResponse for a value that has no JSON form or nests too deeply.
    """
    match value:
        case None | bool():
            return value
        case str():
            return checked_string(value)
        case int():
            if abs(value) > MAX_EXACT_INTEGER:
                raise InvalidAgentResponse(
                    f"{abbreviated(value)} is beyond 2^53 and would be rounded; pass it as a string"
                )
            return value
        case float():
            if not math.isfinite(value):
                raise InvalidAgentResponse(f"{value} is not a JSON number; pass None or a string instead")
            return value
        case list() | tuple():
            _check_depth(depth_left)
            return [to_json(item, depth_left - 1) for item in value]
        case Mapping():
            return _object_to_json(value, depth_left)
        case date() | time():
            return value.isoformat().replace("+00:00", "Z")
        case timedelta():
            return _duration_to_json(value)
        case UUID() | Decimal():
            return str(value)
        case Enum():
            return to_json(value.value, depth_left)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _object_to_json({one.name: getattr(value, one.name) for one in dataclasses.fields(value)}, depth_left)
    if _is_pydantic_model(value):
        return to_json(value.model_dump(mode="json"), depth_left)  # type: ignore[attr-defined]
    raise InvalidAgentResponse(f"{type_name(value)} is not JSON; use dict, list, str, int, float, bool or None")


def fill_value(target: Any, value: Any) -> None:
    """Writes a JSON value into a protobuf Value."""
    match value:
        case None:
            target.null_value = 0
        case bool():
            target.bool_value = value
        case str():
            target.string_value = value
        case int() | float():
            target.number_value = value
        case list():
            target.list_value.SetInParent()  # the empty list is a value too
            target.list_value.extend(value)
        case dict():
            target.struct_value.SetInParent()
            target.struct_value.update(value)


def value_to_json(value: Any) -> Any:
    """The JSON value of a protobuf Value. Integers up to 2^53 become int."""
    match value.WhichOneof("kind"):
        case "number_value":
            number = value.number_value
            return int(number) if number.is_integer() and abs(number) <= MAX_EXACT_INTEGER else number
        case "string_value":
            return value.string_value
        case "bool_value":
            return value.bool_value
        case "struct_value":
            return struct_to_json(value.struct_value)
        case "list_value":
            return [value_to_json(item) for item in value.list_value.values]
        case _:
            return None


def struct_to_json(struct: Any) -> dict[str, Any]:
    return {key: value_to_json(item) for key, item in struct.fields.items()}


def struct_of(data: bytes) -> struct_pb2.Struct:
    """Parses a serialized Struct, in the descriptor pool of our messages."""
    return pb.Task.FromString(frames.submessage(6, data)).metadata


def check_json_value(label: str, value: Any) -> None:
    """Raises InvalidAgentResponse if a Struct or Value has no JSON form or nests too deeply.

    A stored NaN or infinity would make every later REST response fail.
    """
    if problem := value_problem(value, sys.maxsize):
        raise InvalidAgentResponse(f"{label} {problem}")


def checked_metadata(label: str, metadata: Any) -> bytes:
    """Serializes the Struct of an event's metadata. Raises as `check_json_value`."""
    check_json_value(label, metadata)
    serialized: bytes = metadata.SerializeToString()
    return serialized


def checked_string(value: str) -> str:
    """Returns `value` if UTF-8 can encode it. Raises InvalidAgentResponse for a lone surrogate."""
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise InvalidAgentResponse(
                f"a string has a lone surrogate at position {error.start}, which UTF-8 cannot encode"
            ) from None
    return value


def _duration_to_json(value: timedelta) -> str:
    """An ISO 8601 duration such as `P1DT2H3.5S`; `PT0S` for none."""
    sign, value = ("-", -value) if value < timedelta() else ("", value)
    minutes, seconds = divmod(value.seconds, 60)
    fraction = f".{value.microseconds:06}".rstrip("0") if value.microseconds else ""
    amounts = {"H": str(minutes // 60), "M": str(minutes % 60), "S": f"{seconds}{fraction}"}
    clock = "".join(f"{amount}{unit}" for unit, amount in amounts.items() if amount != "0")
    days = f"{value.days}D" if value.days else ""
    return f"{sign}P{days}T{clock}" if clock else f"{sign}P{days or 'T0S'}"


def _object_to_json(value: Mapping[Any, object], depth_left: int) -> dict[str, Any]:
    _check_depth(depth_left)
    result = {}
    for key, item in value.items():
        if not isinstance(key, str):
            raise InvalidAgentResponse(f"the key {abbreviated(key)} of an object is {type_name(key)}; keys must be str")
        result[checked_string(key)] = to_json(item, depth_left - 1)
    return result


def _check_depth(depth_left: int) -> None:
    if depth_left == 0:
        raise InvalidAgentResponse(f"data nests more than {MAX_NESTING_DEPTH} levels of arrays and objects")


def _is_pydantic_model(value: object) -> bool:
    # An agent that has a model has imported pydantic; other agents do not pay for the import.
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and isinstance(value, pydantic.BaseModel)


def type_name(value: object) -> str:
    """The name of the value's type, with an article."""
    name = type(value).__qualname__
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"


def abbreviated(value: object) -> str:
    """At most 60 characters of `repr(value)`, in ASCII: for error texts."""
    if isinstance(value, int) and abs(value) > 10**40:
        return f"an integer of {value.bit_length()} bits"  # formatting it may cost more than the rest of the turn
    text = ascii(value)
    return text if len(text) <= 60 else f"{text[:59]}…"
