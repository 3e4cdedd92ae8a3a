"""Minimal gRPC client for load: HTTP/2 frames (RFC 9113) and headers (RFC 7541), no interceptors or retries.

For a stream, grpc.aio as a client costs more than the servers under test. h2load sees neither the trailers, which have
the gRPC status, nor a stream before its end. This client reads both. It announces a header table of size 0, so that
servers cannot refer to earlier headers and every block can be read by itself.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, cast

GRPC_CONNECT_TIMEOUT: Final = 5.0
"""Seconds to connect."""

_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RESET, _SETTINGS, _PING, _GOAWAY, _WINDOW, _CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
_END_STREAM, _END_HEADERS, _ACK, _PADDED = 1, 4, 1, 8
_TABLE_SIZE, _PUSH, _INITIAL_WINDOW, _FRAME_SIZE = 1, 2, 4, 5
_WIDEST: Final = 2**31 - 1
_FIRST_WINDOW: Final = 65535
_LARGEST_FRAME: Final = 2**24 - 1
_RESIZE, _RESIZE_MASK = 0x20, 0xE0
"""The first byte of a server's first block: its table size update to 0."""
_OK: Final = b"grpc-status\x010"
"""A literal name and the value 0 with their lengths; gRPC's C core never Huffman-codes them."""

OnMessage = Callable[[bytes], None]


class CallFailed(Exception):
    """The call ended with a status other than 0."""


@dataclass(slots=True)
class _Stream:
    done: asyncio.Future[list[bytes]]
    on_message: OnMessage | None
    messages: list[bytes] = field(default_factory=list)
    rest: bytes = b""
    begun: bool = False
    ok: bool = False


