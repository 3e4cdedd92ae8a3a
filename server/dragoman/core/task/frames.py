"""Protobuf framing: fields as bytes that can be joined without being parsed.

A serialized message is the concatenation of its framed fields, so a Task can be kept as rows and put together
by joining them (protobuf encoding: message structure, length-delimited records).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final


def varint(value: int) -> bytes:
    """A non-negative integer as base-128 varint."""
    if value < _CACHED_VARINTS:
        return _VARINTS[value]
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


_CACHED_VARINTS: Final = 2048
_VARINTS: Final = tuple(
    bytes((value,)) if value < 0x80 else bytes((value & 0x7F | 0x80, value >> 7)) for value in range(_CACHED_VARINTS)
)
"""The varints of one byte, and of two as far as most lengths go."""


def frame(number: int, payload: bytes) -> bytes:
    """One length-delimited field (message, string or bytes)."""
    key, size = number << 3 | 2, len(payload)
    if key < _CACHED_VARINTS and size < _CACHED_VARINTS:  # almost always, and a call costs more than the rest
        return _VARINTS[key] + _VARINTS[size] + payload
    return varint(key) + varint(size) + payload


def text(number: int, value: str) -> bytes:
    """One string field; nothing at all for the empty string, as proto3 writes it."""
    return frame(number, value.encode()) if value else b""


def submessage(number: int, payload: bytes) -> bytes:
    """One message field; nothing at all when the message is empty and therefore taken as unset."""
    return frame(number, payload) if payload else b""


def integer(number: int, value: int) -> bytes:
    """One integer, enum or bool field; nothing at all for zero."""
    return varint(number << 3) + varint(value) if value else b""


def timestamp(milliseconds: int) -> bytes:
    """A `google.protobuf.Timestamp` of so many milliseconds since the epoch."""
    seconds, rest = divmod(milliseconds, 1000)
    return integer(1, seconds) + integer(2, rest * 1_000_000)


def delimited(payloads: Iterable[bytes]) -> bytes:
    """Messages one after another, each with its length before it."""
    return b"".join([part for payload in payloads for part in (varint(len(payload)), payload)])


def undelimited(data: bytes) -> Iterator[bytes]:
    """The messages of `delimited`, in order."""
    at = 0
    while at < len(data):
        length = shift = 0
        while True:
            byte = data[at]
            at += 1
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        yield data[at : at + length]
        at += length


def read_varint(data: bytes, offset: int) -> tuple[int, int]:
    """The varint at `at`, and where it ends. Raises ValueError past ten bytes, IndexError for half of one."""
    value = shift = 0
    while shift < 70:
        byte = data[offset]
        offset += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, offset
    raise ValueError("a varint has at most ten bytes")


def fields(data: bytes) -> Iterator[tuple[int, int, int, int]]:
    """The length-delimited fields of a message: number, where the field starts, and where its payload is from-to."""
    at = 0
    while at < len(data):
        start = at
        key, at = read_varint(data, at)
        match key & 7:
            case 0:
                _, at = read_varint(data, at)
            case 1:
                at += 8
            case 2:
                length, begin = read_varint(data, at)
                at = begin + length
                yield key >> 3, start, begin, at
            case 5:
                at += 4
            case 3:
                at = skip_group(data, at)
            case kind:
                raise ValueError(f"wire type {kind} is none that is written")


def skip_group(data: bytes, offset: int) -> int:
    """Where the group ends that begins before `at`. We write none; unknown fields of strangers are kept."""
    open_groups = 1
    while open_groups:
        key, offset = read_varint(data, offset)
        match key & 7:
            case 0:
                _, offset = read_varint(data, offset)
            case 1:
                offset += 8
            case 2:
                length, begin = read_varint(data, offset)
                offset = begin + length
            case 3:
                open_groups += 1
            case 4:
                open_groups -= 1
            case _:
                offset += 4
    return offset
