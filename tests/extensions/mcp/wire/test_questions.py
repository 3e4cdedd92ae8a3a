"""Questions of agents as elicitations, and answers to them as parts of a message."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.core.errors import InvalidParams
from dragoman.extensions.mcp.wire.questions import answer_parts, elicitation
from dragoman.wire.question_forms import form_of, question_text

TEXT = {"text": "Which?"}


def data(**value: Any) -> list[dict[str, Any]]:
    return [TEXT, {"data": value}]


def test_a_flat_schema_is_asked_as_it_is_without_what_forms_do_not_have() -> None:
    schema = {
        "properties": {"name": {"type": "string", "pattern": "x"}, "size": {"enum": ["s", "l"]}},
        "required": ["name", "other"],
    }
    form = form_of(data(schema=schema))
    assert form.schema == {
        "type": "object",
        "properties": {"name": {"type": "string"}, "size": {"type": "string", "enum": ["s", "l"]}},
        "required": ["name"],
    }
    assert answer_parts({"action": "accept", "content": {"name": "Ada"}}, data(schema=schema), needs_auth=False) == (
        [{"data": {"name": "Ada"}}],
        "accept",
    )


@pytest.mark.parametrize(
    ("result", "part", "action"),
    [
        ({"action": "accept", "content": {"answer": "large"}}, {"text": "large"}, "accept"),
        ({"action": "decline"}, {"text": "The user declined to answer."}, "decline"),
        ({"action": "cancel"}, {"text": "The user dismissed the question without an answer."}, "cancel"),
    ],
)
def test_every_action_is_an_answer(result: dict[str, Any], part: dict[str, Any], action: str) -> None:
    assert answer_parts(result, [TEXT], needs_auth=False) == ([part], action)


def test_a_number_is_answered_as_its_text_and_a_refused_approval_with_no() -> None:
    number = answer_parts(
        {"action": "accept", "content": {"answer": 7}}, data(schema={"type": "integer"}), needs_auth=False
    )
    refused = answer_parts({"action": "decline"}, data(approvals=[{}]), needs_auth=False)
    assert number == ([{"text": "7"}], "accept")
    assert refused == ([{"text": "no"}], "decline")


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (None, "action: must be accept, decline or cancel"),
        ({"action": "maybe"}, "action: must be accept, decline or cancel"),
        ({"action": "accept", "content": []}, "content.answer: is required"),
        ({"action": "accept", "content": "x"}, "content: must be an object"),
        ({"action": "accept"}, "content.answer: is required"),
    ],
)
def test_an_invalid_answer_is_rejected_with_the_rule(result: Any, text: str) -> None:
    with pytest.raises(InvalidParams, match=text):
        answer_parts(result, [TEXT], needs_auth=False)


def test_a_sign_in_is_asked_with_a_url_or_else_with_a_form_without_fields() -> None:
    parts = [{"text": "Sign in:"}, {"url": "https://a.example"}]
    url = elicitation(parts, needs_auth=True, forms=True, urls=True, key="k", id_is_required=True)
    form = elicitation(parts, needs_auth=True, forms=True, urls=False, key="k")
    assert url is not None
    assert form is not None
    assert url["params"] == {
        "mode": "url", "message": "Sign in:\nhttps://a.example", "url": "https://a.example", "elicitationId": "k",
    }  # fmt: skip
    assert form["params"]["requestedSchema"] == {"type": "object", "properties": {}}
    assert elicitation(parts, needs_auth=True, forms=False, urls=False, key="k") is None
    assert answer_parts({"action": "accept"}, parts, needs_auth=True) == ([{"text": "done"}], "accept")


def test_a_question_without_a_text_still_has_one() -> None:
    request = elicitation([{"data": {"choices": ["a"]}}], needs_auth=False, forms=True, urls=False, key="k")
    assert request is not None
    assert request["params"]["message"] == "The agent waits for your answer."
    assert question_text([{"data": 1}]) == ""
