"""Checks of a sent message that need no store: required fields, lengths, sizes, and accepted media types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dragoman.core.errors import ContentTypeNotSupported, InvalidParams
from dragoman.core.limits.message_limits import MAX_ID_LENGTH, check_parts, check_value
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

ANY_MEDIA_TYPE: Final = ("*/*",)  # the input modes of an agent that accepts all media types, or checks its input itself


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
