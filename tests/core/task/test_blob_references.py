"""Offloading large parts and restoring them byte for byte."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.core.task import blob_references, frames
from dragoman.core.task.blob_references import (
    EVENT_TREE,
    URL_FIELD,
    BlobReference,
    offload_parts,
    restore_parts,
    rewrite_parts,
)
from dragoman.core.task.log import Append, ArtifactChange, IncomingMessage, StatusChange
from dragoman.core.task.plan import plan
from dragoman.testing.fixtures import SESSION, by_runner, created, new_ref
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

MARKER = b"0123456789abcdef"

PARTS = st.lists(
    st.one_of(
        st.builds(
            lambda raw, name: pb.Part(raw=raw, filename=name, media_type="a/b"),
            st.binary(max_size=90),
            st.text(max_size=3),
        ),
        st.builds(lambda text: pb.Part(text=text), st.text(max_size=60)),
        st.builds(lambda text: pb.Part(data={"struct_value": {"k": text}}, metadata={"m": text}), st.text(max_size=60)),
    ),
    max_size=4,
)


@pytest.fixture(autouse=True, scope="module")
def _small() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blob_references, "LARGE_PART_BYTES", 20)
        yield


def message(parts: list[pb.Part]) -> bytes:
    return pb.Message(message_id="m", role=pb.ROLE_AGENT, parts=parts, metadata={"a": "b" * 30}).SerializeToString()


@given(PARTS, PARTS, PARTS)
def test_restored_bytes_are_identical_to_the_offloaded_ones(
    message_parts: list[pb.Part], artifact_parts: list[pb.Part], status_parts: list[pb.Part]
) -> None:
    new = created(new_ref(), claim=SESSION)
    framed = pb.Artifact(parts=artifact_parts).SerializeToString()
    contents: dict[bytes, bytes] = {}

    def taken_out(change: Append) -> Append:
        spilled = offload_parts(change, MARKER)
        contents.update(spilled.contents)
        assert change.may_have_part_over(blob_references.LARGE_PART_BYTES) or not spilled.contents
        assert {blob.digest for blob in spilled.change.blobs} == spilled.contents.keys()
        return spilled.change

    first = replace(new, message=IncomingMessage(message(message_parts)))
    before = plan(None, first, 1)
    after = plan(None, taken_out(first), 1)
    then = by_runner(
        before.outcome,
        ArtifactChange("a", frames.text(1, "a"), framed),
        StatusChange(2, message(status_parts)),
        end=True,
    )
    shown = [*before.events, *plan(before.record, then, 2).events]
    stored = [*after.events, *plan(after.record, taken_out(then), 2).events]
    raws = {part.raw for parts in (message_parts, artifact_parts, status_parts) for part in parts}
    texts = {part.text.encode() for part in artifact_parts}  # texts of messages stay
    assert {content for content in raws | texts if len(content) > 20} == set(contents.values())
    for one, kept in zip(shown, stored, strict=True):
        assert (
            restore_parts(kept.data, EVENT_TREE, MARKER, lambda one: (one.field, contents[one.blob.digest])) == one.data
        )
        if MARKER not in kept.data:
            assert kept.data == one.data


def test_a_reference_names_its_blob() -> None:
    raw = b"x" * 300
    change = by_runner(
        plan(None, created(new_ref(), claim=SESSION), 1).outcome,
        ArtifactChange(
            "a", b"", frames.frame(4, pb.Part(raw=raw, filename="ä.txt", media_type="text/plain").SerializeToString())
        ),
    )
    spilled = offload_parts(change, MARKER).change.events[0]
    assert isinstance(spilled, ArtifactChange)
    assert raw[:20] not in spilled.parts
    seen: list[BlobReference] = []

    def resolve(reference: BlobReference) -> tuple[int, bytes]:
        seen.append(reference)
        return URL_FIELD, b"https://example.com/blob"

    part = pb.Artifact.FromString(restore_parts(spilled.parts, blob_references.PARTS_TREE, MARKER, resolve)).parts[0]
    assert part == pb.Part(url="https://example.com/blob", filename="ä.txt", media_type="text/plain")
    assert [(one.blob.size, one.filename, one.media_type) for one in seen] == [(300, "ä.txt", "text/plain")]


def test_a_link_to_a_text_says_that_it_is_text() -> None:
    outcome = plan(None, created(new_ref(), claim=SESSION), 1).outcome
    parts = [pb.Part(text="ä" * 300), pb.Part(text="b" * 300, media_type="text/csv")]
    framed = pb.Artifact(parts=parts).SerializeToString()
    spilled = offload_parts(by_runner(outcome, ArtifactChange("a", b"", framed)), MARKER).change.events[0]
    assert isinstance(spilled, ArtifactChange)
    types: list[str] = []

    def resolve(reference: BlobReference) -> tuple[int, bytes]:
        types.append(reference.link_type)
        return URL_FIELD, b"link"

    restored = pb.Artifact.FromString(restore_parts(spilled.parts, blob_references.PARTS_TREE, MARKER, resolve)).parts
    assert types == ["text/plain; charset=utf-8", "text/csv; charset=utf-8"]
    assert restored == [pb.Part(url="link", media_type="text/plain"), pb.Part(url="link", media_type="text/csv")]


def test_a_reference_sent_by_a_client_is_not_resolved() -> None:
    forged = frames.frame(blob_references.REFERENCE_FIELD, b"another marker!!" + bytes(32) + b"\x05")
    parts = frames.frame(4, frames.frame(1, b"t") + forged)

    def resolve(_: BlobReference) -> tuple[int, bytes]:
        raise AssertionError

    assert restore_parts(parts, blob_references.PARTS_TREE, MARKER, resolve) == parts
    text = frames.frame(4, frames.frame(1, MARKER))  # the marker inside a text part is only text
    assert restore_parts(text, blob_references.PARTS_TREE, MARKER, resolve) == text


def test_only_matching_fields_are_rewritten() -> None:
    looked: list[tuple[bytes, int]] = []

    def part(data: bytes, at: int) -> bytes:
        looked.append((data, at))
        return data + b"!"

    data = b"".join(frames.frame(4, text) for text in (b"one", b"two", b"three")) + frames.frame(5, b"other")
    changed = rewrite_parts(data, blob_references.PARTS_TREE, lambda data, begin, end: data[begin:end] == b"two", part)
    assert looked == [(b"two", data.index(b"two"))]
    assert changed == data.replace(frames.frame(4, b"two"), frames.frame(4, b"two!"))


@pytest.mark.parametrize("kind", [4, 6, 7])
def test_an_unknown_wire_type_is_rejected(kind: int) -> None:
    with pytest.raises(ValueError, match=str(kind)):
        list(frames.fields(bytes([8 | kind, 0])))


def test_fields_of_every_wire_type_are_skipped() -> None:
    data = frames.integer(1, 300) + b"\x11" + bytes(8) + b"\x1d" + bytes(4) + frames.frame(9000, b"found")
    ((number, start, begin, end),) = frames.fields(data)
    assert (number, data[begin:end], data[start:end]) == (9000, b"found", frames.frame(9000, b"found"))
