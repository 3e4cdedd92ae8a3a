"""Memory after a burst of large messages: the server returns it to the system."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import os
import platform
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp
import grpc
import pytest
from tests.cli.server import Server, serving
from tests.eventually import eventually

from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb
from dragoman_pb.lf.a2a.v1 import a2a_pb2_grpc

pytestmark = [
    pytest.mark.longest,
    pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another allocator"),
]

AGENT: Final = """
from dragoman import Turn, agent

@agent(default=True, input_modes=["*/*"])
async def echo(turn: Turn) -> str:
    return "read"
"""

MESSAGES: Final = 20
MESSAGE_BYTES: Final = 9_000_000
"""In base64 all of them just fit into what the server receives at once."""

REMAINDER_MIB: Final = 80
"""What may stay: gRPC keeps fragments, up to 61 MiB of the 172 that are sent. Without trimming 414 to 1,540 stayed."""

Send = Callable[[bytes], Awaitable[Any]]


@asynccontextmanager
async def http_sender(server: Server, path: str, envelope: Callable[[Any], Any]) -> AsyncIterator[Send]:
    headers = {"A2A-Version": "1.0", "Content-Type": "application/json"}
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), headers=headers) as session:

        async def send(content: bytes) -> None:
            message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"raw": base64.b64encode(content).decode()}]}
            sent = io.BytesIO(json.dumps(envelope({"message": message})).encode())
            async with session.post(f"{server.http}{path}", data=sent) as response:
                body = await response.json()
                assert (response.status, "error" in body) == (200, False)

        yield send


def rest_sender(server: Server) -> Any:
    return http_sender(server, "/message:send", lambda params: params)


def jsonrpc_sender(server: Server) -> Any:
    return http_sender(
        server, "/", lambda params: {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params}
    )


@asynccontextmanager
async def grpc_sender(server: Server) -> AsyncIterator[Send]:
    options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    async with grpc.aio.insecure_channel(server.grpc, options=options) as channel:
        stub: Any = a2a_pb2_grpc.A2AServiceStub(channel)

        async def send(content: bytes) -> None:
            message = pb.Message(message_id="m", role=pb.ROLE_USER, parts=[pb.Part(raw=content)])
            await stub.SendMessage(pb.SendMessageRequest(message=message))

        yield send


def resident_mib(server: Server) -> int:
    """Resident memory without mapped files."""
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    (kib,) = re.findall(r"^RssAnon:\s+(\d+) kB$", status, re.MULTILINE)
    return int(kib) // 1024


@pytest.mark.timeout(300)
@pytest.mark.parametrize("sender", [rest_sender, jsonrpc_sender, grpc_sender])
async def test_memory_returns_to_its_level_after_a_burst(sender: Callable[[Server], Any], tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(AGENT)
    with serving("app.py", "--store", f"sqlite:///{tmp_path}/tasks.db", cwd=tmp_path) as server:
        async with sender(server) as send:  # its connections stay open, idle
            for _ in range(20):
                await send(b"small")
            before = resident_mib(server)
            await asyncio.gather(*(send(os.urandom(MESSAGE_BYTES)) for _ in range(MESSAGES)))
            await eventually(lambda: resident_mib(server) <= before + REMAINDER_MIB, seconds=150)
