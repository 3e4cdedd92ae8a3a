"""Protobuf framing: encodes and splits fields without parsing messages.

A serialized message is the concatenation of its framed fields, so a Task can be stored as rows and built by joining
them (protobuf encoding: message structure, length-delimited records).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final


def varint(value: int) -> bytes:
    """Encodes a non-negative integer as a base-128 varint."""
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
"""All varints of one byte, and those of two bytes up to the usual lengths."""


def frame(number: int, payload: bytes) -> bytes:
    """One length-delimited field (message, string or bytes)."""
    try:
        return _VARINTS[number << 3 | 2] + _VARINTS[len(payload)] + payload
    except IndexError:  # rare; calls would cost more than the rest
        return varint(number << 3 | 2) + varint(len(payload)) + payload


def text(number: int, value: str) -> bytes:
    """One string field; empty for the empty string, as proto3 encodes it."""
    return frame(number, value.encode()) if value else b""


def submessage(number: int, payload: bytes) -> bytes:
    """One message field; empty when the message is empty, which counts as unset."""
    return frame(number, payload) if payload else b""


def integer(number: int, value: int) -> bytes:
    """One integer, enum or bool field; empty for zero."""
    return _VARINTS[number << 3] + (_VARINTS[value] if value < _CACHED_VARINTS else varint(value)) if value else b""


def timestamp(milliseconds: int) -> bytes:
    """A `google.protobuf.Timestamp` from milliseconds since the epoch."""
    return _seconds(milliseconds // 1000) + _fraction(milliseconds % 1000)


@lru_cache(maxsize=8)
def _seconds(seconds: int) -> bytes:
    """Field 1 of a timestamp: the same for many events."""
    return integer(1, seconds)


@lru_cache(maxsize=1000)
def _fraction(milliseconds: int) -> bytes:
    return integer(2, milliseconds * 1_000_000)


def delimited(payloads: Iterable[bytes]) -> bytes:
    """Concatenates messages, each prefixed with its length."""
    return b"".join([part for payload in payloads for part in (varint(len(payload)), payload)])


def undelimited(data: bytes) -> Iterator[bytes]:
    """Splits the bytes of `delimited` into messages, in order."""
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
    """The varint at `offset`, and its end. Raises ValueError past ten bytes, IndexError when it is cut off."""
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
    """The length-delimited fields of a message: number, start of the field, start and end of its payload.

    Fields in groups are left out. We write no groups, but keep clients' unknown fields.
    """
    at = open_groups = 0
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
                if not open_groups:
                    yield key >> 3, start, begin, at
            case 3:
                open_groups += 1
            case 4 if open_groups:
                open_groups -= 1
            case 5:
                at += 4
            case kind:
                raise ValueError(f"wire type {kind} is not valid")
