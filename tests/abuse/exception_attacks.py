"""Attacks by what agents raise: their callers choose the exceptions."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from contextlib import suppress
from typing import Final

from tests.abuse.connections import BROKEN, connect
from tests.hostile.kinds import EXCEPTIONS

PLACES: Final = ("raises", "raises-in-thread", "raises-in-step")
"""Agents of tests/overload/server_process.py."""


def _send(agent: str, kind: str) -> bytes:
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": kind}]}
    body = json.dumps({"message": message}).encode()
    head = f"POST /{agent}/message:send HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}A2A-Version: 1.0\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


async def hostile_exceptions(http: str, grpc_address: str, seconds: float) -> int:
    """Every kind of exception in every place, each by a send that waits for the end of its turn."""
    requests = itertools.cycle([_send(agent, kind) for kind in EXCEPTIONS for agent in PLACES])

    async def caller() -> int:
        until, count = time.monotonic() + seconds, 0
        while time.monotonic() < until:
            with suppress(*BROKEN):
                reader, writer = await connect(http)
                writer.write(next(requests))
                response = await asyncio.wait_for(reader.read(), 10)
                writer.transport.abort()
                assert b"TASK_STATE_FAILED" in response, response
            count += 1
        return count

    return sum(await asyncio.gather(*(caller() for _ in range(4))))
