"""The draft of A2A 1.1: its descriptors are those of the branch, and its messages pass to and from those of 1.0."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from google.protobuf import empty_pb2
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st
from tests.wire.random_messages import messages

from dragoman.core.errors import InvalidParams
from dragoman.core.task.generations import GenerationTerms, with_generation, with_task_generation
from dragoman.core.task.log import Event
from dragoman.wire.dialects import draft_v1_1, json_proto
from dragoman.wire.json import protojson
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb
from tools.extract_reference import Facts, file_facts

REFERENCE = Path(__file__).parents[2] / "proto" / "reference"


def recorded(name: str) -> Facts:
    facts: Facts = json.loads((REFERENCE / name).read_text("utf-8"))
    return facts


def test_the_draft_is_1_0_with_what_the_branch_adds() -> None:
    """The reference has the facts by which `dev-1.1` at 28491879 differs from 1.0."""
    added = recorded("lf_a2a_v1_draft_1_1.json")
    assert len(added) == 5
    assert file_facts(draft_v1_1.file_proto()) == {**recorded("lf_a2a_v1.json"), **added}


def test_the_published_messages_do_not_have_the_fields() -> None:
    for path in draft_v1_1.FIELDS:
        owner, _, name = path.partition(".")
        assert name not in pb.DESCRIPTOR.message_types_by_name[owner].fields_by_name
        draft = draft_v1_1.message_class(getattr(pb, owner))
        assert name in draft.DESCRIPTOR.fields_by_name
        assert draft.DESCRIPTOR.full_name == f"lf.a2a.v1.{owner}"
    assert draft_v1_1.message_class(empty_pb2.Empty) is empty_pb2.Empty


def as_draft(message: Message, data: bytes) -> Message:
    return draft_v1_1.message_class(type(message)).FromString(data)


def test_a_task_shows_its_generation_as_text_in_json() -> None:
    task = pb.Task(id="t", context_id="c")
    codec = protojson.compile(draft_v1_1.message_class(pb.Task), draft_v1_1.PROTOJSON)
    shown = as_draft(task, with_task_generation(task.SerializeToString(), 2**53 + 1))
    assert codec.to_dict(shown) == {"id": "t", "contextId": "c", "generation": "9007199254740993"}


@pytest.mark.parametrize("member", ["task", "status_update", "artifact_update"])
def test_an_event_shows_its_generation(member: str) -> None:
    response = pb.StreamResponse(**{member: {"metadata": {"a": 1}}})
    data = with_generation(Event(12, response.SerializeToString())).data
    shown = as_draft(response, data)
    assert getattr(shown, member).generation == 12
    codec = protojson.compile(type(shown), draft_v1_1.PROTOJSON)
    (values,) = codec.to_dict(shown).values()
    assert values == {"metadata": {"a": 1}, "generation": "12"}


REQUESTS = [
    (pb.GetTaskRequest, {"id": "t", "currentGeneration": 3}, GenerationTerms(current=3)),
    (pb.GetTaskRequest, {"id": "t", "currentGeneration": "3"}, GenerationTerms(current=3)),
    (pb.GetTaskRequest, {"id": "t", "current_generation": 0}, GenerationTerms(current=0)),
    (pb.GetTaskRequest, {"id": "t", "currentGeneration": None}, GenerationTerms()),
    (pb.GetTaskRequest, {"id": "t", "historyLength": 1}, GenerationTerms()),
    (pb.SendMessageRequest, {"configuration": {"ifGenerationMatch": "7"}}, GenerationTerms(if_match=7)),
    (pb.SendMessageRequest, {"configuration": {"ifGenerationMatch": -7}}, GenerationTerms(if_match=-7)),
    (
        pb.SendMessageRequest,
        {"configuration": {"ifGenerationMatch": 0, "blocking": False}},
        GenerationTerms(if_match=0),
    ),
    (pb.SendMessageRequest, {"message": {"messageId": "m"}}, GenerationTerms()),
    (pb.ListTasksRequest, {"pageSize": 3}, GenerationTerms()),
]


@pytest.mark.parametrize(("cls", "params", "terms"), REQUESTS)
def test_a_request_becomes_that_of_1_0_and_what_it_says_about_generations(
    cls: type[Message], params: dict[str, object], terms: GenerationTerms
) -> None:
    draft = protojson.compile(draft_v1_1.message_class(cls), draft_v1_1.PROTOJSON).decode(params)
    request, found = draft_v1_1.to_v1(draft)
    assert found == terms
    # A reader of 1.0 ignores the fields of the draft.
    assert request == protojson.compile(cls, json_proto.PROTOJSON_V1).decode(params)
    assert type(request) is cls


@pytest.mark.parametrize("value", ["x", 1.5, True, 2**63, [], {}])
def test_a_generation_that_is_none_is_rejected_by_name(value: object) -> None:
    codec = protojson.compile(draft_v1_1.message_class(pb.GetTaskRequest), draft_v1_1.PROTOJSON)
    with pytest.raises(InvalidParams, match="currentGeneration"):
        codec.decode({"id": "t", "currentGeneration": value})


@pytest.mark.parametrize("cls", [pb.Task, pb.SendMessageRequest, pb.StreamResponse, pb.ListTasksResponse, pb.AgentCard])
@given(data=st.data())
def test_without_the_fields_both_write_the_same_json(cls: type[Message], data: st.DataObject) -> None:
    message = data.draw(messages(cls))
    draft = protojson.compile(draft_v1_1.message_class(cls), draft_v1_1.PROTOJSON)
    shown = draft.to_dict(as_draft(message, message.SerializeToString()))
    assert shown == protojson.compile(cls, json_proto.PROTOJSON_V1).to_dict(message)
