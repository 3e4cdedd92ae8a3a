from __future__ import annotations

import pytest

from dragoman.bindings.methods import parse
from dragoman.core import frames
from dragoman.core.errors import InvalidParams
from dragoman.wire.weighing import MOST
from dragoman_pb.a2a.v1 import a2a_pb2 as v03
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

PART = frames.frame(5, b"")
NULL = frames.frame(1, b"\x08\x00")


def message(*parts: bytes) -> bytes:
    return frames.frame(2, b"".join((frames.text(1, "m"), *parts)))


@pytest.mark.parametrize(
    "data",
    [
        message(PART * (MOST + 1)),
        message(frames.frame(5, frames.frame(4, frames.frame(6, NULL * (MOST + 1))))),
        message(frames.frame(8, b"") * (MOST + 1)),
        b"\xa3\x06\xa4\x06" + message(PART * (MOST + 1)),
    ],
    ids=["parts", "values", "texts", "behind a group"],
)
def test_what_would_be_a_gigabyte_is_refused_before_it_is_made(data: bytes) -> None:
    with pytest.raises(InvalidParams, match=str(MOST)):
        parse(pb.SendMessageRequest, data)


def test_what_is_only_large_is_taken() -> None:
    data = message(frames.frame(5, frames.frame(2, bytes(4 * MOST))), PART * 100)
    request = parse(pb.SendMessageRequest, data)
    assert isinstance(request, pb.SendMessageRequest)
    assert len(request.message.parts) == 101


@pytest.mark.parametrize("data", [b"\xff" * (MOST + 1), b"\x12\xff\xff\xff\x7f" + bytes(MOST)])
def test_what_is_no_message_is_refused_as_such(data: bytes) -> None:
    with pytest.raises(InvalidParams, match="is no serialized"):
        parse(v03.SendMessageRequest, data)
