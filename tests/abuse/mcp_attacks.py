"""Attacks on the MCP endpoint that need no credentials."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from tests.abuse.connections import BROKEN, connect, repeat
from tests.extensions.mcp.endpoint.mcp_client import FORMS, STATELESS, TASKS

MEBI: Final = 1 << 20
LISTENS: Final = 600
UNREAD_RESULTS: Final = 100


def _post(body: bytes, headers: Mapping[str, str]) -> bytes:
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    head = "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n{lines}\r\n".encode() + body


def mcp_request(method: str, params: Mapping[str, Any], rest: str = "null") -> bytes:
    """A request of 2026-07-28. `rest`: JSON in place of the text `REST` in its parameters."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": STATELESS,
        "io.modelcontextprotocol/clientCapabilities": {**TASKS, **FORMS},
    }
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}})
    headers = {"MCP-Protocol-Version": STATELESS, "Mcp-Method": method}
    if "name" in params:
        headers["Mcp-Name"] = params["name"]
    return _post(body.replace('"REST"', rest).encode(), headers)


async def mcp_deep_json(http: str, grpc_address: str, seconds: float) -> int:
    """Arguments that nest deep, and deeper than is allowed."""
    deep = '{"a":' * 248 + "1" + "}" * 248
    call = mcp_request("tools/call", {"name": "quick", "arguments": {"data": "REST"}}, deep)
    deeper = mcp_request("tools/call", {"name": "quick", "arguments": "REST"}, "[" * (15 * MEBI))
    return sum(await asyncio.gather(repeat(http, seconds, call, 2), repeat(http, seconds, deeper, 2)))


async def mcp_answers(http: str, grpc_address: str, seconds: float) -> int:
    """Fifteen megabytes of answers to questions that were never asked."""
    answers = "{" + ",".join(f'"q{number}":{{"action":"accept"}}' for number in range(400_000)) + "}"
    params = {"taskId": "hold/01a1fb2a-bd29-7b48-8221-ff7b0dc19d30", "inputResponses": "REST"}
    return await repeat(http, seconds, mcp_request("tasks/update", params, answers), callers=2)


async def mcp_sessions(http: str, grpc_address: str, seconds: float) -> int:
    """Sessions, positions and answers whose ids are large and nest deep."""
    encoded = base64.urlsafe_b64encode(b"[" * 3000 + b"]" * 3000).decode()
    ping = _post(b'{"jsonrpc":"2.0","id":1,"method":"ping"}', {"Mcp-Session-Id": f"d1.{encoded}"})
    answer = _post(b'{"jsonrpc":"2.0","id":"elicit.%b","result":{}}' % encoded.encode(), {})
    resume = f"GET /mcp HTTP/1.1\r\nHost: localhost\r\nLast-Event-ID: r1.{encoded}\r\n\r\n".encode()
    return sum(await asyncio.gather(*(repeat(http, seconds, data, 2) for data in (ping, answer, resume))))


async def _unread(http: str, seconds: float, data: bytes, connections: int) -> int:
    """Sends a request on each of many connections, and reads no response."""
    writers = set()
    for _ in range(connections):
        with suppress(*BROKEN):
            writer = (await connect(http))[1]
            writer.transport.pause_reading()  # type: ignore[attr-defined]  # a transport of sockets
            writer.write(data)
            writers.add(writer)
    await asyncio.sleep(seconds)
    for writer in writers:
        writer.transport.abort()
    return len(writers)


async def mcp_unread_results(http: str, grpc_address: str, seconds: float) -> int:
    """Calls with results of a fifth of a megabyte, which are not read."""
    body = {"name": "quick", "arguments": {"message": "x" * 200_000}, "_meta": {"progressToken": 1}}
    call = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": body}).encode()
    return await _unread(http, seconds, _post(call, {"MCP-Protocol-Version": "2025-11-25"}), UNREAD_RESULTS)


async def mcp_listens(http: str, grpc_address: str, seconds: float) -> int:
    """Streams of notifications that are not read."""
    listen = mcp_request("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
    return await _unread(http, seconds, listen, LISTENS)
