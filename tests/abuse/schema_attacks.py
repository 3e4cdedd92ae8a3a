"""Attacks on the checks of JSON Schemas: arguments that match slowly, which need no credentials."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Final

from tests.abuse.connections import repeat
from tests.abuse.mcp_attacks import mcp_request

from dragoman import Turn, agent

_TWICE: Final = [{"$ref": "#/$defs/node"}, {"$ref": "#/$defs/node"}]

CHECKED: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "tags": {"type": "array", "uniqueItems": True, "items": {"type": "string"}},
        "mail": {"type": "string", "pattern": r"^([a-zA-Z0-9]+[._-]?)+@example\.com$"},
        "digits": {"type": "string", "pattern": "(1[01]{30}2|1[01]{31}2)"},
        "node": {"$ref": "#/$defs/node"},
    },
    "$defs": {"node": {"properties": {"node": {"allOf": _TWICE}, "size": {"multipleOf": 0.001}}}},
}


@agent(input=CHECKED)
async def checked(turn: Turn) -> str:
    """Takes arguments that are checked against a JSON Schema."""
    return "done"


def _call(arguments: Any) -> bytes:
    return mcp_request("tools/call", {"name": "checked", "arguments": "REST"}, json.dumps(arguments))


async def schema_unique_items(http: str, grpc_address: str, seconds: float) -> int:
    """Thousands of objects that must differ, and that are no strings."""
    call = _call({"tags": [{"a": number} for number in range(4000)]})
    return await repeat(http, seconds, call, callers=2)


async def schema_patterns(http: str, grpc_address: str, seconds: float) -> int:
    """Texts for which a backtracking engine takes hours, and a linear one its longest."""
    calls = [_call({"mail": "a" * length + "!"}) for length in (40, 100_000)]
    calls.append(_call({"digits": "1" * 1000}))
    return sum(await asyncio.gather(*(repeat(http, seconds, call, 1) for call in calls)))


async def schema_references(http: str, grpc_address: str, seconds: float) -> int:
    """Values in which the references of a schema double with each level."""
    deep: dict[str, Any] = {"size": 1e300}
    for _ in range(60):
        deep = {"node": deep}
    return await repeat(http, seconds, _call({"node": deep}), callers=2)