class Connection(asyncio.Protocol):
    """One connection with concurrent calls. `head_size`: bytes of the last response's first header block."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._streams: dict[int, _Stream] = {}
        self._next = 1
        self._buffer = b""
        self._credit = 0
        self.head_size = 0
        self.lost = False

    @classmethod
    async def open(cls, target: str) -> Connection:
        """Connects to HOST:PORT."""
        host, port = target.split(":")
        loop = asyncio.get_running_loop()
        _, connection = await asyncio.wait_for(loop.create_connection(cls, host, int(port)), GRPC_CONNECT_TIMEOUT)
        return connection

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    async def call(self, head: bytes, message: bytes) -> bytes:
        """Makes a unary call and returns its message. Raises CallFailed for any status but OK, and ConnectionError."""
        messages = await self._start(head, message, None)
        if len(messages) != 1:
            raise CallFailed(f"{len(messages)} messages instead of 1")
        return messages[0]

    async def stream(self, head: bytes, message: bytes, on_message: OnMessage) -> None:
        """Passes each message of a stream to `on_message`, until it ends. Raises CallFailed, ConnectionError."""
        await self._start(head, message, on_message)

    def _start(self, head: bytes, message: bytes, on_message: OnMessage | None) -> asyncio.Future[list[bytes]]:
        if self._transport is None or self.lost:
            raise ConnectionResetError("the server has closed the connection")
        number, self._next = self._next, self._next + 2
        stream = self._streams[number] = _Stream(asyncio.get_running_loop().create_future(), on_message)
        body = struct.pack(">BI", 0, len(message)) + message
        self._transport.write(_frame(_HEADERS, _END_HEADERS, number, head) + _frame(_DATA, _END_STREAM, number, body))
        return stream.done

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's does not inherit from it
        settings = {_TABLE_SIZE: 0, _PUSH: 0, _INITIAL_WINDOW: _WIDEST, _FRAME_SIZE: _LARGEST_FRAME}
        data = b"".join(struct.pack(">HI", name, value) for name, value in settings.items())
        widen = struct.pack(">I", _WIDEST - _FIRST_WINDOW)
        self._transport.write(_PREFACE + _frame(_SETTINGS, 0, 0, data) + _frame(_WINDOW, 0, 0, widen))

    def data_received(self, data: bytes) -> None:
        if self._buffer:
            data = self._buffer + data
        at, end = 0, len(data)
        while end - at >= 9:
            size = data[at] << 16 | data[at + 1] << 8 | data[at + 2]
            if end - at < 9 + size:
                break
            kind, flags = data[at + 3], data[at + 4]
            number = int.from_bytes(data[at + 5 : at + 9])
            at += 9 + size
            self._frame(kind, flags, number, data[at - size : at])
        self._buffer = data[at:]

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        self._fail(exc or ConnectionResetError("the server has closed the connection"))

    def _frame(self, kind: int, flags: int, number: int, body: bytes) -> None:
        assert self._transport is not None
        if kind in (_DATA, _HEADERS):
            if flags & _PADDED or (kind == _HEADERS and not flags & _END_HEADERS):
                raise NotImplementedError("padding, or headers in several frames")
            self._handle_response(kind, flags, number, body)
        elif kind == _SETTINGS and not flags & _ACK:
            self._transport.write(_frame(_SETTINGS, _ACK, 0, b""))
        elif kind == _PING and not flags & _ACK:
            self._transport.write(_frame(_PING, _ACK, 0, body))
        elif kind == _RESET:
            self._end(number, CallFailed(f"reset with code {int.from_bytes(body)}"))
        elif kind == _GOAWAY:
            self.lost = True
            self._fail(ConnectionResetError(f"the server goes away: {body[8:].decode('utf-8', 'replace')}"))

    def _handle_response(self, kind: int, flags: int, number: int, body: bytes) -> None:
        stream = self._streams.get(number)
        if kind == _HEADERS:
            if stream is not None:
                if not stream.begun:
                    stream.begun = True
                    self.head_size = len(body) - (body[0] & _RESIZE_MASK == _RESIZE)
                stream.ok = _OK in body
        else:
            self._spend(len(body))
            if stream is not None:
                self._messages(stream, body)
        if flags & _END_STREAM and stream is not None:
            self._end(number, None if stream.ok else CallFailed(f"trailers {body!r}"))

    def _messages(self, stream: _Stream, body: bytes) -> None:
        if stream.rest:
            body = stream.rest + body
        take = stream.on_message or stream.messages.append
        at, end = 0, len(body)
        while end - at >= 5:
            size = int.from_bytes(body[at + 1 : at + 5])
            if end - at < 5 + size:
                break
            at += 5 + size
            take(body[at - size : at])
        stream.rest = body[at:]

    def _spend(self, count: int) -> None:
        """Restores the connection's flow control window when half is used. Stream windows are never used up."""
        self._credit += count
        if self._credit > _WIDEST // 2 and self._transport is not None:
            self._transport.write(_frame(_WINDOW, 0, 0, struct.pack(">I", self._credit)))
            self._credit = 0

    def _end(self, number: int, error: Exception | None) -> None:
        stream = self._streams.pop(number, None)
        if stream is None or stream.done.done():
            return
        if error is None:
            stream.done.set_result(stream.messages)
        else:
            stream.done.set_exception(error)

    def _fail(self, error: Exception) -> None:
        for number in list(self._streams):
            self._end(number, error)


def head(target: str, path: str, metadata: dict[str, str] | None = None) -> bytes:
    """Returns the header block of a call, which indexes the static table only."""
    block = b"\x83\x86" + b"\x04" + _text(path) + b"\x01" + _text(target)  # POST, http, :path, :authority
    block += b"\x0f\x10" + _text("application/grpc") + b"\x00" + _text("te") + _text("trailers")
    return block + b"".join(b"\x00" + _text(name) + _text(value) for name, value in (metadata or {}).items())


def _text(text: str) -> bytes:
    encoded = text.encode()
    if len(encoded) >= 127:
        raise ValueError(f"too long for this client: {text}")
    return bytes((len(encoded),)) + encoded


def _frame(kind: int, flags: int, number: int, body: bytes) -> bytes:
    return struct.pack(">I", len(body) << 8 | kind) + struct.pack(">BI", flags, number) + body
