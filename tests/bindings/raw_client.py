"""A client that sends and receives raw bytes, to test invalid and slow peers."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from dragoman.bindings.options import BoundAddress


class RawClient:
    """A TCP connection that sends only what the test sends."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    @asynccontextmanager
    async def connect(cls, bound: BoundAddress) -> AsyncIterator[RawClient]:
        reader, writer = await asyncio.open_connection(bound.host, bound.port)
        try:
            yield cls(reader, writer)
        finally:
            writer.close()

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def read_rest(self) -> bytes:
        """Reads until the connection is closed or reset."""
        received = b""
        try:
            while data := await self.reader.read(65536):
                received += data
        except ConnectionError:
            pass
        return received

    async def read_response(self) -> tuple[int, bytes]:
        """Returns the status and body of the next HTTP response, which must have a Content-Length."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"(?i)content-length: (\d+)", head)
        return int(head.split()[1]), await self.reader.readexactly(int(length[1]) if length else 0)

    async def get(self, path: str = "/healthz") -> tuple[int, bytes]:
        await self.send(b"GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n" % path.encode())
        return await self.read_response()
