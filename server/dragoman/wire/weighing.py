"""How much a serialized message holds, before it is made: three million parts of three bytes are nine megabytes on the
wire, and a gigabyte in memory.

Only messages that could hold too much are looked at, and only up to the limit: a field is jumped over by its length.
"""

from __future__ import annotations

from functools import cache
from typing import Final

from google.protobuf.descriptor import Descriptor

from dragoman.core import frames
from dragoman.core.errors import InvalidParams
from dragoman.core.limits import VALUES

MOST: Final = 4 * VALUES
"""Fields of a message, in all its messages: an entry of an object is three, and its value one more."""


def check(descriptor: Descriptor, data: bytes) -> None:
    """Raises InvalidParams for a message that holds more than MOST fields. What is no message is left to its parser."""
    if len(data) <= MOST:  # a field with a length has two bytes at least
        return
    try:
        if _exceeds(descriptor, data):
            raise InvalidParams(f"request: holds more than {MOST} fields; at most so many are accepted")
    except (IndexError, ValueError):
        return


def _exceeds(descriptor: Descriptor, data: bytes) -> bool:
    count, left = 0, [(_messages(descriptor), data)]
    while left:
        inner, some = left.pop()
        at, end = 0, len(some)
        while at < end:
            key = some[at]
            at += 1
            if key > 0x7F:
                key, at = frames.read_varint(some, at - 1)
            kind = key & 7
            if kind == 2:
                length = some[at]
                at += 1
                if length > 0x7F:
                    length, at = frames.read_varint(some, at - 1)
                count += 1
                if count > MOST:
                    return True
                if length and key >> 3 in inner:
                    left.append((_messages(inner[key >> 3]), some[at : at + length]))
                at += length
            elif kind == 0:
                while some[at] > 0x7F:
                    at += 1
                at += 1
            elif kind in _WIDTHS:
                at += _WIDTHS[kind]
            elif kind == 3:
                at = frames.after_group(some, at)
            else:
                return False  # its parser refuses it
    return False


_WIDTHS: Final = {1: 8, 5: 4}


@cache
def _messages(descriptor: Descriptor) -> dict[int, Descriptor]:
    """The fields of a message that are messages themselves, by number."""
    return {field.number: field.message_type for field in descriptor.fields if field.message_type is not None}
