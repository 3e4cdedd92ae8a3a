"""Opens many connections that then are idle, as a process of its own: each needs a descriptor on both sides."""

from __future__ import annotations

import asyncio
import resource
import sys
from typing import Final

from tests.abuse import h2

AT_ONCE: Final = 250
"""Connections opened at the same time: fewer than the server accepts, so that none replaces another of them."""

BROKEN: Final = (OSError, asyncio.IncompleteReadError, TimeoutError)
Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def idle_http(address: str) -> Connection:
    """Returns a connection with one answered request: it may then be idle longer than one without any."""
    reader, writer = await asyncio.open_connection(*address.rsplit(":", 1))
    try:
        writer.write(f"GET /healthz HTTP/1.1\r\nHost: {address}\r\n\r\n".encode())
        await reader.readuntil(b"\r\n\r\n")
    except BROKEN:
        writer.close()
        raise
    return reader, writer


async def main(binding: str, address: str, count: str) -> None:
    """Tries to open `count` connections, prints how many were accepted, and holds them until the end of its input."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    connect = {"http": idle_http, "grpc": h2.connect}[binding]
    held: list[Connection] = []
    for first in range(0, int(count), AT_ONCE):
        attempts = [asyncio.wait_for(connect(address), 10) for _ in range(first, min(first + AT_ONCE, int(count)))]
        for result in await asyncio.gather(*attempts, return_exceptions=True):
            if isinstance(result, tuple):
                held.append(result)
            elif not isinstance(result, BROKEN):
                raise result
    print(len(held), flush=True)
    await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
