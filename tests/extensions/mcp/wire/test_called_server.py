"""Readers of what called MCP servers send."""

from __future__ import annotations

import json
import time
from random import Random
from typing import Any, Final

import mcp_types as types
import pytest
from mcp_types.methods import validate_server_result
from tests.extensions.mcp.wire.mutations import INPUTS, mutate

from dragoman.core.schemas import compile_schema
from dragoman.extensions.mcp.wire.called_server import (
    MAX_DESCRIPTION_CHARS,
    MAX_LEFT_OUT,
    OUTPUT_SCHEMA_META,
    ToolList,
    is_progress,
    read_tool,
    read_tool_list,
    unreadable_answer,
)

OBJECT: Final = {"type": "object"}
FULL: Final[dict[str, Any]] = {
    "name": "add",
    "title": "Add",
    "description": "Adds.",
    "inputSchema": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
    "outputSchema": {"type": "object", "properties": {"sum": {"type": "integer", "pattern": "^x$"}}},
    "annotations": {"readOnlyHint": True, "title": "Add"},
    "icons": [{"src": "https://example.com/a.png"}],
    "_meta": {"a": 1},
}


def test_a_tool_is_read_with_its_output_schema_out_of_the_librarys_sight() -> None:
    tool = read_tool(FULL)
    assert isinstance(tool, dict)
    parsed = types.Tool.model_validate(tool, by_name=False)
    assert (parsed.name, parsed.title, parsed.description) == ("add", "Add", "Adds.")
    assert (parsed.input_schema, parsed.output_schema) == (FULL["inputSchema"], None)
    assert parsed.meta == {OUTPUT_SCHEMA_META: FULL["outputSchema"]}
    assert parsed.annotations == types.ToolAnnotations(read_only_hint=True, title="Add")


@pytest.mark.parametrize(
    ("tool", "reason"),
    [
        (None, "is not an object"),
        ({"inputSchema": OBJECT}, "has no name"),
        ({"name": 5, "inputSchema": OBJECT}, "has no name"),
        ({"name": "x" * 257, "inputSchema": OBJECT}, "its name has more than 256 characters"),
        ({"name": "\ud800", "inputSchema": OBJECT}, "its name is not Unicode"),
        ({"name": "t"}, "its inputSchema is missing"),
        ({"name": "t", "inputSchema": None}, "its inputSchema is missing"),
        ({"name": "t", "inputSchema": []}, "its inputSchema is not an object"),
        ({"name": "t", "inputSchema": {"type": "string"}}, "its inputSchema does not describe an object"),
        ({"name": "t", "inputSchema": {"properties": []}}, "its inputSchema has properties that are no schemas"),
        ({"name": "t", "inputSchema": {"properties": {"a": 1}}}, "its inputSchema has properties that are no schemas"),
        ({"name": "t", "inputSchema": {"required": "a"}}, "its inputSchema has a `required` that is no list of names"),
    ],
)
def test_a_tool_that_cannot_be_read_has_a_reason(tool: object, reason: str) -> None:
    found = read_tool(tool)
    assert isinstance(found, str)
    assert found.startswith(reason)


@pytest.mark.parametrize(
    ("schema", "read"),
    [
        ({}, OBJECT),
        ({"type": ["object", "null"]}, OBJECT),
        ({"type": "object", "properties": None, "required": None}, OBJECT),
        ({"$schema": 5, "type": "object"}, OBJECT),
    ],
)
def test_a_schema_that_is_almost_one_of_an_object_is_taken_as_one(schema: Any, read: Any) -> None:
    found = read_tool({"name": "t", "inputSchema": schema})
    assert isinstance(found, dict)
    assert found["inputSchema"] == read


@pytest.mark.parametrize("schema", [{"title": "x" * 100_000}, {"title": "\ud800"}, {"properties": {"\ud800": {}}}])
def test_a_schema_that_no_card_can_show_is_read_as_that_of_any_object(schema: Any) -> None:
    found = read_tool({"name": "t", "inputSchema": {"type": "object", **schema}, "outputSchema": schema})
    assert found == {"name": "t", "inputSchema": OBJECT}


@pytest.mark.parametrize(
    ("params", "is_one"),
    [
        ({"progressToken": 1, "progress": 0.5, "total": 2, "message": "half"}, True),
        ({"progressToken": "a", "progress": 1}, True),
        ({"progressToken": 1}, False),
        ({"progressToken": {}, "progress": 1}, False),
        ({"progressToken": 1, "progress": "1"}, False),
        ({"progressToken": 1, "progress": True}, False),
        ({"progressToken": 1, "progress": float("inf")}, False),
        ({"progressToken": 1, "progress": float("nan")}, False),
        ({"progressToken": 1, "progress": 1, "total": []}, False),
        ({"progressToken": 1, "progress": 1, "message": "\ud800"}, False),
    ],
)
def test_progress_has_numbers_and_a_text(params: dict[str, Any], is_one: bool) -> None:
    assert is_progress(params) is is_one


