"""Questions of agents as forms, and answers as parts of a message."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.core.errors import InvalidParams
from dragoman.extensions.mcp.wire.questions import (
    answer_part,
    answer_parts,
    elicitation,
    form_of,
    link_of,
    question_text,
)

TEXT = {"text": "Which?"}


def data(**value: Any) -> list[dict[str, Any]]:
    return [TEXT, {"data": value}]


def answer_schema(parts: list[dict[str, Any]]) -> dict[str, Any]:
    return dict(form_of(parts).schema["properties"]["answer"])


def test_any_question_is_answered_with_a_text() -> None:
    assert answer_schema([TEXT]) == {"type": "string", "title": "Answer"}


@pytest.mark.parametrize(
    ("parts", "values"),
    [
        (data(choices=["small", "large"]), ["small", "large"]),
        (data(options=["a", 1]), ["a", "1"]),
        (data(approvals=[{"tool": "rm"}]), ["yes", "no"]),
        ([{"text": "Go on, yes or no?"}], ["yes", "no"]),
        (data(interrupts=[{"value": {"action_requests": []}}]), ["yes", "no"]),
        (data(interrupts=[{"value": {"choices": ["x"]}}]), ["x"]),
        (data(schema={"enum": ["p", "q"]}), ["p", "q"]),
    ],
)
def test_choices_are_an_enum(parts: list[dict[str, Any]], values: list[str]) -> None:
    assert answer_schema(parts)["enum"] == values


def test_choices_with_labels_are_titled_constants() -> None:
    parts = data(choices=[{"value": "l", "label": "Large"}, {"id": "s"}])
    assert answer_schema(parts)["oneOf"] == [{"const": "l", "title": "Large"}, {"const": "s", "title": "s"}]


def test_the_names_of_choices_are_kept() -> None:
    size = {"type": "string", "enum": ["s", "l"], "enumNames": ["Small", "Large"]}
    fields = {"type": "object", "properties": {"size": size}}
    assert answer_schema(data(schema=size)) == size
    assert form_of(data(schema=fields)).schema == fields


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


def test_missing_fields_are_texts() -> None:
    form = form_of(data(missing=["city", "day"]))
    assert (form.kind, form.schema["required"]) == ("fields", ["city", "day"])


def test_a_nested_schema_is_answered_with_json_in_a_text() -> None:
    parts = data(schema={"type": "object", "properties": {"a": {"type": "object"}}})
    form = form_of(parts)
    assert form.kind == "json"
    assert "JSON that matches" in answer_schema(parts)["description"]
    assert answer_part('{"a": {}}', form) == {"data": {"a": {}}}
    assert answer_part("not json", form) == {"text": "not json"}
    assert answer_part("7", form) == {"text": "7"}
    assert answer_part(f"[{2**60}]", form) == {"data": [str(2**60)]}


@pytest.mark.parametrize(
    "schema",
    [
        {"type": ["string", "null"]},
        {"type": {}},
        {"type": "object", "properties": {"a": {"type": ["string", "null"]}}},
    ],
)
def test_types_that_forms_do_not_have_are_answered_with_json_in_a_text(schema: dict[str, Any]) -> None:
    assert form_of(data(schema=schema)).kind == "json"


def test_required_properties_that_are_none_are_ignored() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}, "required": [[], {}, 7, "b", "a"]}
    assert form_of(data(schema=schema)).schema["required"] == ["a"]


@pytest.mark.parametrize("choices", [[], [{"value": {}}], [None]])
def test_choices_that_cannot_be_shown_are_answered_with_a_text(choices: list[Any]) -> None:
    assert answer_schema(data(choices=choices)) == {"type": "string", "title": "Answer"}


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


@pytest.mark.parametrize(
    ("parts", "link"),
    [
        ([{"text": "Sign in at https://a.example/x."}], "https://a.example/x"),
        ([{"url": "https://b.example"}], "https://b.example"),
        ([{"data": {"url": "https://c.example"}}], "https://c.example"),
        ([TEXT], ""),
    ],
)
def test_the_link_of_a_sign_in_is_found(parts: list[dict[str, Any]], link: str) -> None:
    assert link_of(parts) == link


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
