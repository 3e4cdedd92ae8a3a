"""How much a stranger may send, and how deep (every binding asks here, so the answers are the same)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from dragoman.core.errors import ContentTypeNotSupported, InvalidParams, PayloadTooLarge
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

MAX_MESSAGE_BYTES: Final = 16 * 1024 * 1024
"""Default for the decoded request, whatever its wire form."""

MAX_NESTING_DEPTH: Final = 24
"""Levels of arrays and objects in data and metadata. An object costs three protobuf levels, and readers stop at 100."""

MAX_VALUES: Final = 50_000
"""Values in the data and metadata of one field, or in one JSON body: what seven million would cost, everybody waits
for."""

MAX_PARTS: Final = 10_000
"""Parts of a message."""

MAX_ID_LENGTH: Final = 512
"""Characters of an id that a client chose."""


def check_size(size: int, limit: int) -> None:
    """Raises PayloadTooLarge when a decoded request of `size` bytes is over `limit`."""
    if size > limit:
        raise PayloadTooLarge(f"request: {size} bytes decoded; at most {limit} are accepted")


def check_value(field: str, value: Any) -> None:
    """Raises InvalidParams for a Struct or Value (of any descriptor pool) that nests arrays and objects too deeply,
    or that holds a number JSON has no text for (NaN, infinity)."""
    if problem := _value_problem(value, MAX_NESTING_DEPTH, [MAX_VALUES]):
        raise InvalidParams.field(field, problem)


def check_parts(field: str, count: int) -> None:
    """Raises InvalidParams for more parts than a message may have."""
    if count > MAX_PARTS:
        raise InvalidParams.field(field, f"holds {count} parts; at most {MAX_PARTS} are accepted")


def _value_problem(value: Any, depth_left: int, values_left: list[int]) -> str:
    """`room`: how many values there may still be; one number that all levels count down."""
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


ANY_MEDIA_TYPE: Final = ("*/*",)
"""The media types of an agent that takes all of them."""


def check_message(request: pb.SendMessageRequest, input_modes: Sequence[str]) -> None:
    """Raises InvalidParams or ContentTypeNotSupported, naming the field, unless the agent may be given this."""
    if not request.HasField("message"):
        raise InvalidParams.field("message", "is required")
    message = request.message
    if not message.message_id:
        raise InvalidParams.field("message.messageId", "is required; any text that is unique to the sender")
    _check_length("message.messageId", message.message_id)
    _check_length("message.contextId", message.context_id)
    _check_length("message.taskId", message.task_id)
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


def _check_length(field: str, value: str) -> None:
    if len(value) > MAX_ID_LENGTH:
        raise InvalidParams.field(field, f"must be at most {MAX_ID_LENGTH} characters, not {len(value)}")


def _check_part(index: int, part: pb.Part, input_modes: Sequence[str]) -> None:
    content = part.WhichOneof("content")
    if content is None:
        raise InvalidParams.field(f"message.parts[{index}]", "must have exactly one of text, raw, url, data")
    if part.HasField("metadata"):
        check_value(f"message.parts[{index}].metadata", part.metadata)
    if content == "data":
        check_value(f"message.parts[{index}].data", part.data)
    media_type = media_type_of(part)
    if (
        media_type
        and media_type not in input_modes
        and not any(_mode_matches(media_type, mode) for mode in input_modes)
    ):
        field = f"message.parts[{index}]"
        raise ContentTypeNotSupported(
            f'{field}.mediaType: "{media_type}" is not accepted by this agent; use one of {", ".join(input_modes)}',
            metadata={"field": f"{field}.mediaType", "accepted": ", ".join(input_modes)},
        )


def media_type_of(part: pb.Part) -> str:
    """The media type a part has, said or implied; empty for a link that does not say."""
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
    """Whether a declared mode (`text/plain`, `text/*`, `*/*`, the `text` of 0.1 cards) admits a media type."""
    given = media_type.split(";", 1)[0].strip().lower()
    allowed = mode.split(";", 1)[0].strip().lower()
    if allowed in ("*/*", "*", given):
        return True
    return allowed.removesuffix("/*") == given.split("/", 1)[0] and "/" not in allowed.removesuffix("/*")
