"""Spans as bytes (opentelemetry/proto/trace/v1/trace.proto), written by hand.

With the SDK a span would cost several times what a request's own accounting does. What spans of one kind have in common
is made once; their ids, their times and what is told of one alone are put before and after it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final

from dragoman.core import frames
from dragoman.release import version

Attribute = str | int

_KINDS: Final = {"internal": 1, "server": 2, "client": 3, "consumer": 5}

_TIMES: Final = struct.Struct("<BQBQ")
"""start_time_unix_nano and end_time_unix_nano, each after its key."""

_ALONE: Final = ("dragoman_task", "dragoman_request", "dragoman_event")
"""Attributes whose values are hardly ever met again."""

_SHORT: Final = 80
"""Characters of a value: with the names we use, all lengths around it fit one byte of a varint."""


def span(
    name: str,
    kind: str,
    context: str,
    parent: str,
    link: str,
    began: int,
    ended: int,
    error: str,
    attributes: dict[str, Attribute],
) -> bytes:
    """A Span. `context`, `parent` and `link` are trace contexts, the latter two empty for none; times are nanoseconds
    since the epoch. The names of attributes have `_` for a dot; an empty text is left out. Takes from the attributes
    those whose values are hardly ever met again."""
    # trace_id, span_id and parent_span_id, each after its key and its length
    ids = f"0a10{context[3:35]}1208{context[36:52]}{'2208' if parent else ''}{parent[36:52]}"
    written = bytes.fromhex(ids) + _TIMES.pack(0x39, began, 0x41, ended)
    for each in _ALONE:
        if each in attributes:
            written += _told(each, attributes.pop(each))
    written += _common(name, kind, *attributes, *attributes.values())
    if link:
        written += frames.frame(13, bytes.fromhex(f"0a10{link[3:35]}1208{link[36:52]}"))
    if error:
        written += frames.frame(15, frames.text(2, error) + frames.integer(3, 2))
    return written


@lru_cache(4096)
def _common(name: str, kind: str, *attributes: Attribute) -> bytes:
    """The fields that many spans share. `attributes`: the names, and then their values."""
    half = len(attributes) // 2
    told = [_told(str(each), value) for each, value in zip(attributes[:half], attributes[half:], strict=True)]
    return b"".join([frames.text(5, name), frames.integer(6, _KINDS[kind]), *told])


def _told(name: str, value: Attribute) -> bytes:
    """One of a span's attributes; nothing for an empty text."""
    if value == "":
        return b""
    dotted = name.replace("_", ".")
    if isinstance(value, str) and len(value) < _SHORT and value.isascii():  # the same in a quarter of the time
        own, named = len(value), len(dotted)
        return f"J{chr(own + named + 6)}\n{chr(named)}{dotted}\x12{chr(own + 2)}\n{chr(own)}{value}".encode()
    return frames.frame(9, _attribute(dotted, value))


def _attribute(name: str, value: Attribute) -> bytes:
    """A KeyValue."""
    told = frames.text(1, value) if isinstance(value, str) else frames.varint(3 << 3) + frames.varint(value)
    return frames.text(1, name) + frames.frame(2, told)


def resource(attributes: Mapping[str, str]) -> bytes:
    """What a request says of the process that sends it, to stand before its spans."""
    return frames.frame(1, b"".join(frames.frame(1, _attribute(*each)) for each in attributes.items()))


def request(head: bytes, spans: Iterable[bytes]) -> bytes:
    """An ExportTraceServiceRequest."""
    body = b"".join([_SCOPE, *(frames.frame(2, each) for each in spans)])
    return frames.frame(1, head + frames.frame(2, body))


_SCOPE: Final = frames.frame(1, frames.text(1, "dragoman") + frames.text(2, version()))
