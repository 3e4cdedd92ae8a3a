"""Parses serialized messages, after counting their fields.

A small message can hold millions of empty fields, each of which becomes an object.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from typing import Final, cast

from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError, Message

from dragoman.core.errors import InvalidParams
from dragoman.core.limits.message_limits import MAX_VALUES
from dragoman.core.task import frames

MAX_MESSAGE_FIELDS: Final = 4 * MAX_VALUES
"""Maximum fields of a message, including nested ones. One entry of a JSON object has four: three, and its value."""


def parse_message(cls: type[Message], data: bytes) -> Message:
    """Parses a gRPC request. Raises InvalidParams for invalid bytes and for too many fields."""
    if len(data) > MAX_MESSAGE_FIELDS:  # a field with a length has at least two bytes
        with suppress(IndexError, ValueError):  # the parser rejects these bytes
            if _exceeds_field_count(cast(Descriptor, cls.DESCRIPTOR), data):
                raise InvalidParams(f"request: holds more than {MAX_MESSAGE_FIELDS} fields, the limit of this server")
    try:
        return cls.FromString(data)
    except DecodeError:
        name = cls.DESCRIPTOR.full_name
        raise InvalidParams(f"request: is not a serialized {name}, or contains text that is not UTF-8") from None


def _exceeds_field_count(descriptor: Descriptor, data: bytes) -> bool:
    # Positions instead of slices: a message nested ten thousand levels deep would be copied at each level. The fields
    # of groups, which no message here has, are counted like those of the message around them.
    count, pending = 0, [(_message_fields(descriptor), 0, len(data))]
    while pending:
        message_fields, at, end = pending.pop()
        while at < end:
            key = data[at]
            at += 1
            if key > 0x7F:
                key, at = frames.read_varint(data, at - 1)
            count += 1
            if count > MAX_MESSAGE_FIELDS:
                return True
            kind = key & 7
            if kind == 2:
                length = data[at]
                at += 1
                if length > 0x7F:
                    length, at = frames.read_varint(data, at - 1)
                if length and key >> 3 in message_fields:
                    pending.append((_message_fields(message_fields[key >> 3]), at, min(at + length, end)))
                at += length
            elif kind == 0:
                at = frames.read_varint(data, at)[1] if data[at] > 0x7F else at + 1
            elif kind in _FIXED_WIDTHS:
                at += _FIXED_WIDTHS[kind]
            elif kind > 4:
                return False  # the parser rejects it
    return False


_FIXED_WIDTHS: Final = {1: 8, 5: 4}


@cache
def _message_fields(descriptor: Descriptor) -> dict[int, Descriptor]:
    """The fields of a message that are messages themselves, by number."""
    return {field.number: field.message_type for field in descriptor.fields if field.message_type is not None}
