"""A pooler by transaction, as small as one can be: what a session leaves on a connection is somebody else's next.

Each client has several connections to the server, and each transaction goes to another of them, in turn. What is kept
between transactions (prepared statements, settings, locks of the session) is not there in the next one.
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
    """A client, and its connections to the server."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self._servers: list[asyncio.StreamWriter] = []
        self._answers: list[asyncio.Task[None]] = []
        self._turn = 0
        self._idle = True

    async def begin(self, reader: asyncio.StreamReader, port: int) -> None:
        """Connects as the client asks for; it is told of the first connection."""
        hello = await _sized(reader)
        if hello[4:8] == struct.pack(">I", 80877103):  # asks for encryption
            self._writer.write(b"N")
            hello = await _sized(reader)
        for number in range(BEHIND):
            answers, server = await asyncio.open_connection("127.0.0.1", port)
            self._servers.append(server)
            server.write(hello)
            kind = b""
            while kind != b"Z":
                kind, message = await _message(answers)
                if number == 0:
                    self._writer.write(message)
            self._answers.append(asyncio.create_task(self._relay(answers)))

    def send(self, message: bytes) -> int:
        """Sends to the connection of this transaction. Gives 1 if it begins one."""
        begins, self._idle = self._idle, False
        self._turn += begins
        self._servers[self._turn % BEHIND].write(message)
        return int(begins)

    def close(self) -> None:
        for task in self._answers:
            task.cancel()
        for one in (self._writer, *self._servers):
            one.close()

    async def _relay(self, answers: asyncio.StreamReader) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                kind, message = await _message(answers)
                if kind == b"Z" and message[-1:] == b"I":
                    self._idle = True
                self._writer.write(message)


class Pooler:
    """Stands before a server that asks for no password."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._clients: set[asyncio.Task[None]] = set()
        self.transactions = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One client."""
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
    """A pooler before the server at a port, and the port at which it is."""
    stands = Pooler(port)
    server = await asyncio.start_server(stands.serve, "127.0.0.1", 0)
    try:
        yield stands, server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await stands.close()
        await server.wait_closed()
