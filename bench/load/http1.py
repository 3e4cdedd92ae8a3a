"""Minimal HTTP/1.1 client for load: one keep-alive connection with one request at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, cast

HTTP_CONNECT_TIMEOUT: Final = 5.0
"""Seconds to connect."""

_END_OF_HEAD: Final = b"\r\n\r\n"
_LAST_CHUNK: Final = b"0\r\n\r\n"
_LENGTH: Final = b"content-length:"


class Connection(asyncio.Protocol):
    """One connection. `call` returns a complete response, `stream` counts a marker in a chunked response."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._done: asyncio.Future[bytes] | None = None
        self._seen = bytearray()
        self._marker = b""
        self._on_markers: Callable[[int], None] | None = None
        self._tail = b""
        self.lost = False

    @classmethod
    async def open(cls, target: str) -> Connection:
        """Connects to HOST:PORT."""
        host, port = target.split(":")
        loop = asyncio.get_running_loop()
        _, connection = await asyncio.wait_for(loop.create_connection(cls, host, int(port)), HTTP_CONNECT_TIMEOUT)
        return connection

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    async def call(self, request: bytes) -> bytes:
        """Returns the response, head and body unparsed. Raises ConnectionError."""
        return await self._send(request)

    async def stream(self, request: bytes, marker: bytes, on_markers: Callable[[int], None]) -> bytes:
        """Calls `on_markers` with the number of markers in each chunk (also 0). Returns the head after the end."""
        self._marker, self._on_markers, self._tail = marker, on_markers, b""
        try:
            return await self._send(request)
        finally:
            self._on_markers = None

    async def _send(self, request: bytes) -> bytes:
        if self._transport is None or self.lost:
            raise ConnectionResetError("the server has closed the connection")
        self._done = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._done

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's does not inherit from it

    def data_received(self, data: bytes) -> None:
        if self._done is None:
            return
        if self._on_markers is not None:
            self._count(data)
            return
        seen = self._seen
        seen += data
        head = seen.find(_END_OF_HEAD)
        if head >= 0 and _is_complete(seen, head):
            self._finish(bytes(seen))

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        if self._done is not None and not self._done.done():
            self._done.set_exception(exc or ConnectionResetError("the server has closed the connection"))

    def _count(self, data: bytes) -> None:
        assert self._on_markers is not None
        if not self._seen:  # the head comes with the first bytes, and is short
            head, _, data = data.partition(_END_OF_HEAD)
            self._seen += head + _END_OF_HEAD
            if b"chunked" not in head.lower():  # an error with a body of its own
                self._finish(bytes(self._seen))
                return
        data = self._tail + data
        self._on_markers(data.count(self._marker))
        self._tail = data[1 - len(self._marker) :]
        if data.endswith(_LAST_CHUNK):
            self._finish(bytes(self._seen))

    def _finish(self, response: bytes) -> None:
        done, self._done = self._done, None
        self._seen.clear()
        if done is not None and not done.done():
            done.set_result(response)


def _is_complete(seen: bytearray, head: int) -> bool:
    at = seen[:head].lower().find(_LENGTH)
    if at < 0:
        return seen.endswith(_LAST_CHUNK)
    end = seen.find(b"\r\n", at)
    return len(seen) >= head + len(_END_OF_HEAD) + int(seen[at + len(_LENGTH) : end])


def request(method: str, target: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None) -> bytes:
    """The bytes of a request."""
    lines = [f"{method} {path} HTTP/1.1", f"Host: {target}"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    if method == "POST":
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    return "\r\n".join([*lines, "", ""]).encode() + body
