"""A minimal PostgreSQL pooler in transaction mode.

Each client has several connections to the server, and each transaction uses the next of them. State of a session
(prepared statements, settings, advisory locks) does not follow from one transaction to the next.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final

BEHIND: Final = 3
"""Connections to the server for one client."""


class _Client:
    """A client and its connections to the server."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self._servers: list[asyncio.StreamWriter] = []
        self._relays: list[asyncio.Task[None]] = []
        self._turn = 0
        self._idle = True

    async def begin(self, reader: asyncio.StreamReader, port: int) -> None:
        """Connects with the client's startup message; the client gets the responses of the first connection."""
        hello = await _sized(reader)
        if hello[4:8] == struct.pack(">I", 80877103):  # requests encryption
            self._writer.write(b"N")
            hello = await _sized(reader)
        for number in range(BEHIND):
            responses, server = await asyncio.open_connection("127.0.0.1", port)
            self._servers.append(server)
            server.write(hello)
            kind = b""
            while kind != b"Z":
                kind, message = await _message(responses)
                if number == 0:
                    self._writer.write(message)
            self._relays.append(asyncio.create_task(self._relay(responses)))

    def send(self, message: bytes) -> int:
        """Sends to the connection of the current transaction. Returns 1 if the message begins one."""
        begins, self._idle = self._idle, False
        self._turn += begins
        self._servers[self._turn % BEHIND].write(message)
        return int(begins)

    def close(self) -> None:
        for task in self._relays:
            task.cancel()
        for one in (self._writer, *self._servers):
            one.close()

    async def _relay(self, responses: asyncio.StreamReader) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                kind, message = await _message(responses)
                if kind == b"Z" and message[-1:] == b"I":
                    self._idle = True
                self._writer.write(message)


class Pooler:
    """A pooler in front of a server without passwords."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._clients: set[asyncio.Task[None]] = set()
        self.transactions = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serves one client."""
        task = asyncio.current_task()
        assert task is not None
        self._clients.add(task)
        client = _Client(writer)
        try:
            with suppress(asyncio.IncompleteReadError, ConnectionError):
                await client.begin(reader, self._port)
                while True:
                    kind, message = await _message(reader)
                    if kind == b"X":
                        break
                    self.transactions += client.send(message)
        finally:
            self._clients.discard(task)
            client.close()

    async def close(self) -> None:
        for task in tuple(self._clients):
            task.cancel()
        if self._clients:
            await asyncio.wait(self._clients)


async def _sized(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readexactly(4)
    return head + await reader.readexactly(int.from_bytes(head, "big") - 4)


async def _message(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    kind = await reader.readexactly(1)
    return kind, kind + await _sized(reader)


@asynccontextmanager
async def pooler(port: int) -> AsyncIterator[tuple[Pooler, int]]:
    """Runs a pooler in front of the server at `port`; yields it and its port."""
    instance = Pooler(port)
    server = await asyncio.start_server(instance.serve, "127.0.0.1", 0)
    try:
        yield instance, server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await instance.close()
        await server.wait_closed()
