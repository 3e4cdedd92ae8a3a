"""Answers that a question offers: texts, choices, and the fields of a form."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.wire.question_forms import answer_part, form_of, link_of

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