def test_members_of_other_types_are_left_out_and_long_texts_are_cut() -> None:
    strange = {"title": 5, "description": "x" * 20_000_000, "annotations": {"readOnlyHint": "yes"}, "icons": "no"}
    found = read_tool({**strange, "name": "t", "inputSchema": OBJECT, "outputSchema": "no", "_meta": 5})
    assert found == {
        "name": "t", "inputSchema": OBJECT, "description": "x" * MAX_DESCRIPTION_CHARS, "annotations": {}
    }  # fmt: skip


def test_a_list_keeps_the_tools_that_can_be_read() -> None:
    found = read_tool_list({"tools": [FULL, {"name": "bad"}, 5], "nextCursor": "n", "ttlMs": "soon", "extra": 1})
    assert isinstance(found, ToolList)
    assert [tool["name"] for tool in found.result["tools"]] == ["add"]
    assert found.result.keys() == {"tools", "nextCursor"}
    assert found.left_out == ('tool "bad": its inputSchema is missing', "tool 3: is not an object")
    assert read_tool_list({"tools": {}}) == "its list of tools has no array `tools`"


def test_thousands_of_bad_tools_are_counted() -> None:
    found = read_tool_list({"tools": [{}] * 10_000})
    assert isinstance(found, ToolList)
    assert len(found.left_out) == MAX_LEFT_OUT + 1
    assert found.left_out[-1] == f"and {10_000 - MAX_LEFT_OUT:,} more tools"


ANSWER: Final = json.dumps({"jsonrpc": "2.0", "id": 3, "result": {"content": [{"type": "text", "text": "ok"}]}})


@pytest.mark.parametrize(
    ("text", "open_ids", "id"),
    [
        (ANSWER[:40], [3, 4], 3),
        (ANSWER.replace('"id": 3', '"id": "3"')[:40], [3, 4], 3),
        (' "id": 3,', [3, 4], 3),
        (' "id": 5,', [3, 4], None),
        ('{"result": {"content": [', [3], 3),
        ('{"result": {"content": [', [3, 4], None),
        ('{"jsonrpc": "2.0", "id": 9, "error": "boom"}', [3], 3),
        ('{"jsonrpc": "2.0", "id": 3, "error": "boom"}', [3, 4], 3),
        ("INFO: a line of a log", [3], None),
        ('{"level": "info", "id": 3}', [3], None),
        ('{"jsonrpc": "2.0", "method": "notifications/progress", "params": []}', [3], None),
        ('{"jsonrpc": "2.0", "id": 3, "method": "elicitation/create", "par', [3], None),
        ("[1, 2]", [3], None),
        ("{", [3], None),
        ("", [3], None),
        (ANSWER[:40], [], None),
    ],
)
def test_an_unreadable_answer_belongs_to_the_call_that_it_names(text: str, open_ids: list[int], id: int | None) -> None:
    assert unreadable_answer(text, open_ids) == id


def test_mutated_lists_of_tools_are_read_or_have_a_reason() -> None:
    """Whatever is read passes the library for every revision, and its schemas are bounded."""
    random, read = Random(36), 0
    longest = 0.0
    for _ in range(INPUTS):
        result = mutate({"tools": [FULL, {"name": "t", "inputSchema": OBJECT}], "nextCursor": "n"}, random)
        started = time.thread_time()
        found = read_tool_list(result) if isinstance(result, dict) else "is no object"
        longest = max(longest, time.thread_time() - started)
        if isinstance(found, str):
            assert found
            continue
        for version in ("2025-06-18", "2025-11-25", "2026-07-28"):
            defaults = {"ttlMs": 0, "cacheScope": "private", "resultType": "complete"}
            validate_server_result("tools/list", version, {**defaults, "tools": found.result["tools"]})
        for tool in found.result["tools"]:
            for schema in (tool["inputSchema"], tool.get("_meta", {}).get(OUTPUT_SCHEMA_META)):
                started = time.thread_time()
                assert isinstance(compile_schema(schema).find_problem({"a": 1}), str)
                longest = max(longest, time.thread_time() - started)
        read += 1
    assert read > INPUTS / 4
    assert longest < 0.05


def test_mutated_answers_belong_to_an_open_call_or_to_none() -> None:
    random = Random(36)
    for _ in range(INPUTS):
        text = json.dumps(mutate(json.loads(ANSWER), random))[: random.randint(0, 200)]
        assert unreadable_answer(text, [3, 4]) in (3, 4, None)
