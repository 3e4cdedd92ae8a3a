"""How many requests there were, of which kind, how they ended and how long they took; and which streams are open.

One for all bindings of a server. What a stranger may make up (paths, names of methods) is no part of it: what nothing
serves counts as `other`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from dragoman.core.counters import Histogram, MetricFamily, MetricSample
from dragoman.ports.tracing import Tracer

GRPC: Final = "grpc"
REST: Final = "rest"
JSONRPC: Final = "jsonrpc"
WEBSOCKET: Final = "websocket"
PAGE: Final = "page"
"""Bindings. `page` is what is no operation: cards, health, descriptions."""

OTHER: Final = "other"


@dataclass(slots=True)
class Kind:
    """Requests of one kind."""

    codes: dict[object, int] = field(default_factory=dict)
    """By how they ended: a status of HTTP or gRPC, a code of JSON-RPC."""
    seconds: Histogram = field(default_factory=Histogram)


class Tally:
    """Counts requests, and knows who traces them."""

    def __init__(self, tracer: Tracer | None = None) -> None:
        self.tracer = tracer
        self._kinds: dict[tuple[str, str, str], Kind] = {}
        self._streams: list[tuple[str, Callable[[], int]]] = []

    def count(self, binding: str, method: str, dialect: str, code: object, seconds: float) -> None:
        """One request has ended."""
        kind = self._kinds.get((binding, method, dialect))
        if kind is None:
            kind = self._kinds[binding, method, dialect] = Kind()
        kind.codes[code] = kind.codes.get(code, 0) + 1
        kind.seconds.add(seconds)

    def watch(self, binding: str, streams: Callable[[], int]) -> None:
        """`streams` gives how many are open now."""
        self._streams.append((binding, streams))

    def families(self) -> Iterator[MetricFamily]:
        """What was counted so far."""
        kinds = sorted(self._kinds.items())
        yield MetricFamily(
            "requests",
            "counter",
            "Requests answered. What nothing serves has the method `other`.",
            ("binding", "method", "dialect", "code"),
            [MetricSample((*name, str(code)), count) for name, kind in kinds for code, count in kind.codes.items()],
        )
        yield MetricFamily(
            "request_duration_seconds",
            "histogram",
            "From the first look at a request to the end of its answer; a stream's is how long it was open.",
            ("binding", "method", "dialect"),
            [MetricSample(name, kind.seconds) for name, kind in kinds],
        )
        yield MetricFamily(
            "open_streams",
            "gauge",
            "Streams and connections of WebSockets that are open.",
            ("binding",),
            [MetricSample((binding,), streams()) for binding, streams in self._streams],
        )
