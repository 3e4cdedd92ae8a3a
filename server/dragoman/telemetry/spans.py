"""Span recorder: requests record tuples, the exporter encodes them later in batches.

Encoding within the request would cost a multiple. A `traceparent` from the caller decides whether its trace is
recorded. Traces that start here are sampled by trace id, so all servers decide alike.
"""

from __future__ import annotations

import struct
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import cache, lru_cache
from operator import itemgetter
from typing import Any, Final

from dragoman.core import trace
from dragoman.core.task import frames
from dragoman.ids import IDS
from dragoman.ports.tracing import Span
from dragoman.version import __version__

MAX_QUEUED_SPANS: Final = 16_384  # spans that can wait for export; further spans are dropped and counted
EXPORT_BATCH_SIZE: Final = 512  # spans per export request


class SpanRecorder:
    """Implements `dragoman.ports.tracing.Tracer`; `take` returns the recorded spans."""

    def __init__(self, share: float = 1.0, max_queued: int = MAX_QUEUED_SPANS) -> None:
        """`share`: of the traces that start here, 0 to 1, to record. `max_queued`: spans that can wait for export."""
        self._max_queued = max_queued
        self._sample_threshold = round(share * 2**64)
        self._queue: deque[tuple[Any, ...]] = deque()
        self.batch_ready = threading.Event()  # set when EXPORT_BATCH_SIZE spans are queued
        self.recorded = 0
        self.dropped = 0

    def start_span(self, parent: str) -> str:
        # Same format as in core.trace, inlined: this runs twice per request.
        if not parent:
            random = IDS.random_bytes()
            trace_id = random.hex()
            recorded = int.from_bytes(random[8:]) < self._sample_threshold
            return f"00-{trace_id}-{trace_id[:16]}-{'01' if recorded else '00'}"
        if parent[-1] != "1":
            return parent
        return f"{parent[:36]}{IDS.random_bytes().hex()[:16]}-01"

    def activate(self, context: str) -> None:
        trace.CURRENT_TRACE.set(context)
        if "opentelemetry.trace" in sys.modules:  # also current there, for the rest of the asyncio task
            # This import may wait for another thread that is importing it.
            from opentelemetry import context as contexts
            from opentelemetry import trace as api

            contexts.attach(api.set_span_in_context(_remote_span_class(api)(context)))

    def record_span(self, span: Span) -> None:
        queued = len(self._queue)
        if queued >= self._max_queued:
            self.dropped += 1
            return
        # A plain tuple of strings and numbers: the garbage collector untracks it after its first pass.
        self._queue.append((*span, time.time_ns()))
        self.recorded += 1
        if queued + 1 == EXPORT_BATCH_SIZE:
            self.batch_ready.set()

    @property
    def queued(self) -> int:
        """The number of spans that wait for export."""
        return len(self._queue)

    def take(self, max_spans: int) -> list[bytes]:
        """Removes and encodes up to `max_spans` finished spans. Call from one thread only, any one."""
        ended = [self._queue.popleft() for _ in range(min(max_spans, len(self._queue)))]
        return [encode_span(Span._make(span), ended_at) for *span, ended_at in ended]


@cache
def _remote_span_class(api: Any) -> Any:
    """A span class that parses its trace context only when a child is created."""
    flags = api.TraceFlags(api.TraceFlags.SAMPLED)

    class RemoteSpan(api.NonRecordingSpan):  # type: ignore[misc]  # of an optional module
        def __init__(self, context: str) -> None:
            self._context = context

        def get_span_context(self) -> Any:
            trace_id, span_id = int(self._context[3:35], 16), int(self._context[36:52], 16)
            return api.SpanContext(trace_id, span_id, is_remote=True, trace_flags=flags)

    return RemoteSpan


AttributeValue = str | int

_SPAN_KINDS: Final = {"internal": 1, "server": 2, "client": 3, "consumer": 5}

