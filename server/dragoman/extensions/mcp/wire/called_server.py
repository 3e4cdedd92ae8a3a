"""Readers of what called MCP servers send: each returns a value, or why it cannot be read."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from dragoman.core.cards.skill_schemas import ANNOTATIONS
from dragoman.core.schemas import MAX_SCHEMA_SIZE, size_of

MAX_TOOL_NAME_CHARS: Final = 256
MAX_DESCRIPTION_CHARS: Final = 4_000
"""Longer names leave their tool out; longer descriptions and titles are cut."""

MAX_LEFT_OUT: Final = 20
"""Tools that are left out with a reason of their own; others are counted."""

OUTPUT_SCHEMA_META: Final = "dragoman/outputSchema"
"""Where a tool that was read keeps its output schema: the MCP library evaluates those that it finds in their place."""

KNOWN_NOTIFICATIONS: Final = frozenset(
    {
        "notifications/cancelled",
        "notifications/elicitation/complete",
        "notifications/progress",
        "notifications/subscriptions/acknowledged",
        "notifications/tools/list_changed",
    }
)
"""The notifications that mean something here. Others are dropped unread: a server may send thousands."""

_ID: Final = re.compile(r'"id"\s*:\s*("?)(\d{1,18})\1\s*[,}\n]?')
_RPC_MEMBER: Final = re.compile(r'"(?:jsonrpc|result|error)"\s*:')
_MAX_ID_SEARCH: Final = 65_536
_MAX_HEAD: Final = 200
_KEPT_MEMBERS: Final[Mapping[str, type]] = {
    "nextCursor": str,
    "ttlMs": int,
    "cacheScope": str,
    "resultType": str,
}


@dataclass(frozen=True, slots=True)
class ToolList:
    """One page of a list of tools, with valid members only."""

    result: Mapping[str, Any]
    """The result in its JSON form, as every revision of MCP allows it."""
    left_out: tuple[str, ...]
    """The tools that cannot be read, with the reason."""


def read_tool_list(result: Mapping[str, Any]) -> ToolList | str:
    """A page of `tools/list`, or the reason why it is none."""
    listed = result.get("tools")
    if not isinstance(listed, list):
        return "its list of tools has no array `tools`"
    tools: list[dict[str, Any]] = []
    left_out: list[str] = []
    others = 0
    for number, one in enumerate(listed):
        tool = read_tool(one)
        if not isinstance(tool, str):
            tools.append(tool)
        elif len(left_out) < MAX_LEFT_OUT:
            left_out.append(f"{_tool_label(one, number)}: {tool}")
        else:
            others += 1
    if others:
        left_out.append(f"and {others:,} more tools")
    kept = {
        name: result[name]
        for name, kind in _KEPT_MEMBERS.items()
        if isinstance(result.get(name), kind) and not isinstance(result[name], bool)
    }
    return ToolList({**kept, "tools": tools}, tuple(left_out))


def read_tool(tool: object) -> dict[str, Any] | str:
    """A tool with the members that are used here, or the reason why it is none."""
    if not isinstance(tool, dict):
        return "is not an object"
    name = tool.get("name")
    if not isinstance(name, str) or not name.strip():
        return "has no name"
    if len(name) > MAX_TOOL_NAME_CHARS:
        return f"its name has more than {MAX_TOOL_NAME_CHARS} characters"
    if not _is_unicode(name):
        return "its name is not Unicode"
    schema = _read_input_schema(tool.get("inputSchema"))
    if isinstance(schema, str):
        return f"its inputSchema {schema}"
    read: dict[str, Any] = {"name": name, "inputSchema": schema}
    for member in ("title", "description"):
        text = tool.get(member)
        if isinstance(text, str) and _is_unicode(text):
            read[member] = text[:MAX_DESCRIPTION_CHARS]
    hints = tool.get("annotations")
    if isinstance(hints, dict):
        read["annotations"] = {key: hints[key] for key, kind in ANNOTATIONS.items() if isinstance(hints.get(key), kind)}
    output = tool.get("outputSchema")
    if isinstance(output, dict) and _is_shown(output):
        read["_meta"] = {OUTPUT_SCHEMA_META: output}
    return read


def _read_input_schema(schema: object) -> dict[str, Any] | str:
    """The schema of arguments, which are an object in any case."""
    if not isinstance(schema, dict):
        return "is missing" if schema is None else "is not an object"
    kind = schema.get("type", "object")
    if kind != "object" and not (isinstance(kind, list) and "object" in kind):
        return 'does not describe an object: its "type" must be "object"'
    properties = schema.get("properties")
    if properties is not None and not (
        isinstance(properties, dict) and all(isinstance(one, dict | bool) for one in properties.values())
    ):
        return "has properties that are no schemas"
    required = schema.get("required")
    if required is not None and not (isinstance(required, list) and all(isinstance(one, str) for one in required)):
        return "has a `required` that is no list of names"
    if not _is_shown(schema):
        return {"type": "object"}
    read = {**schema, "type": "object"}
    if not isinstance(read.get("$schema", ""), str):
        del read["$schema"]
    return {key: value for key, value in read.items() if value is not None}


def _is_shown(schema: dict[str, Any]) -> bool:
    """Whether a schema can be shown on cards: within their limits, and Unicode."""
    if not 0 <= size_of(schema) <= MAX_SCHEMA_SIZE:
        return False
    try:
        return bool(json.dumps(schema, ensure_ascii=False).encode())
    except UnicodeEncodeError:
        return False


def _tool_label(tool: object, number: int) -> str:
    name = tool.get("name") if isinstance(tool, dict) else None
    return f'tool "{name[:80]}"' if isinstance(name, str) and name else f"tool {number + 1}"


def _is_unicode(text: str) -> bool:
    return text.isascii() or text.isprintable() or not any("\ud800" <= one <= "\udfff" for one in text)


def is_progress(params: Mapping[str, Any]) -> bool:
    """Whether the parameters of a progress notification have the types that they should."""
    total, message = params.get("total"), params.get("message")
    return (
        isinstance(params.get("progressToken"), int | str)
        and _is_number(params.get("progress"))
        and (total is None or _is_number(total))
        and (message is None or (isinstance(message, str) and _is_unicode(message)))
    )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300


def unreadable_answer(text: str, open_ids: Collection[int]) -> int | None:
    """Which open call a text belongs to that is no message of JSON-RPC; None if it does not say.

    Servers print other things, too: a text belongs to a call if it names its id, or if it looks like an answer and
    there is only this call.
    """
    text = text[:_MAX_ID_SEARCH]
    try:
        value: object = orjson.loads(text)
    except orjson.JSONDecodeError:
        if '"method"' in text[:_MAX_HEAD]:
            return None  # of a request or notification of the server
        is_answer = text.lstrip().startswith("{") and _RPC_MEMBER.search(text) is not None
    else:
        if not isinstance(value, dict) or "method" in value or value.keys().isdisjoint(("jsonrpc", "result", "error")):
            return None
        is_answer = True
    for found in _ID.finditer(text):
        if int(found[2]) in open_ids:
            return int(found[2])
    return next(iter(open_ids)) if is_answer and len(open_ids) == 1 else None


def is_rpc_error(content: bytes) -> bool:
    """Whether the body of a response is an error of JSON-RPC."""
    try:
        value: Any = json.loads(content)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and isinstance(value.get("error"), dict) and "code" in value["error"]


def answer_problem(request: bytes, content: bytes) -> str:
    """Why the body of a response does not answer a request; empty if it does, or if nothing was requested."""
    try:
        requested = json.loads(request)
    except ValueError:
        return ""
    if not isinstance(requested, dict) or "id" not in requested or "method" not in requested:
        return ""
    try:
        answer: Any = json.loads(content)
    except (ValueError, RecursionError) as error:
        return f"the MCP server sent an answer that is not JSON: {error}"
    if not isinstance(answer, dict) or ("result" in answer) == ("error" in answer):
        return "the MCP server sent an answer that has neither a result nor an error, or both"
    if str(answer.get("id")) != str(requested["id"]):
        return f"the MCP server answered with the id {str(answer.get('id'))[:80]}, which is not that of the call"
    return ""
