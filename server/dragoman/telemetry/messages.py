"""Spans as bytes (opentelemetry/proto/trace/v1/trace.proto), written by hand.

With the SDK a span would cost several times what a request's own accounting does. What spans of one kind have in common
is made once; their ids and times are put before it, and what is told of one alone after it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from operator import itemgetter
from typing import Any, Final

from dragoman.core import frames
from dragoman.release import version

Attribute = str | int

_KINDS: Final = {"internal": 1, "server": 2, "client": 3, "consumer": 5}

_TIMES: Final = struct.Struct("<BQBQ").pack
"""start_time_unix_nano and end_time_unix_nano, each after its key."""

_ALONE: Final = frozenset(("dragoman.task", "dragoman.request", "dragoman.event"))
"""Attributes whose values are hardly ever met again."""


def span(
    name: str,
    kind: str,
    context: str,
    parent: str,
    seconds: float,
    ended: int,
    attributes: tuple[str, ...],
    values: tuple[Attribute, ...],
    error: str,
    link: str,
) -> bytes:
    """A Span that took `seconds`, and `ended` so many nanoseconds after the epoch. `context`, `parent` and `link` are
    trace contexts, the latter two empty for none. `attributes` are names; a value that is an empty text is left out."""
    alone, shared = _places(attributes)
    # trace_id, span_id and parent_span_id, each after its key and its length
    ids = f"0a10{context[3:35]}1208{context[36:52]}{'2208' if parent else ''}{parent[36:52]}"
    times = _TIMES(0x39, ended - int(seconds * 1e9), 0x41, ended)
    written = bytes.fromhex(ids) + times + _common(name, kind, attributes, shared(values))
    for place in alone:
        written += _told(attributes[place], values[place])
    if link:
        written += frames.frame(13, bytes.fromhex(f"0a10{link[3:35]}1208{link[36:52]}"))
    if error:
        written += frames.frame(15, _text(2, error) + frames.integer(3, 2))
    return written


@lru_cache(256)
def _places(attributes: tuple[str, ...]) -> tuple[list[int], Callable[[tuple[Attribute, ...]], Any]]:
    """Where among attributes those of one span alone are, and what takes out the values of the others."""
    alone = [place for place, name in enumerate(attributes) if name in _ALONE]
    others = [place for place, name in enumerate(attributes) if name not in _ALONE]
    return alone, itemgetter(*others) if others else lambda values: ()


@lru_cache(4096)
def _common(name: str, kind: str, attributes: tuple[str, ...], values: tuple[Attribute, ...] | Attribute) -> bytes:
    """The fields that many spans share. `values`: those of the attributes that are not of one span alone."""
    shared = [each for each in attributes if each not in _ALONE]
    told = map(_told, shared, values if isinstance(values, tuple) else (values,))
    return b"".join([_text(5, name), frames.integer(6, _KINDS[kind]), *told])


def _told(name: str, value: Attribute) -> bytes:
    """One of a span's attributes; nothing for an empty text."""
    if value == "":
        return b""
    if isinstance(value, int):
        return frames.frame(9, _attribute(name, value))
    text = value.encode(errors="replace")
    return _before(name, len(text)) + text


@lru_cache(4096)
def _before(name: str, length: int) -> bytes:
    """What an attribute says before its text of so many bytes."""
    return frames.frame(9, _attribute(name, "-" * length))[:-length]


def _attribute(name: str, value: Attribute) -> bytes:
    """A KeyValue."""
    told = _text(1, value) if isinstance(value, str) else frames.varint(3 << 3) + frames.varint(value)
    return _text(1, name) + frames.frame(2, told)


def _text(number: int, value: str) -> bytes:
    """A string field; nothing at all for an empty one. What is no Unicode is told as far as it is: who sends spans can
    refuse nothing any more."""
    return frames.frame(number, value.encode(errors="replace")) if value else b""


def resource(attributes: Mapping[str, str]) -> bytes:
    """What a request says of the process that sends it, to stand before its spans."""
    return frames.frame(1, b"".join(frames.frame(1, _attribute(*each)) for each in attributes.items()))


def request(head: bytes, spans: Iterable[bytes]) -> bytes:
    """An ExportTraceServiceRequest."""
    body = b"".join([_SCOPE, *(frames.frame(2, each) for each in spans)])
    return frames.frame(1, head + frames.frame(2, body))


_SCOPE: Final = frames.frame(1, _text(1, "dragoman") + _text(2, version()))