_TIME_FIELDS: Final = struct.Struct("<BQBQ").pack  # start_time_unix_nano and end_time_unix_nano, each after its key

_UNCACHED_ATTRIBUTES: Final = frozenset(("dragoman.task", "dragoman.request", "dragoman.event"))
"""Attributes with values that rarely repeat."""


def encode_span(ended: Span, ended_at_nanos: int) -> bytes:
    """Encodes an OTLP Span that ended `ended_at_nanos` after the epoch."""
    name, kind, context, parent, seconds, attributes, values, error, link = ended
    uncached, cached_values = _split_attributes(attributes)
    # trace_id, span_id and parent_span_id, each with its key and length
    ids = f"0a10{context[3:35]}1208{context[36:52]}{'2208' if parent else ''}{parent[36:52]}"
    times = _TIME_FIELDS(0x39, ended_at_nanos - int(seconds * 1e9), 0x41, ended_at_nanos)
    span = bytes.fromhex(ids) + times + _cached_fields(name, kind, attributes, cached_values(values))
    for index in uncached:
        span += _attribute_field(attributes[index], values[index])
    if link:
        span += frames.frame(13, bytes.fromhex(f"0a10{link[3:35]}1208{link[36:52]}"))
    if error:
        span += frames.frame(15, _string(2, error) + frames.integer(3, 2))
    return span


@lru_cache(256)
def _split_attributes(attributes: tuple[str, ...]) -> tuple[list[int], Callable[[tuple[AttributeValue, ...]], Any]]:
    """Indexes of the uncached attributes, and a getter for the values of the others."""
    uncached = [index for index, name in enumerate(attributes) if name in _UNCACHED_ATTRIBUTES]
    cached = [index for index, name in enumerate(attributes) if name not in _UNCACHED_ATTRIBUTES]
    return uncached, itemgetter(*cached) if cached else lambda values: ()


@lru_cache(4096)
def _cached_fields(
    name: str, kind: str, attributes: tuple[str, ...], values: tuple[AttributeValue, ...] | AttributeValue
) -> bytes:
    """The cacheable fields of a span. `values`: those of the attributes not in _UNCACHED_ATTRIBUTES."""
    cached = [attribute for attribute in attributes if attribute not in _UNCACHED_ATTRIBUTES]
    fields = map(_attribute_field, cached, values if isinstance(values, tuple) else (values,))
    return b"".join([_string(5, name), frames.integer(6, _SPAN_KINDS[kind]), *fields])


def _attribute_field(name: str, value: AttributeValue) -> bytes:
    """Encodes one attribute; empty for an empty string."""
    if value == "":
        return b""
    if isinstance(value, int):
        return frames.frame(9, _key_value(name, value))
    data = value.encode(errors="replace")
    return _attribute_prefix(name, len(data)) + data


@lru_cache(4096)
def _attribute_prefix(name: str, length: int) -> bytes:
    """The encoded attribute up to its string value of `length` bytes."""
    return frames.frame(9, _key_value(name, "-" * length))[:-length]


def _key_value(name: str, value: AttributeValue) -> bytes:
    any_value = _string(1, value) if isinstance(value, str) else frames.varint(3 << 3) + frames.varint(value)
    return _string(1, name) + frames.frame(2, any_value)


def _string(number: int, value: str) -> bytes:
    """Encodes a string field; empty for an empty string. Lone surrogates are replaced: the request is over."""
    return frames.frame(number, value.encode(errors="replace")) if value else b""


def encode_resource(attributes: Mapping[str, str]) -> bytes:
    return frames.frame(1, b"".join(frames.frame(1, _key_value(*each)) for each in attributes.items()))


def encode_export_request(resource: bytes, spans: Iterable[bytes]) -> bytes:
    body = b"".join([_SCOPE, *(frames.frame(2, each) for each in spans)])
    return frames.frame(1, resource + frames.frame(2, body))


_SCOPE: Final = frames.frame(1, _string(1, "dragoman") + _string(2, __version__))
