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

_ALONE: Final = ("dragoman_task", "dragoman_event", "dragoman_request")
"""Attributes whose values are hardly ever met again."""

_ROOT: Final = struct.Struct("<2s16s2s8sBQBQ")
_CHILD: Final = struct.Struct("<2s16s2s8s2s8sBQBQ")
"""trace_id, span_id, parent_span_id, start_time_unix_nano, end_time_unix_nano; each after its key and its length."""


def span(
    name: str,
    kind: str,
    context: str,
    parent: str,
    link: str,
    times: tuple[int, int],
    error: str,
    attributes: dict[str, Attribute],
) -> bytes:
    """A Span. `context`, `parent` and `link` are trace contexts, the latter two empty for none; `times` are nanoseconds
    since the epoch. Takes from the attributes, whose names have `_` for a dot; an empty text is left out."""
    began, ended = times
    if parent:
        ids = bytes.fromhex(context[3:35] + context[36:52] + parent[36:52])
        head = _CHILD.pack(
            b"\x0a\x10", ids[:16], b"\x12\x08", ids[16:24], b"\x22\x08", ids[24:], 0x39, began, 0x41, ended
        )
    else:
        ids = bytes.fromhex(context[3:35] + context[36:52])
        head = _ROOT.pack(b"\x0a\x10", ids[:16], b"\x12\x08", ids[16:], 0x39, began, 0x41, ended)
    alone = [_told(each, attributes.pop(each)) for each in _ALONE if each in attributes]
    written = b"".join([head, _common(name, kind, *attributes, *attributes.values()), *alone])
    if link:
        ids = bytes.fromhex(link[3:35] + link[36:52])
        written += frames.frame(13, frames.frame(1, ids[:16]) + frames.frame(2, ids[16:]))
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
    return frames.frame(9, _attribute(name.replace("_", "."), value)) if value != "" else b""


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
