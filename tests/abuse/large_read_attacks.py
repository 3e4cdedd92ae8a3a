"""Callers who read a large artifact again and again, and download it without reading what arrives."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import suppress
from typing import Any, Final
from urllib.parse import urlsplit

import aiohttp
import grpc
from tests.abuse.connections import BROKEN, connect

from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb
from dragoman_pb.lf.a2a.v1 import a2a_pb2_grpc

MIB: Final = 48
"""Of the artifact: three times what is inline."""

AGENT: Final = "large"
HEADERS: Final = {"A2A-Version": "1.0", "Content-Type": "application/json"}


async def large_reads(http: str, grpc_address: str, seconds: float) -> int:
    """GetTask on each binding, lists with artifacts, downloads that are read, and some that are not."""
    base = f"http://{http}"
    async with aiohttp.ClientSession(headers=HEADERS) as session, grpc.aio.insecure_channel(grpc_address) as channel:
        message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": str(MIB)}]}
        async with session.post(f"{base}/{AGENT}/message:send", data=json.dumps({"message": message})) as response:
            task_id = (await response.json())["task"]["id"]
        async with session.get(f"{base}/{AGENT}/tasks/{task_id}") as response:
            url = (await response.json())["artifacts"][0]["parts"][0]["url"]
        stub = a2a_pb2_grpc.A2AServiceStub(channel)
        until = time.monotonic() + seconds
        call = {"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": task_id, "tenant": AGENT}}

        async def rest() -> None:
            async with session.get(f"{base}/{AGENT}/tasks/{task_id}") as response:
                await response.read()

        async def listed() -> None:
            async with session.get(f"{base}/{AGENT}/tasks?includeArtifacts=true") as response:
                await response.read()

        async def jsonrpc() -> None:
            async with session.post(base, data=json.dumps(call)) as response:
                await response.read()

        async def over_grpc() -> None:
            await stub.GetTask(pb.GetTaskRequest(id=task_id, tenant=AGENT))

        async def download() -> None:
            async with session.get(url) as response:
                while time.monotonic() < until and await response.content.read(1 << 20):
                    pass

        async def repeated(read: Any) -> int:
            count = 0
            while time.monotonic() < until:
                await read()
                count += 1
            return count

        reads = [rest, listed, jsonrpc, over_grpc, download] * 3
        return sum(await asyncio.gather(*map(repeated, reads), *(_unread(http, url, until) for _ in range(20))))


async def _unread(http: str, url: str, until: float) -> int:
    """Begins a download, and reads nothing of it."""
    link = urlsplit(url)
    with suppress(*BROKEN):
        _, writer = await connect(http)
        writer.write(f"GET {link.path}?{link.query} HTTP/1.1\r\nHost: {http}\r\n\r\n".encode())
        await writer.drain()
        await asyncio.sleep(max(until - time.monotonic(), 0))  # the attack lasts as long
        writer.transport.abort()
    return 1
