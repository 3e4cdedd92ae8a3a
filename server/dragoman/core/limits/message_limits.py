"""Limits of a request, the same for every binding, and the checks of a sent message that need no store."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from google.protobuf import struct_pb2

from dragoman.core.errors import ContentTypeNotSupported, InvalidParams, PayloadTooLarge
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

MAX_MESSAGE_BYTES: Final = 16 * 1024 * 1024  # default maximum size of a decoded request, in every wire form

MAX_NESTING_DEPTH: Final = 24
"""Levels of arrays and objects in data and metadata. An object takes three protobuf levels; parsers stop at 100."""

MAX_VALUES: Final = 50_000
"""Values in the data or metadata of one field, or in one JSON body. Parsing seven million would block everyone."""

MAX_TASK_METADATA_BYTES: Final = 256 * 1024
"""Bytes of a task's metadata (1.0 §4.1.1), as protobuf. Each change of it writes all of them."""

MAX_CANCEL_METADATA_BYTES: Final = 64 * 1024
"""Bytes of the metadata of a cancel request, as protobuf. Servers poll for stored requests and read it each time."""

MAX_PARTS: Final = 10_000  # parts in a message
MAX_ID_LENGTH: Final = 512  # characters in an id that a client chose

ANY_MEDIA_TYPE: Final = ("*/*",)  # the input modes of an agent that accepts all media types, or checks its input itself


def check_size(size: int, limit: int) -> None:
    """Raises PayloadTooLarge when a decoded request has more than `limit` bytes."""
    if size > limit:
        raise PayloadTooLarge(f"request: {size} bytes decoded; at most {limit} are accepted")


def check_value(field: str, value: Any) -> None:
    """Validates a Struct or Value of any descriptor pool.

    Raises InvalidParams for too many levels or values, and for numbers that JSON cannot express (NaN, infinity).
    """
    if problem := value_problem(value):
        raise InvalidParams.field(field, problem)


def checked_cancel_metadata(metadata: struct_pb2.Struct) -> bytes:
    """Serializes the metadata of a cancel request. Raises InvalidParams, also above MAX_CANCEL_METADATA_BYTES."""
    check_value("metadata", metadata)
    if (size := metadata.ByteSize()) > MAX_CANCEL_METADATA_BYTES:
        raise InvalidParams.field("metadata", f"has {size} bytes; at most {MAX_CANCEL_METADATA_BYTES} are accepted")
    return metadata.SerializeToString()


def check_parts(field: str, count: int) -> None:
    """Raises InvalidParams for more than MAX_PARTS parts."""
    if count > MAX_PARTS:
        raise InvalidParams.field(field, f"holds {count} parts; at most {MAX_PARTS} are accepted")


def value_problem(value: Any, max_values: int = MAX_VALUES) -> str:
    """Why a Struct or Value of any descriptor pool is not accepted; empty if it is."""
    return _value_problem(value, MAX_NESTING_DEPTH, [max_values])


def _value_problem(value: Any, depth_left: int, values_left: list[int]) -> str:
    """`values_left`: one counter that all levels share and count down."""
    match value.DESCRIPTOR.name:
        case "Struct":
            inner = value.fields.values()
        case "ListValue":
            inner = value.values
        case _:
            kind = value.WhichOneof("kind")
            if kind == "number_value" and not math.isfinite(value.number_value):
                return "holds NaN or infinity; JSON has finite numbers only"
            if kind not in ("struct_value", "list_value"):
                return ""
            return _value_problem(getattr(value, kind), depth_left, values_left)
    values_left[0] -= len(inner)
    if values_left[0] < 0:
        return f"holds more than {MAX_VALUES} values"
    if depth_left == 0:
        return f"nests more than {MAX_NESTING_DEPTH} levels of arrays and objects"
    return next(filter(None, (_value_problem(item, depth_left - 1, values_left) for item in inner)), "")


# A sent message -------------------------------------------------------------------------------------------------------


def check_message(request: pb.SendMessageRequest, input_modes: Sequence[str]) -> None:
    """Validates a send. Raises InvalidParams or ContentTypeNotSupported, naming the field."""
    if not request.HasField("message"):
        raise InvalidParams.field("message", "is required")
    message = request.message
    if not message.message_id:
        raise InvalidParams.field("message.messageId", "is required; use any text that is unique for the sender")
    for field, id in (
        ("message.messageId", message.message_id),
        ("message.contextId", message.context_id),
        ("message.taskId", message.task_id),
    ):
        if len(id) > MAX_ID_LENGTH:
            raise InvalidParams.field(field, f"must be at most {MAX_ID_LENGTH} characters, not {len(id)}")
    if message.role not in (pb.ROLE_USER, pb.ROLE_AGENT):
        raise InvalidParams.field("message.role", "must be ROLE_USER or ROLE_AGENT")
    if not message.parts:
        raise InvalidParams.field("message.parts", "must hold at least one part")
    check_parts("message.parts", len(message.parts))
    if request.HasField("metadata"):
        check_value("metadata", request.metadata)
    if message.HasField("metadata"):
        check_value("message.metadata", message.metadata)
    if request.configuration.HasField("history_length") and request.configuration.history_length < 0:
        raise InvalidParams.field("configuration.historyLength", "must be 0 or more")
    for index, part in enumerate(message.parts):
        _check_part(index, part, input_modes)


def _check_part(index: int, part: pb.Part, input_modes: Sequence[str]) -> None:
    content = part.WhichOneof("content")
    if content is None:
        raise InvalidParams.field(f"message.parts[{index}]", "must have exactly one of text, raw, url, data")
    if part.HasField("metadata"):
        check_value(f"message.parts[{index}].metadata", part.metadata)
    if content == "data":
        check_value(f"message.parts[{index}].data", part.data)
    media_type = media_type_of(part)
    if not media_type:
        return
    for mode in input_modes:
        if _mode_matches(media_type, mode):
            return
    field = f"message.parts[{index}]"
    raise ContentTypeNotSupported(
        f'{field}.mediaType: "{media_type}" is not accepted by this agent; use one of {", ".join(input_modes)}',
        metadata={"field": f"{field}.mediaType", "accepted": ", ".join(input_modes)},
    )


def media_type_of(part: pb.Part) -> str:
    """The explicit or implied media type of a part; empty for a `url` part without one."""
    if part.media_type:
        return part.media_type
    match part.WhichOneof("content"):
        case "text":
            return "text/plain"
        case "data":
            return "application/json"
        case "raw":
            return "application/octet-stream"
        case _:
            return ""


def _mode_matches(media_type: str, mode: str) -> bool:
    """Whether a declared mode (`text/plain`, `text/*`, `*/*`, the `text` of 0.1 cards) matches a media type."""
    actual = media_type.split(";", 1)[0].strip().lower()
    allowed = mode.split(";", 1)[0].strip().lower()
    if allowed in ("*/*", "*", actual):
        return True
    return allowed.removesuffix("/*") == actual.partition("/")[0]  # `text/*`, or the `text` of 0.1 cards
