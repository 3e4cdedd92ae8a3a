"""A gRPC client that does as little as a load generator may: HTTP/2 frames, no interceptors, no retries.

grpc.aio as a client costs more than the servers under test do for a stream. h2load sees neither the trailers, where
gRPC says whether a call failed, nor a stream before its end. So this one reads frames, and looks at both.

RFC 9113 for the frames, RFC 7541 for headers. The server is told that our table for headers has no room, so it can
refer to nothing it sent before, and every block can be read by itself.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, cast

CONNECT: Final = 5.0
"""Seconds to connect."""

_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RESET, _SETTINGS, _PING, _GOAWAY, _WINDOW, _CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
_END_STREAM, _END_HEADERS, _ACK, _PADDED = 1, 4, 1, 8
_TABLE_SIZE, _PUSH, _INITIAL_WINDOW, _FRAME_SIZE = 1, 2, 4, 5
_WIDEST: Final = 2**31 - 1
_FIRST_WINDOW: Final = 65535
_LARGEST_FRAME: Final = 2**24 - 1
_RESIZE, _RESIZE_MASK = 0x20, 0xE0
"""How a server's first block begins: its table has no room, as it was told. One byte."""
_OK: Final = b"grpc-status\x010"
"""A literal name and the value 0, each after its length; neither is ever Huffman coded by gRPC's C core."""

Arrived = Callable[[bytes], None]


class CallFailed(Exception):
    """The call ended without status 0."""


@dataclass(slots=True)
class _Stream:
    done: asyncio.Future[list[bytes]]
    arrived: Arrived | None
    messages: list[bytes] = field(default_factory=list)
    rest: bytes = b""
    begun: bool = False
    ok: bool = False


class Connection(asyncio.Protocol):
    """One connection, any number of calls at a time. `head_size`: bytes of the last answer's first header block."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._streams: dict[int, _Stream] = {}
        self._next = 1
        self._seen = b""
        self._credit = 0
        self.head_size = 0
        self.lost = False

    @classmethod
    async def open(cls, target: str) -> Connection:
        """Connects to HOST:PORT."""
        host, port = target.split(":")
        loop = asyncio.get_running_loop()
        _, connection = await asyncio.wait_for(loop.create_connection(cls, host, int(port)), CONNECT)
        return connection

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    async def ask(self, head: bytes, message: bytes) -> bytes:
        """The one message of an answer. Raises CallFailed for any status but OK, ConnectionError."""
        messages = await self._start(head, message, None)
        if len(messages) != 1:
            raise CallFailed(f"{len(messages)} messages instead of 1")
        return messages[0]

    async def follow(self, head: bytes, message: bytes, arrived: Arrived) -> None:
        """Hands each message of a stream to `arrived`, until it ends. Raises CallFailed, ConnectionError."""
        await self._start(head, message, arrived)

    def _start(self, head: bytes, message: bytes, arrived: Arrived | None) -> asyncio.Future[list[bytes]]:
        if self._transport is None or self.lost:
            raise ConnectionResetError("the server has closed the connection")
        number, self._next = self._next, self._next + 2
        stream = self._streams[number] = _Stream(asyncio.get_running_loop().create_future(), arrived)
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
        if self._seen:
            data = self._seen + data
        at, end = 0, len(data)
        while end - at >= 9:
            size = data[at] << 16 | data[at + 1] << 8 | data[at + 2]
            if end - at < 9 + size:
                break
            kind, flags = data[at + 3], data[at + 4]
            number = int.from_bytes(data[at + 5 : at + 9])
            at += 9 + size
            self._frame(kind, flags, number, data[at - size : at])
        self._seen = data[at:]

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        self._fail(exc or ConnectionResetError("the server has closed the connection"))

    def _frame(self, kind: int, flags: int, number: int, body: bytes) -> None:
        assert self._transport is not None
        if kind in (_DATA, _HEADERS):
            if flags & _PADDED or (kind == _HEADERS and not flags & _END_HEADERS):
                raise NotImplementedError("padding, or headers in several frames")
            self._answer(kind, flags, number, body)
        elif kind == _SETTINGS and not flags & _ACK:
            self._transport.write(_frame(_SETTINGS, _ACK, 0, b""))
        elif kind == _PING and not flags & _ACK:
            self._transport.write(_frame(_PING, _ACK, 0, body))
        elif kind == _RESET:
            self._end(number, CallFailed(f"reset with code {int.from_bytes(body)}"))
        elif kind == _GOAWAY:
            self.lost = True
            self._fail(ConnectionResetError(f"the server goes away: {body[8:].decode('utf-8', 'replace')}"))

    def _answer(self, kind: int, flags: int, number: int, body: bytes) -> None:
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
        take = stream.arrived or stream.messages.append
        at, end = 0, len(body)
        while end - at >= 5:
            size = int.from_bytes(body[at + 1 : at + 5])
            if end - at < 5 + size:
                break
            at += 5 + size
            take(body[at - size : at])
        stream.rest = body[at:]

    def _spend(self, count: int) -> None:
        """Gives the connection's window back, half of it at a time. A stream's own is never used up."""
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
    """The header block of a call: nothing indexed but names and values of the static table."""
    block = b"\x83\x86" + b"\x04" + _text(path) + b"\x01" + _text(target)  # POST, http, :path, :authority
    block += b"\x0f\x10" + _text("application/grpc") + b"\x00" + _text("te") + _text("trailers")
    return block + b"".join(b"\x00" + _text(name) + _text(value) for name, value in (metadata or {}).items())


def _text(text: str) -> bytes:
    encoded = text.encode()
    if len(encoded) >= 127:
        raise ValueError(f"longer than a load generator needs: {text}")
    return bytes((len(encoded),)) + encoded


def _frame(kind: int, flags: int, number: int, body: bytes) -> bytes:
    return struct.pack(">I", len(body) << 8 | kind) + struct.pack(">BI", flags, number) + body
