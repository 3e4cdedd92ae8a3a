"""Frames of HTTP/2 as nobody sends them who means well (RFC 9113), and the few headers of a gRPC call (RFC 7541)."""

from __future__ import annotations

import asyncio
import struct
from typing import Final

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RESET, SETTINGS, PING, WINDOW, CONTINUATION = 0, 1, 3, 4, 6, 8, 9
END_STREAM, END_HEADERS, ACK = 1, 4, 1


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack("!I", len(payload))[1:] + bytes((kind, flags)) + struct.pack("!I", stream) + payload


def literal(name: bytes, value: bytes) -> bytes:
    """A header that is kept in no table (RFC 7541 §6.2.2)."""
    return b"\x00" + _text(name) + _text(value)


def indexed(name: bytes, value: bytes) -> bytes:
    """One that the server's table is to keep (§6.2.1)."""
    return b"\x40" + _text(name) + _text(value)


def _text(text: bytes) -> bytes:
    return _integer(len(text), 7) + text


def _integer(value: int, bits: int) -> bytes:
    most = (1 << bits) - 1
    if value < most:
        return bytes((value,))
    out, value = bytearray((most,)), value - most
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def call(path: str) -> bytes:
    """The headers of a call."""
    response = ((":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "a.example"))
    more = (("content-type", "application/grpc"), ("te", "trailers"))
    return b"".join(literal(name.encode(), value.encode()) for name, value in (*response, *more))


async def connect(address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection that is ready for streams."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(PREFACE + frame(SETTINGS, 0, 0) + frame(SETTINGS, ACK, 0))
    await writer.drain()
    return reader, writer
