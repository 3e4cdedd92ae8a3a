"""Bare TCP connections of attackers."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import Final

BROKEN: Final = (ConnectionError, asyncio.IncompleteReadError, TimeoutError)


async def connect(address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, _, port = address.rpartition(":")
    return await asyncio.open_connection(host, int(port))


async def discard(reader: asyncio.StreamReader) -> None:
    """Reads and discards everything, so the server never waits for this client."""
    with suppress(*BROKEN):
        while await reader.read(1 << 16):
            pass


async def repeat(http: str, seconds: float, data: bytes, callers: int = 4) -> int:
    """Sends `data` on one connection after another, and reads the responses."""

    async def caller() -> int:
        until, count = time.monotonic() + seconds, 0
        while time.monotonic() < until:
            with suppress(*BROKEN):
                reader, writer = await connect(http)
                writer.write(data)
                await asyncio.wait_for(writer.drain(), 5)
                await asyncio.wait_for(reader.read(1 << 16), 30)
                writer.transport.abort()
            count += 1
        return count

    return sum(await asyncio.gather(*(caller() for _ in range(callers))))
