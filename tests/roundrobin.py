"""A plain TCP round-robin: each connection goes to the next server, and nothing is looked at or kept."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final

CHUNK: Final = 64 * 1024


class RoundRobin:
    """Stands before servers, whose HOST:PORT are in `targets`; one that cannot be reached is passed over."""

    def __init__(self) -> None:
        self.targets: Sequence[str] = ()
        self.taken: list[str] = []
        """Where each connection went."""
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
        """Listens for as long as the block runs, on a port of loopback."""
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
            if there := await self._connect():
                await _relay((reader, writer), there)
        except asyncio.CancelledError:
            pass  # the end; nobody waits for this task
        finally:
            writer.close()
            self._carrying.discard(task)

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        for _ in self.targets:
            self._turn += 1
            target = self.targets[self._turn % len(self.targets)]
            host, _, port = target.rpartition(":")
            with suppress(OSError):
                there = await asyncio.open_connection(host, int(port))
                self.taken.append(target)
                return there
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
    """What one side says, to the other; the end of it, too."""
    with suppress(ConnectionError):
        while data := await reader.read(CHUNK):
            writer.write(data)
            await writer.drain()
    with suppress(OSError):
        writer.write_eof()
