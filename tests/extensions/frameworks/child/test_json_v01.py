"""A2A 0.1 JSON of fasta2a from and to 1.0: round trips without loss."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from tests.extensions.frameworks.child.test_json_v03 import parts

from dragoman.extensions.frameworks.child import json_v01


@given(part=parts)
def test_a_part_survives_a_round_trip(part: dict[str, Any]) -> None:
    back = json_v01.artifact_from_v01(json_v01.artifact_to_v01({"artifactId": "a", "parts": [part]}, 3), "a")
    if {"raw", "url"} & set(part):
        part = {"mediaType": "application/octet-stream", **part}  # 0.1 requires one
    assert back == {"artifactId": "a", "parts": [part]}


def test_a_message_has_no_ids_and_parts_have_types() -> None:
    message = {
        "messageId": "m1",
        "taskId": "t1",
        "role": "ROLE_USER",
        "parts": [{"text": "hello"}, {"raw": "AP8=", "filename": "two.bin"}, {"url": "https://a.example/x"}],
        "metadata": {"k": 1},
    }
    assert json_v01.message_to_v01(message) == {
        "role": "user",
        "parts": [
            {"type": "text", "text": "hello"},
            {"type": "file", "file": {"data": "AP8=", "name": "two.bin", "mimeType": "application/octet-stream"}},
            {"type": "file", "file": {"url": "https://a.example/x", "mimeType": "application/octet-stream"}},
        ],
        "metadata": {"k": 1},
    }


def test_a_message_of_the_worker_becomes_one_of_the_agent() -> None:
    message = {"role": "agent", "parts": [{"type": "text", "text": "done"}], "metadata": {"k": 1}}
    assert json_v01.message_from_v01(message) == {
        "role": "ROLE_AGENT",
        "parts": [{"text": "done"}],
        "metadata": {"k": 1},
    }


def test_an_artifact_keeps_name_description_and_metadata() -> None:
    artifact = {"index": 4, "name": "n", "description": "d", "parts": [], "metadata": {"k": 1}, "append": True}
    kept = {"name": "n", "description": "d", "parts": [], "metadata": {"k": 1}}
    assert json_v01.artifact_from_v01(artifact, "7") == {"artifactId": "7", **kept}
    assert json_v01.artifact_to_v01({"artifactId": "7", **kept}, 2) == {**kept, "index": 2}


def test_an_unknown_type_is_named() -> None:
    with pytest.raises(ValueError, match='a part has the unknown type "video"; known types: text, file, data'):
        json_v01.message_from_v01({"role": "agent", "parts": [{"type": "video"}]})
