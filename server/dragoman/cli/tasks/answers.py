"""Asks on a terminal for the answer to an agent's question: a text, a numbered choice, or the fields of its form."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import typer

from dragoman.cli import escape_controls, print_note
from dragoman.cli.commands import check_text
from dragoman.client.content import check_json_value, data_part
from dragoman.wire.json.protojson import Codec, JsonDialect
from dragoman.wire.question_forms import ANSWER, Form, answer_part, form_of, question_text
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

_PARTS: Final = Codec(pb.Message, JsonDialect("1.0"))


def can_ask() -> bool:
    """Whether a person sits at both ends: the answer is typed, and the question is read."""
    return sys.stdin.isatty() and sys.stdout.isatty() and sys.stderr.isatty()


def ask(question: pb.Message) -> list[pb.Part] | None:
    """Prints a question, and reads the parts of its answer. None: the user has left it, by Ctrl-C or Ctrl-D."""
    parts = _PARTS.to_dict(question).get("parts", [])
    form = form_of(parts)
    print_note(question_text(parts) or "The agent waits for your answer.")
    try:
        given = {name: _ask_property(name, schema, form) for name, schema in form.schema["properties"].items()}
    except (typer.Abort, EOFError):
        print_note("")
        return None
    if form.kind == "fields":
        return [data_part({name: value for name, value in given.items() if value is not None}, "answer")]
    answer = answer_part(str(given[ANSWER]), form)
    return [pb.Part(text=answer["text"]) if "text" in answer else data_part(answer["data"], "answer")]


def _ask_property(name: str, schema: Mapping[str, Any], form: Form) -> Any:
    """The value of one property; None for an optional one that was left empty."""
    if description := schema.get("description"):
        print_note(f"  {description}")
    kind = schema.get("type")
    choices = _choices(schema["items"] if kind == "array" else schema)
    for number, (_, label) in enumerate(choices, 1):
        print_note(f"  {number}  {label}")
    is_required = name in form.schema.get("required", ())
    read = _reader(kind, choices)
    hint = {"array": " (numbers, separated by commas)", "boolean": " (yes or no)"}.get(kind or "", "")
    label = "Answer" if name == ANSWER else schema.get("title") or name
    if not is_required and "default" not in schema:
        hint += " (optional)"
    default = schema.get("default", None if is_required else "")

    def value_of(text: Any) -> Any:
        check_text(text, "the answer")
        is_left = text == "" and not is_required
        return None if is_left else text if text is default else read(str(text).strip())

    shown = f"{label}{hint}" if default in (None, "") else f"{label}{hint} [{default}]"
    return typer.prompt(escape_controls(shown), default=default, show_default=False, err=True, value_proc=value_of)


def _choices(schema: Mapping[str, Any]) -> list[tuple[Any, str]]:
    """Values and labels of a choice; empty for other values."""
    named = schema.get("oneOf", schema.get("anyOf"))
    if isinstance(named, list):
        return [(one.get("const"), str(one.get("title", one.get("const")))) for one in named if isinstance(one, dict)]
    values = schema.get("enum")
    names = schema.get("enumNames", values)
    if not isinstance(values, list) or not isinstance(names, list):
        return []
    return [(value, str(name)) for value, name in zip(values, names, strict=False)]


def _reader(kind: object, choices: Sequence[tuple[Any, str]]) -> Callable[[str], Any]:
    """Reads a typed value. Its function raises BadParameter, after which the value is asked for again."""
    if kind == "array":
        return lambda text: [_choice(one.strip(), choices) for one in text.split(",") if one.strip()]
    if choices:
        return lambda text: _choice(text, choices)
    if kind == "boolean":
        return _yes_or_no
    if kind in ("integer", "number"):
        return lambda text: _number(text, whole=kind == "integer")
    return str


def _choice(text: str, choices: Sequence[tuple[Any, str]]) -> Any:
    if text.isdecimal() and 1 <= int(text) <= len(choices):
        return choices[int(text) - 1][0]
    for value, label in choices:
        if text in (str(value), label):
            return value
    raise typer.BadParameter(f"type a number from 1 to {len(choices)}")


def _yes_or_no(text: str) -> bool:
    if text.lower() not in ("y", "yes", "true", "n", "no", "false"):
        raise typer.BadParameter("type yes or no")
    return text.lower()[0] in "yt"


def _number(text: str, *, whole: bool) -> int | float:
    try:
        check_json_value(number := int(text) if whole else float(text), "answer")
        return number
    except ValueError:
        raise typer.BadParameter(f"type a {'whole ' if whole else ''}number") from None
