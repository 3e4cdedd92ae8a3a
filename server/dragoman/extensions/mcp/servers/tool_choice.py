"""Reads which tool a message calls, and with which arguments."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import mcp_types as types

from dragoman.agents.values import struct_to_json, value_to_json
from dragoman.extensions.mcp.servers.readers import read_object
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

SKILL_KEY: Final = "skill"
"""The key of a message's metadata that names the skill it calls."""

MAX_LISTED_TOOLS: Final = 50

_CALL_FORM: Final = (
    'Send a data part {"tool": NAME, "arguments": {...}}, or a text: NAME, or NAME {"argument": "value"}; or name the '
    "tool in the metadata of the message, as `skill`."
)


class InvalidToolCall(Exception):
    """A message that calls no tool. The text says why, and lists the tools and the forms of a call."""


@dataclass(frozen=True, slots=True)
class ChosenTool:
    """A call of a tool."""

    tool: str
    arguments: Mapping[str, Any]


def choose_tool(message: pb.Message, tools: Sequence[types.Tool]) -> ChosenTool:
    """The call that a message makes. Raises InvalidToolCall."""
    by_name = {tool.name: tool for tool in tools}
    text = "\n".join(part.text for part in message.parts if part.HasField("text")).strip()
    data = [value_to_json(part.data) for part in message.parts if part.HasField("data")]
    if any(part.WhichOneof("content") in ("raw", "url") for part in message.parts):
        raise _invalid("A tool takes no files; pass them as arguments.", tools)
    if not data and _names_tool(value := read_object(text)):
        data, text = [value], ""
    skill = struct_to_json(message.metadata).get(SKILL_KEY) if message.HasField("metadata") else None
    if isinstance(skill, str) and skill:
        tool = _tool_of(skill, by_name, tools)
        return ChosenTool(tool.name, _arguments(tool, data, text, tools))
    if calls := [one for one in data if _names_tool(one)]:
        if len(data) > 1 or text:
            raise _invalid("A message calls one tool; it has several parts.", tools)
        tool = _tool_of(calls[0]["tool"], by_name, tools)
        return ChosenTool(tool.name, calls[0].get("arguments") or {})
    name, _, rest = text.partition(" ") if " " in text.split("\n", 1)[0] else text.partition("\n")
    if name in by_name:
        tool = by_name[name]
        return ChosenTool(name, _arguments(tool, data, rest.strip(), tools))
    if len(tools) == 1 and (data or text):
        return ChosenTool(tools[0].name, _arguments(tools[0], data, text, tools))
    names_other = name and not data and not text.startswith("{")
    raise _invalid(f'"{name[:80]}" is not a tool.' if names_other else "The message names no tool.", tools)


def is_repeatable(tool: types.Tool | None) -> bool:
    """Whether a call of a tool may be made twice: it is declared read-only or idempotent."""
    hints = tool.annotations if tool is not None else None
    return hints is not None and bool(hints.read_only_hint or hints.idempotent_hint)


def _arguments(tool: types.Tool, data: Sequence[Any], text: str, tools: Sequence[types.Tool]) -> Mapping[str, Any]:
    """The arguments in a message for a tool that is known. Raises InvalidToolCall."""
    if len(data) > 1 or (data and text):
        raise _invalid(f'The arguments of "{tool.name}" must be one data part, or a text.', tools)
    if data:
        if _names_tool(data[0]) and data[0]["tool"] == tool.name:
            return data[0].get("arguments") or {}
        if isinstance(data[0], dict):
            return data[0]
        raise _invalid(f'The arguments of "{tool.name}" must be an object.', tools)
    if not text:
        return {}
    value = read_object(text)
    if isinstance(value, dict):
        return value
    if text.startswith("{"):
        raise _invalid(f'The arguments of "{tool.name}" are {value}.', tools)
    if (name := only_text_property(tool.input_schema)) is not None:
        return {name: text}
    raise _invalid(f'The arguments of "{tool.name}" must be an object, such as {_example(tool)}.', tools)


def only_text_property(schema: Mapping[str, Any]) -> str | None:
    """The property that a text alone stands for: the only required one, or the only one at all, if it is a string."""
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return None
    required = schema.get("required") or list(properties)
    if not isinstance(required, list) or len(required) != 1 or not isinstance(required[0], str):
        return None
    found = properties.get(required[0])
    return required[0] if isinstance(found, dict) and found.get("type") == "string" else None


def _names_tool(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and isinstance(value.get("tool"), str)
        and value.keys() <= {"tool", "arguments"}
        and isinstance(value.get("arguments", {}), dict | None)
    )


def _tool_of(name: str, by_name: Mapping[str, types.Tool], tools: Sequence[types.Tool]) -> types.Tool:
    if name not in by_name:
        raise _invalid(f'"{name[:80]}" is not a tool.', tools)
    return by_name[name]


def _invalid(reason: str, tools: Sequence[types.Tool]) -> InvalidToolCall:
    if not tools:
        return InvalidToolCall(f"{reason} The MCP server has no tools.")
    names = ", ".join(tool.name for tool in tools[:MAX_LISTED_TOOLS])
    more = f" and {len(tools) - MAX_LISTED_TOOLS} more, on the card" if len(tools) > MAX_LISTED_TOOLS else ""
    return InvalidToolCall(f"{reason} Tools: {names}{more}. {_CALL_FORM}")


def _example(tool: types.Tool) -> str:
    """An object with the required properties of a tool, for people."""
    required = tool.input_schema.get("required") or list(tool.input_schema.get("properties") or {})[:1]
    return json.dumps({str(name): "..." for name in required}, ensure_ascii=False)
