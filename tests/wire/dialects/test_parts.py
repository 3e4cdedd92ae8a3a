"""Parts of the three families: how each is read, and how the older two are written."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.wire.dialects.parts import DATA_WRAPPER_KEY, is_rust, is_tagged, part_decoder, part_encoder
from dragoman.wire.json.wellknown import FieldError
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


def flat(part: Any, value: object) -> None:
    """Stands for the decoder of 1.0."""
    part.text = f"flat {value}"


def read(value: object) -> pb.Part:
    part = pb.Part()
    part_decoder(flat)(part, value)
    return part


def data_part(value: Any, **metadata: Any) -> pb.Part:
    part = pb.Part()
    if type(value) is dict:
        part.data.struct_value.SetInParent()
        part.data.struct_value.update(value)
    else:
        part.data.number_value = value
    part.metadata.update(metadata)
    if not metadata:
        part.ClearField("metadata")
    return part


FILE = pb.Part(raw=b"hi", filename="a.txt", media_type="text/plain")


@pytest.mark.parametrize(
    ("value", "tagged"),
    [
        ({"kind": "text"}, True),
        ({"type": "text"}, True),
        ({"file": {}}, True),
        ({"text": "x"}, False),
        ({"data": {}}, False),
        ("kind", False),
        (["kind"], False),
    ],
)
def test_an_older_part_has_a_tag_or_a_file(value: object, tagged: bool) -> None:
    assert is_tagged(value) is tagged


def test_every_other_part_goes_to_the_decoder_of_1_0() -> None:
    assert read({"text": "x"}).text == "flat {'text': 'x'}"
    assert read(7).text == "flat 7"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"kind": "text", "text": "x"}, pb.Part(text="x")),
        ({"type": "text", "text": ""}, pb.Part(text="")),
        ({"kind": None, "type": "text", "text": "x"}, pb.Part(text="x")),
        ({"kind": "file", "file": {"bytes": "aGk=", "name": "a.txt", "mimeType": "text/plain"}}, FILE),
        ({"file": {"data": "aGk=", "name": "a.txt", "mime_type": "text/plain"}}, FILE),
        ({"kind": "file", "file": {"uri": "http://x"}}, pb.Part(url="http://x")),
        ({"kind": "file", "file": {"url": "http://x"}}, pb.Part(url="http://x")),
        ({"kind": "data", "data": {"a": 1}}, data_part({"a": 1})),
        ({"kind": "data", "data": {}}, data_part({})),
        ({"kind": "data", "data": {"value": 3}, "metadata": {DATA_WRAPPER_KEY: True}}, data_part(3)),
        (
            {"kind": "data", "data": {"value": 3}, "metadata": {DATA_WRAPPER_KEY: True, "mine": 1}},
            data_part(3, mine=1),
        ),
        ({"kind": "data", "data": {"value": 3}}, data_part({"value": 3})),
        (
            {"kind": "data", "data": {"value": 3, "b": 1}, "metadata": {DATA_WRAPPER_KEY: True}},
            data_part({"value": 3, "b": 1}, **{DATA_WRAPPER_KEY: True}),
        ),
    ],
)
def test_a_part_of_an_older_family_is_read(value: dict[str, Any], expected: pb.Part) -> None:
    assert read(value) == expected


@pytest.mark.parametrize(
    ("value", "path", "rule"),
    [
        ({"kind": "poem"}, "kind", "must be one of text, file, data"),
        ({"kind": None, "type": "poem"}, "type", "must be one of text, file, data"),
        ({"type": "text"}, "text", 'is required in a part whose type is "text"'),
        ({"kind": "text", "text": "x", "file": {}}, "file", "cannot stand beside text"),
        ({"file": {"bytes": "aGk=", "uri": "http://x"}}, "file", "must have exactly one of bytes, uri"),
        ({"kind": "data", "data": [1]}, "data", "must be a JSON object"),
    ],
)
def test_an_invalid_part_names_its_field_and_the_rule(value: dict[str, Any], path: str, rule: str) -> None:
    with pytest.raises(FieldError, match=rule) as caught:
        read(value)
    assert caught.value.path == [path]


def test_a_part_without_content_names_the_members() -> None:
    with pytest.raises(FieldError, match="must have one of text, file, data") as caught:
        read({"file": None})
    assert caught.value.path == []


@pytest.mark.parametrize("tag", ["kind", "type"])
@pytest.mark.parametrize(
    ("part", "expected"),
    [
        (pb.Part(text="x", filename="a.txt", media_type="text/plain"), {"tag": "text", "text": "x"}),
        (FILE, {"tag": "file", "file": {"bytes": "aGk=", "name": "a.txt", "mimeType": "text/plain"}}),
        (pb.Part(url="http://x"), {"tag": "file", "file": {"uri": "http://x"}}),
        (data_part({"a": 1}, mine=1), {"tag": "data", "data": {"a": 1}, "metadata": {"mine": 1}}),
        (
            data_part(3, mine=1),
            {"tag": "data", "data": {"value": 3}, "metadata": {"mine": 1, DATA_WRAPPER_KEY: True}},
        ),
        (pb.Part(), {"tag": "text", "text": ""}),
    ],
)
def test_a_part_is_written_with_the_tag_of_its_family(tag: str, part: pb.Part, expected: dict[str, Any]) -> None:
    assert part_encoder(tag)(part) == {tag if key == "tag" else key: value for key, value in expected.items()}


@pytest.mark.parametrize(
    ("request_", "rust"),
    [
        ({"message": {"parts": [{"type": "text", "text": "x"}]}}, True),
        ({"message": {"parts": [{"text": "x"}, {"type": "text"}]}}, False),
        ({"message": {"parts": [{"kind": "text"}]}}, False),
        ({"message": {"parts": []}}, False),
        ({"message": {"parts": "type"}}, False),
        ({"message": ["type"]}, False),
        (["message"], False),
    ],
)
def test_a_send_of_a2a_rust_has_a_type_in_its_first_part(request_: object, rust: bool) -> None:
    assert is_rust(request_) is rust
