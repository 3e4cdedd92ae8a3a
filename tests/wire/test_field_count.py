from __future__ import annotations

import pytest

from dragoman.core.errors import InvalidParams
from dragoman.core.task import frames
from dragoman.wire.field_count import MAX_MESSAGE_FIELDS, parse_message
from dragoman_pb.a2a.v1 import a2a_pb2 as v03
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

PART = frames.frame(5, b"")
NULL = frames.frame(1, b"\x08\x00")


def message(*parts: bytes) -> bytes:
    return frames.frame(2, b"".join((frames.text(1, "m"), *parts)))


@pytest.mark.parametrize(
    "data",
    [
        message(PART * (MAX_MESSAGE_FIELDS + 1)),
        message(frames.frame(5, frames.frame(4, frames.frame(6, NULL * (MAX_MESSAGE_FIELDS + 1))))),
        message(frames.frame(8, b"") * (MAX_MESSAGE_FIELDS + 1)),
        b"\xa3\x06\xa4\x06" + message(PART * (MAX_MESSAGE_FIELDS + 1)),
        message(PART) + b"\x20\x01" * (MAX_MESSAGE_FIELDS + 1),
        b"\xa3\x06" + b"\x20\x01" * (MAX_MESSAGE_FIELDS + 1) + b"\xa4\x06",
        bytes(2 * MAX_MESSAGE_FIELDS + 2),
    ],
    ids=["parts", "values", "texts", "behind a group", "integers", "in a group", "zeros"],
)
def test_a_message_with_too_many_fields_is_rejected_before_it_is_parsed(data: bytes) -> None:
    with pytest.raises(InvalidParams, match=str(MAX_MESSAGE_FIELDS)):
        parse_message(pb.SendMessageRequest, data)


def test_a_large_message_with_few_fields_is_accepted() -> None:
    data = message(frames.frame(5, frames.frame(2, bytes(4 * MAX_MESSAGE_FIELDS))), PART * 100)
    request = parse_message(pb.SendMessageRequest, data)
    assert isinstance(request, pb.SendMessageRequest)
    assert len(request.message.parts) == 101


@pytest.mark.parametrize(
    "data", [b"\xff" * (MAX_MESSAGE_FIELDS + 1), b"\x12\xff\xff\xff\x7f" + bytes(MAX_MESSAGE_FIELDS)]
)
def test_invalid_bytes_are_rejected_by_the_parser(data: bytes) -> None:
    with pytest.raises(InvalidParams, match="is not a serialized"):
        parse_message(v03.SendMessageRequest, data)
