from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dragoman.core.task import frames
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

TEXT = st.text(max_size=300)


@given(TEXT, TEXT, st.lists(TEXT, max_size=4))
def test_joined_fields_are_the_message(id_: str, name: str, texts: list[str]) -> None:
    parts = [pb.Part(text=text) for text in texts]
    artifact = pb.Artifact(artifact_id=id_, name=name, parts=parts)
    joined = frames.text(1, id_) + frames.text(2, name)
    joined += b"".join(frames.frame(4, part.SerializeToString()) for part in parts)
    assert joined == artifact.SerializeToString()


@given(st.integers(0, 2**63 - 1))
def test_integers_are_encoded_as_protobuf_does(value: int) -> None:
    page = pb.ListTasksResponse(page_size=value % 2**31)
    assert frames.integer(3, value % 2**31) == page.SerializeToString()
    assert len(frames.varint(value)) == max(1, (value.bit_length() + 6) // 7)


@given(st.integers(0, 253_402_300_799_999))
def test_timestamps_are_milliseconds(milliseconds: int) -> None:
    status = pb.TaskStatus.FromString(frames.frame(3, frames.timestamp(milliseconds)))
    assert status.timestamp.ToMilliseconds() == milliseconds


@given(st.lists(st.binary(max_size=300), max_size=8))
def test_delimited_messages_round_trip(payloads: list[bytes]) -> None:
    assert list(frames.undelimited(frames.delimited(payloads))) == payloads


def test_an_empty_submessage_is_omitted() -> None:
    assert frames.submessage(3, b"") == b""
    assert frames.frame(3, b"") == b"\x1a\x00"


GROUP = (
    b"\xa3\x06"
    + b"\x08\x96\x01"
    + b"\x11"
    + bytes(8)
    + b"\x1a\x02hi"
    + b"\x25"
    + bytes(4)
    + b"\xa3\x06\xa4\x06"
    + b"\xa4\x06"
)
"""A group (field 100) with fields of every wire type and a nested group, as old clients may send it."""


def test_an_unknown_group_is_skipped() -> None:
    before, after = frames.text(1, "a"), frames.text(2, "b")
    data = before + GROUP + after
    assert pb.Artifact.FromString(data).SerializeToString() == before + after + GROUP  # unknown fields last
    assert [(number, data[begin:end]) for number, _, begin, end in frames.fields(data)] == [(1, b"a"), (2, b"b")]
