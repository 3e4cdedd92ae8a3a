"""The constructors of dragoman.types."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from dragoman import types
from dragoman.agents.values import struct_to_json, value_to_json
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


def test_parts_have_only_the_given_fields() -> None:
    assert types.text("hi") == pb.Part(text="hi")
    assert types.text("# hi", media_type="text/markdown") == pb.Part(text="# hi", media_type="text/markdown")
    assert types.link("https://x.example/a", name="a", media_type="image/png") == pb.Part(
        url="https://x.example/a", filename="a", media_type="image/png"
    )
    data = types.data([1], media_type="application/vnd.x+json", metadata={"k": {"n": 1}})
    assert (value_to_json(data.data), data.media_type, struct_to_json(data.metadata)) == (
        [1],
        "application/vnd.x+json",
        {"k": {"n": 1}},
    )


def test_files_have_a_given_or_guessed_name_and_type(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b"{}")
    parts = [
        types.file(path),
        types.file(path, name="b.txt"),
        types.file(path, media_type="text/x"),
        types.file(b"x", name="a.csv"),
        types.file(b"x", media_type="image/png"),
        types.file("text"),
        types.file("{}", name="x.json"),
        types.file("a,b", name="x.csv", media_type="text/x"),
        types.file("?", name="strange.%%%"),
        types.file(b"x", name="strange.%%%"),
    ]
    assert [(part.filename, part.media_type) for part in parts] == [
        ("a.json", "application/json"),
        ("b.txt", "text/plain"),
        ("a.json", "text/x"),
        ("a.csv", "text/csv"),
        ("output.png", "image/png"),
        ("output.txt", "text/plain"),
        ("x.json", "application/json"),
        ("x.csv", "text/x"),
        ("strange.%%%", "text/plain"),
        ("strange.%%%", "application/octet-stream"),
    ]


def test_artifacts_and_messages_accept_any_values() -> None:
    artifact = types.artifact("a", {"n": 1}, [types.text("b"), types.text("c")], id="i", name="n", description="d")
    assert [part.WhichOneof("content") for part in artifact.parts] == ["text", "data", "text", "text"]
    assert (artifact.artifact_id, artifact.name, artifact.description) == ("i", "n", "d")
    message = types.message("a", id="m", extensions=["urn:x"], references=["t"], metadata={"k": None})
    assert (message.message_id, message.role) == ("m", pb.ROLE_AGENT)
    assert (list(message.extensions), list(message.reference_task_ids)) == (["urn:x"], ["t"])
    assert struct_to_json(message.metadata) == {"k": None}


@pytest.mark.parametrize(
    "make",
    [
        types.artifact,
        types.message,
        lambda: types.link(""),
        lambda: types.text("\ud800"),
        lambda: types.artifact(None),
        lambda: types.message(pb.Part()),
    ],
)
def test_values_that_the_protocol_cannot_represent_are_rejected(make: Callable[[], object]) -> None:
    with pytest.raises(types.InvalidAgentResponse):
        make()


def test_every_public_name_exists() -> None:
    assert all(hasattr(types, name) for name in types.__all__)
