"""Parses serialized messages: counts their fields before, and checks the range of their times after.

A small message can hold millions of empty fields, each of which becomes an object. The binary form of a Timestamp or a
Duration holds numbers outside of its range, which JSON and arithmetic do not; JSON is checked where it is decoded.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from typing import Any, Final, cast

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message

from dragoman.core.errors import InvalidParams
from dragoman.core.limits.message_limits import MAX_VALUES
from dragoman.core.task import frames

MAX_MESSAGE_FIELDS: Final = 4 * MAX_VALUES
"""Maximum fields of a message, including nested ones. One entry of a JSON object has four: three, and its value."""


def parse_message(cls: type[Message], data: bytes) -> Message:
    """Parses a gRPC request. Raises InvalidParams for invalid bytes, too many fields, and times out of range."""
    if len(data) > MAX_MESSAGE_FIELDS:  # a field with a length has at least two bytes
        with suppress(IndexError, ValueError):  # the parser rejects these bytes
            if _exceeds_field_count(cast(Descriptor, cls.DESCRIPTOR), data):
                raise InvalidParams(f"request: holds more than {MAX_MESSAGE_FIELDS} fields, the limit of this server")
    try:
        message = cls.FromString(data)
    except DecodeError:
        name = cls.DESCRIPTOR.full_name
        raise InvalidParams(f"request: is not a serialized {name}, or contains text that is not UTF-8") from None
    if _fields_with_times(cast(Descriptor, cls.DESCRIPTOR)):
        _check_times(message)
    return message


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


_TIME_RULES: Final = {
    "google.protobuf.Timestamp": "must be in the years 1 to 9999, with 0 to 999,999,999 nanoseconds",
    "google.protobuf.Duration": "must be at most 315,576,000,000 seconds, with nanoseconds below 10^9 of the same sign",
}
"""The rules of the types whose numbers have a range, as their .proto files state them."""


def _check_times(message: Any, path: str = "") -> None:
    """Raises InvalidParams, naming the field, for a time that breaks its rule."""
    for field in _fields_with_times(message.DESCRIPTOR):
        name, value = f"{path}{field.json_name}", getattr(message, field.name)
        if not field.is_repeated:
            found = (value,) if message.HasField(field.name) else ()
        else:
            found = value.values() if hasattr(value, "values") else value  # a map, or a list
        for one in found:
            rule = _TIME_RULES.get(one.DESCRIPTOR.full_name)
            if rule is None:
                _check_times(one, f"{name}.")
                continue
            try:
                one.ToJsonString()
            except ValueError:
                raise InvalidParams.field(name, rule) from None


@cache
def _fields_with_times(descriptor: Descriptor) -> tuple[FieldDescriptor, ...]:
    """The fields of a message that are times, or contain some."""
    return tuple(field for field in descriptor.fields if _has_times(field.message_type, frozenset()))


def _has_times(descriptor: Descriptor | None, outer: frozenset[str]) -> bool:
    if descriptor is None or descriptor.full_name in outer:
        return False
    inner = outer | {descriptor.full_name}
    return descriptor.full_name in _TIME_RULES or any(_has_times(one.message_type, inner) for one in descriptor.fields)
