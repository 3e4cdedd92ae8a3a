"""A2A 0.3 JSON from and to 1.0: round trips without loss."""

from __future__ import annotations

import re
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict, ParseDict
from hypothesis import given
from hypothesis import strategies as st

from dragoman.extensions.frameworks.child import json_v03
from dragoman.wire.dialects import v03
from dragoman_pb import _pool
from dragoman_pb.a2a.v1 import a2a_pb2 as v03_pb
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

values = st.recursive(
    st.none() | st.booleans() | st.integers(-1000, 1000) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
objects = st.dictionaries(st.text(max_size=5), values, min_size=1, max_size=3)
files = st.fixed_dictionaries({}, optional={"filename": st.just("f.bin"), "mediaType": st.just("a/b")})
parts = st.one_of(
    st.fixed_dictionaries({"text": st.text(max_size=9)}, optional={"metadata": objects}),
    st.fixed_dictionaries({"data": values}, optional={"metadata": objects}),
    files.map(lambda more: {"raw": "AP8=", **more}),
    files.map(lambda more: {"url": "https://a.example/x", **more}),
)


@given(part=parts)
def test_a_part_survives_a_round_trip(part: dict[str, Any]) -> None:
    assert json_v03.part_from_v03(json_v03.part_to_v03(part)) == part


def test_a_wrapped_value_is_distinguished_from_an_object_of_the_same_form() -> None:
    plain = {"kind": "data", "data": {"value": 1}}
    assert json_v03.part_from_v03(plain) == {"data": {"value": 1}}
    assert json_v03.part_from_v03({**plain, "metadata": {"data_part_compat": True}}) == {"data": 1}


def test_a_flat_part_has_the_form_of_1_0() -> None:
    assert json_v03.part_from_v03({"text": "x", "metadata": None}) == {"text": "x"}


def test_an_unknown_kind_of_part_is_rejected() -> None:
    with pytest.raises(ValueError, match='a part has the unknown kind "song"'):
        json_v03.part_from_v03({"kind": "song"})


def test_a_message_survives_a_round_trip() -> None:
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "x"}], "contextId": "c", "metadata": {"a": 1}}
    assert json_v03.message_from_v03(json_v03.message_to_v03(message)) == message
    assert json_v03.message_to_v03(message)["kind"] == "message"
    assert "kind" not in json_v03.message_to_v03(message, flat=True)
    assert json_v03.message_from_v03({"role": "agent", "parts": [], "taskId": None}) == {
        "role": "ROLE_AGENT",
        "parts": [],
    }


def test_an_artifact_survives_a_round_trip() -> None:
    artifact = {"artifactId": "a", "name": "n", "parts": [{"data": [1]}], "extensions": ["urn:x"]}
    assert json_v03.artifact_from_v03(json_v03.artifact_to_v03(artifact)) == artifact


def test_every_state_has_a_0_3_name() -> None:
    for state in dict(pb.TaskState.items()):
        if state != "TASK_STATE_UNSPECIFIED":
            word = re.sub("_", "-", state.removeprefix("TASK_STATE_").lower())
            assert json_v03.state_to_v03(state) == word
            assert json_v03.state_from_v03(word) == state
    assert json_v03.state_from_v03("unknown") == "TASK_STATE_WORKING"


@given(part=parts)
def test_data_parts_equal_those_of_the_server(part: dict[str, Any]) -> None:
    """The data of a part, converted by the server's implementation with protobuf."""
    message = ParseDict(
        {"messageId": "m", "role": "ROLE_AGENT", "parts": [part]}, pb.Message(), descriptor_pool=_pool.POOL
    )
    converted = MessageToDict(v03.convert(message, v03_pb.Message()), descriptor_pool=_pool.POOL)["content"][0]
    ours = json_v03.part_to_v03(part)
    assert converted.get("metadata", {}) == ours.get("metadata", {})
    if ours["kind"] == "data":
        assert converted["data"]["data"] == ours["data"]
