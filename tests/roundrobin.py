"""A TCP round-robin balancer: each connection goes to the next server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final

CHUNK: Final = 64 * 1024


class RoundRobin:
    """A balancer for the servers in `targets` (HOST:PORT); unreachable ones are skipped."""

    def __init__(self) -> None:
        self.targets: Sequence[str] = ()
        self.taken: list[str] = []
        """The target of each connection."""
        self._turn = 0
        self._carrying: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    @property
    def address(self) -> str:
        """HOST:PORT."""
        assert self._server is not None
        host, port = self._server.sockets[0].getsockname()[:2]
        return f"{host}:{port}"

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Listens on a loopback port while the block runs."""
        self._server = await asyncio.start_server(self._take, "127.0.0.1", 0, backlog=1024)
        try:
            yield
        finally:
            self._server.close()
            for task in tuple(self._carrying):
                task.cancel()
            await asyncio.gather(*self._carrying, return_exceptions=True)

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._carrying.add(task)
        try:
            if upstream := await self._connect():
                await _relay((reader, writer), upstream)
        except asyncio.CancelledError:
            pass  # shutdown
        finally:
            writer.close()
            self._carrying.discard(task)

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        for _ in self.targets:
            self._turn += 1
            target = self.targets[self._turn % len(self.targets)]
            host, _, port = target.rpartition(":")
            with suppress(OSError):
                upstream = await asyncio.open_connection(host, int(port))
                self.taken.append(target)
                return upstream
        return None


Side = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def _relay(one: Side, other: Side) -> None:
    try:
        async with asyncio.TaskGroup() as both:
            both.create_task(_carry(one[0], other[1]))
            both.create_task(_carry(other[0], one[1]))
    finally:
        other[1].close()


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copies from one side to the other, including the end of the stream."""
    with suppress(ConnectionError):
        while data := await reader.read(CHUNK):
            writer.write(data)
            await writer.drain()
    with suppress(OSError):
        writer.write_eof()
