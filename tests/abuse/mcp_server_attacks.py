"""Attacks by called MCP servers, whose answers cannot be read, and by callers who make the server call them."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any, Final

from tests.abuse.connections import repeat

_RAW_SERVER: Final = Path(__file__).parents[1] / "extensions" / "mcp" / "servers" / "raw_server.py"

KINDS: Final = ("truncated", "deep", "too long", "unknown id", "strange progress", "flood")
"""What the servers answer; `tests/extensions/mcp/servers/raw_server.py` has the words."""

SERVERS: Final[list[dict[str, Any]]] = [
    {"id": kind.replace(" ", "-"), "command": [sys.executable, str(_RAW_SERVER), kind], "silence": 5} for kind in KINDS
]
"""Their settings."""


async def unreadable_mcp_answers(http: str, grpc_address: str, seconds: float) -> int:
    """Sends to agents that are MCP servers without a readable answer."""
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "bad {}"}]}
    body = json.dumps({"message": message}).encode()
    calls = [
        f"POST /{server['id']}/message:send HTTP/1.1\r\nHost: localhost\r\nA2A-Version: 1.0\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        + body
        for server in SERVERS
    ]
    return sum(await asyncio.gather(*(repeat(http, seconds, call, 1) for call in calls)))
