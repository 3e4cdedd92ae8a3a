"""Elicitations as questions, and messages as answers."""

from __future__ import annotations

from typing import Any

import mcp_types as types
import pytest
from google.protobuf.json_format import MessageToDict
from tests.agents.turn_context import RecordingTurnContext
from tests.extensions.mcp.servers.test_tool_choice import sent

from dragoman.core.task import states
from dragoman.extensions.mcp.servers.questions import (
    InvalidAnswer,
    UnsupportedInput,
    question_of,
    question_status,
    read_answer,
)
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
SIZE = {
    "type": "object",
    "properties": {"size": {"type": "string", "enum": ["s", "l"]}, "count": {"type": "integer"}},
    "required": ["size", "count"],
}
FORM = types.ElicitRequestFormParams(message="Who?", requested_schema=NAME)
URL = types.ElicitRequestURLParams(message="Sign in", url="https://x.example")


async def test_a_form_is_a_question_with_its_schema() -> None:
    change = question_status(FORM, RecordingTurnContext(), lambda: "id", problem="No.")
    assert change.state == states.INPUT_REQUIRED
    parts = [MessageToDict(part) for part in pb.Message.FromString(change.message).parts]
    assert parts == [{"text": "No.\nWho?"}, {"data": {"schema": NAME}}]


async def test_a_bound_of_a_schema_that_would_be_rounded_is_shown_as_text() -> None:
    schema = {"type": "object", "properties": {"id": {"type": "integer", "maximum": 2**63 - 1}}}
    params = types.ElicitRequestFormParams(message="Which?", requested_schema=schema)
    status = question_status(params, RecordingTurnContext(), lambda: "id")
    shown = MessageToDict(pb.Message.FromString(status.message).parts[1].data)
    assert shown["schema"]["properties"]["id"]["maximum"] == str(2**63 - 1)


async def test_a_url_requires_authentication() -> None:
    change = question_status(URL, RecordingTurnContext(), lambda: "id")
    assert change.state == states.AUTH_REQUIRED
    parts = [MessageToDict(part) for part in pb.Message.FromString(change.message).parts]
    assert parts == [{"text": "Sign in"}, {"url": "https://x.example"}]


@pytest.mark.parametrize(
    ("schema", "message", "content"),
    [
        (NAME, sent("Ann"), {"name": "Ann"}),
        (NAME, sent({"name": "Ann"}), {"name": "Ann"}),
        (NAME, sent('{"name": "Ann"}'), {"name": "Ann"}),
        (NAME, sent("{Ann}"), {"name": "{Ann}"}),
        (SIZE, sent({"size": "s", "count": 2}), {"size": "s", "count": 2}),
        ({"type": "object", "properties": {}}, sent("yes"), {}),
        ({"type": "wrong", "properties": {}}, sent({"a": "b"}), {"a": "b"}),
    ],
)
def test_an_answer_is_data_or_a_text(schema: dict[str, Any], message: pb.Message, content: dict[str, Any]) -> None:
    params = types.ElicitRequestFormParams(message="?", requested_schema=schema)
    answer = read_answer(message, params)
    assert (answer.action, answer.content) == ("accept", content)


@pytest.mark.parametrize(("text", "action"), [("decline", "decline"), (" Cancel ", "cancel")])
def test_texts_refuse_an_answer(text: str, action: str) -> None:
    assert read_answer(sent(text), FORM) == types.ElicitResult(action=action)  # type: ignore[arg-type]
    assert read_answer(sent(text), URL) == types.ElicitResult(action=action)  # type: ignore[arg-type]


def test_any_message_accepts_a_url() -> None:
    assert read_answer(sent("done"), URL) == types.ElicitResult(action="accept")


@pytest.mark.parametrize(
    ("schema", "message", "why"),
    [
        (SIZE, sent("small"), "Please answer with an object as a data part that matches the schema; or with decline"),
        (SIZE, sent({"size": "s", "count": 1.5}), "The answer does not fit: count: must be of type integer."),
        (SIZE, sent({"size": "s"}), 'The answer does not fit: must have the property "count".'),
        (NAME, sent(), "an object as a data part that matches the schema, or a text; or"),
    ],
)
def test_an_answer_that_does_not_fit_is_explained(schema: dict[str, Any], message: pb.Message, why: str) -> None:
    with pytest.raises(InvalidAnswer) as raised:
        read_answer(message, types.ElicitRequestFormParams(message="?", requested_schema=schema))
    assert why in str(raised.value)


def test_input_requests_are_questions_or_unsupported() -> None:
    form = {"method": "elicitation/create", "params": {"message": "?", "requestedSchema": NAME}}
    assert question_of(form) == types.ElicitRequestFormParams(message="?", requested_schema=NAME)
    url = {"method": "elicitation/create", "params": {"mode": "url", "message": "?", "url": "https://x"}}
    assert question_of(url) == types.ElicitRequestURLParams(message="?", url="https://x")
    with pytest.raises(UnsupportedInput, match='asks for "sampling/createMessage"'):
        question_of({"method": "sampling/createMessage", "params": {}})
