"""Which tool a message calls, and with which arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mcp_types as types
import pytest

from dragoman.agents.values import data_part
from dragoman.extensions.mcp.servers.tool_choice import InvalidToolCall, choose_tool, is_repeatable
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


def tool(name: str, required: Sequence[str] = (), **properties: str) -> types.Tool:
    schema = {
        "type": "object",
        "properties": {key: {"type": kind} for key, kind in properties.items()},
        "required": list(required),
    }
    return types.Tool(name=name, input_schema=schema)


ECHO = tool("echo", ["text"], text="string", loud="boolean")
ADD = tool("add", ["a", "b"], a="number", b="number")
NOW = tool("now")
TOOLS = (ECHO, ADD, NOW)


def sent(*parts: str | object, skill: str = "") -> pb.Message:
    message = pb.Message()
    for part in parts:
        if isinstance(part, pb.Part):
            message.parts.add().CopyFrom(part)
        elif isinstance(part, str):
            message.parts.add(text=part)
        else:
            message.parts.add().CopyFrom(data_part(part))
    if skill:
        message.metadata.update({"skill": skill})
    return message


@pytest.mark.parametrize(
    ("message", "name", "arguments"),
    [
        (sent("now"), "now", {}),
        (sent(" now\n"), "now", {}),
        (sent('add {"a": 1, "b": 2.5}'), "add", {"a": 1, "b": 2.5}),
        (sent('add\n{"a": 1}'), "add", {"a": 1}),
        (sent("echo hello, you"), "echo", {"text": "hello, you"}),
        (sent("echo [1]"), "echo", {"text": "[1]"}),
        (sent('{"tool": "add", "arguments": {"a": 1}}'), "add", {"a": 1}),
        (sent({"tool": "add", "arguments": {"a": 1}}), "add", {"a": 1}),
        (sent({"tool": "now"}), "now", {}),
        (sent({"tool": "now", "arguments": None}), "now", {}),
        (sent("add", {"a": 1, "b": 2}), "add", {"a": 1, "b": 2}),
        (sent({"a": 1}, skill="add"), "add", {"a": 1}),
        (sent("hello", skill="echo"), "echo", {"text": "hello"}),
        (sent(skill="now"), "now", {}),
        (sent({"tool": "add", "arguments": {"a": 1}}, skill="add"), "add", {"a": 1}),
    ],
)
def test_a_message_calls_a_tool(message: pb.Message, name: str, arguments: dict[str, Any]) -> None:
    call = choose_tool(message, TOOLS)
    assert (call.tool, dict(call.arguments)) == (name, arguments)


@pytest.mark.parametrize(
    ("tools", "message", "arguments"),
    [
        ((ECHO,), sent("hello"), {"text": "hello"}),
        ((ECHO,), sent("echo"), {}),
        ((ADD,), sent({"a": 1, "b": 2}), {"a": 1, "b": 2}),
        ((ADD,), sent('{"a": 1, "b": 2}'), {"a": 1, "b": 2}),
        ((tool("only", word="string"),), sent("x"), {"word": "x"}),
    ],
)
def test_the_only_tool_of_a_server_needs_no_name(
    tools: Sequence[types.Tool], message: pb.Message, arguments: dict[str, Any]
) -> None:
    assert dict(choose_tool(message, tools).arguments) == arguments


@pytest.mark.parametrize(
    ("tools", "message", "why"),
    [
        (TOOLS, sent("what is it?"), '"what" is not a tool. Tools: echo, add, now. Send a data part {"tool": NAME'),
        (TOOLS, sent({"a": 1}), "The message names no tool. Tools:"),
        (TOOLS, sent('{"a": 1}'), "The message names no tool. Tools:"),
        (TOOLS, sent(), "The message names no tool. Tools:"),
        (TOOLS, sent({"tool": "off"}), '"off" is not a tool. Tools:'),
        (TOOLS, sent("x", skill="off"), '"off" is not a tool. Tools:'),
        (TOOLS, sent("add 1 2"), 'The arguments of "add" must be an object, such as {"a": "...", "b": "..."}.'),
        (TOOLS, sent("add {1}"), 'The arguments of "add" are not JSON: '),
        (TOOLS, sent([1], skill="add"), 'The arguments of "add" must be an object.'),
        (TOOLS, sent("x", {"a": 1}, skill="add"), 'The arguments of "add" must be one data part, or a text.'),
        (TOOLS, sent({"tool": "now"}, {"tool": "now"}), "A message calls one tool; it has several parts."),
        (TOOLS, sent("now", pb.Part(raw=b"x")), "A tool takes no files; pass them as arguments."),
        ((ADD,), sent("hello"), 'The arguments of "add" must be an object'),
        ((), sent("hello"), '"hello" is not a tool. The MCP server has no tools.'),
        (tuple(tool(f"t{i}") for i in range(60)), sent("x"), "t48, t49 and 10 more, on the card."),
    ],
)
def test_a_message_that_calls_no_tool_is_explained(tools: Sequence[types.Tool], message: pb.Message, why: str) -> None:
    with pytest.raises(InvalidToolCall) as raised:
        choose_tool(message, tools)
    assert why in str(raised.value)


@pytest.mark.parametrize(
    ("annotations", "repeatable"),
    [
        (None, False),
        (types.ToolAnnotations(), False),
        (types.ToolAnnotations(read_only_hint=False, destructive_hint=False), False),
        (types.ToolAnnotations(read_only_hint=True), True),
        (types.ToolAnnotations(idempotent_hint=True), True),
    ],
)
def test_read_only_and_idempotent_tools_are_repeatable(
    annotations: types.ToolAnnotations | None, repeatable: bool
) -> None:
    found = types.Tool(name="x", input_schema={}, annotations=annotations)
    assert is_repeatable(found) is repeatable
    assert not is_repeatable(None)
