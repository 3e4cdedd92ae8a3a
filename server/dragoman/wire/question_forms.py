"""Answers that a question of an agent offers: text, choices, or the fields of a form.

The data part of a question says which answers it offers (docs/how-to/writing-agents.md, "Offer answers"). Terminals and
clients of other protocols ask with these forms; the console reads the same in TypeScript.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import orjson

from dragoman.wire.json import remote_values

ANSWER: Final = "answer"  # the property of a question that is answered with one value

_YES_OR_NO: Final = re.compile(r"\b(yes or no|yes/no|y/n)\b", re.IGNORECASE)
_LINK: Final = re.compile(r"\bhttps?://[^\s<>\"'`)\]]+", re.IGNORECASE)
_PRIMITIVES: Final = frozenset({"string", "number", "integer", "boolean"})
_SCHEMA_KEYS: Final = frozenset(
    (
        *("type", "title", "description", "default", "format", "enum", "enumNames", "oneOf", "const"),
        *("minLength", "maxLength", "minimum", "maximum", "minItems", "maxItems", "items"),
    )
)
"""The keywords that a property of a form may have."""

Part = Mapping[str, Any]  # a part as JSON of A2A 1.0


@dataclass(frozen=True, slots=True)
class Form:
    """How a question is answered."""

    schema: Mapping[str, Any]  # the JSON schema of the answer: a flat object of texts, numbers, booleans and choices
    kind: Literal["text", "fields", "json"]
    """The answer is the text of the one property, the object as data, or JSON in the text of the one property."""
    refusal: str = ""  # the text that declines, where the question itself offers one


def _one_value(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": {ANSWER: schema}, "required": [ANSWER]}


TEXT_FORM: Final = Form(_one_value({"type": "string", "title": "Answer"}), "text")
_YES_NO_FORM: Final = Form(_one_value({"type": "string", "title": "Answer", "enum": ["yes", "no"]}), "text", "no")


def form_of(parts: Sequence[Part]) -> Form:
    """The form of a question with these parts."""
    for part in parts:
        data = part.get("data")
        if isinstance(data, dict) and (form := _form_in(data)) is not None:
            return form
    if _YES_OR_NO.search(" ".join(part.get("text", "") for part in parts)):
        return _YES_NO_FORM
    return TEXT_FORM


def _form_in(data: Mapping[str, Any]) -> Form | None:
    choices, schema = data.get("choices", data.get("options")), data.get("schema", data.get("requestedSchema"))
    missing, interrupts = data.get("missing"), data.get("interrupts")
    if isinstance(choices, list):
        return _choice_form(choices)
    if isinstance(schema, dict):
        return _schema_form(schema)
    if isinstance(missing, list) and missing:
        names = [str(name) for name in missing]
        properties = {name: {"type": "string"} for name in names}
        return Form({"type": "object", "properties": properties, "required": names}, "fields")
    if isinstance(data.get("approvals"), list):
        return _YES_NO_FORM
    if isinstance(interrupts, list) and len(interrupts) == 1 and isinstance(interrupts[0], dict):
        value = interrupts[0].get("value")  # LangGraph's, whose middleware wants an approval for `action_requests`
        if isinstance(value, dict):
            return _YES_NO_FORM if "action_requests" in value else _form_in(value)
    return None


def _choice_form(choices: Sequence[object]) -> Form | None:
    values: list[dict[str, str]] = []
    for choice in choices:
        named = choice if isinstance(choice, dict) else {"value": choice}
        value = next((named[key] for key in ("value", "const", "id", "label") if named.get(key) is not None), None)
        if value is None or isinstance(value, dict | list):
            return None
        label = next((named[key] for key in ("label", "title", "name") if isinstance(named.get(key), str)), value)
        values.append({"const": str(value), "title": str(label)})
    if not values:
        return None
    if all(value["const"] == value["title"] for value in values):
        return Form(_one_value({"type": "string", "title": "Answer", "enum": [one["const"] for one in values]}), "text")
    return Form(_one_value({"type": "string", "title": "Answer", "oneOf": values}), "text")


def _schema_form(schema: Mapping[str, Any]) -> Form:
    if _is_primitive(schema):
        return Form(_one_value(_property(schema)), "text")
    properties = schema.get("properties")
    if isinstance(properties, dict) and properties and all(map(_is_primitive, properties.values())):
        form: dict[str, Any] = {
            "type": "object",
            "properties": {name: _property(value) for name, value in properties.items()},
        }
        required = schema.get("required")
        if isinstance(required, list) and (
            names := [name for name in required if isinstance(name, str) and name in properties]
        ):
            form["required"] = names
        return Form(form, "fields")
    description = "JSON that matches " + orjson.dumps(schema).decode()
    return Form(_one_value({"type": "string", "title": "Answer", "description": description}), "json")


def _is_primitive(schema: object) -> bool:
    """Whether elicitation has this schema for a property."""
    if not isinstance(schema, dict):
        return False
    kind = schema.get("type")
    if kind == "array":
        items = schema.get("items")
        return isinstance(items, dict) and isinstance(items.get("enum", items.get("anyOf")), list)
    # Forms do not support a list of types, which JSON Schema allows.
    return kind in _PRIMITIVES if isinstance(kind, str) else ("enum" in schema and "type" not in schema)


def _property(schema: Mapping[str, Any]) -> dict[str, Any]:
    known = {key: value for key, value in schema.items() if key in _SCHEMA_KEYS}
    return {"type": "string", **known}


def question_text(parts: Sequence[Part]) -> str:
    """The text of a question, with its links."""
    texts = [part["text"] for part in parts if part.get("text")]
    texts.extend(part["url"] for part in parts if part.get("url") and part["url"] not in "\n".join(texts))
    return "\n".join(texts)


def link_of(parts: Sequence[Part]) -> str:
    """The first URL of a question; empty for none."""
    for part in parts:
        data = part.get("data")
        url = part.get("url") or (data.get("url", data.get("link")) if isinstance(data, dict) else None)
        if isinstance(url, str) and url:
            return url
    for part in parts:
        if found := _LINK.search(part.get("text", "")):
            return found[0].rstrip(".,;:!?*_")
    return ""


def answer_part(text: str, form: Form) -> dict[str, Any]:
    """The part of an answer that is one text: JSON as data, where the question wants an object."""
    if form.kind != "text":
        try:
            value = remote_values.loads(text)
        except ValueError:
            return {"text": text}
        if isinstance(value, dict | list):
            return {"data": value}
    return {"text": text}
