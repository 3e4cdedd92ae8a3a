"""Malicious HTTP/2 frames (RFC 9113), and the headers of a gRPC call (RFC 7541)."""

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
    """Returns a header that is not added to the table (RFC 7541 §6.2.2)."""
    return b"\x00" + _text(name) + _text(value)


def indexed(name: bytes, value: bytes) -> bytes:
    """Returns a header that is added to the server's table (§6.2.1)."""
    return b"\x40" + _text(name) + _text(value)


def _text(text: bytes) -> bytes:
    return _integer(len(text), 7) + text


def _integer(value: int, bits: int) -> bytes:
    maximum = (1 << bits) - 1
    if value < maximum:
        return bytes((value,))
    out, value = bytearray((maximum,)), value - maximum
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def call(path: str) -> bytes:
    """Returns the header block of a gRPC call."""
    pseudo_headers = ((":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "a.example"))
    headers = (("content-type", "application/grpc"), ("te", "trailers"))
    return b"".join(literal(name.encode(), value.encode()) for name, value in (*pseudo_headers, *headers))


async def connect(address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Returns a connection that is ready for streams."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(PREFACE + frame(SETTINGS, 0, 0) + frame(SETTINGS, ACK, 0))
    await writer.drain()
    return reader, writer
