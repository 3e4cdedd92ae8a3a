"""Spans: made on the way of requests, so of little more than two looks at the clock and a place in a queue.

A caller that names a trace (`traceparent`) says whether it is recorded; of traces that begin here, a share is, by its
id, so that every server decides alike.
"""

from __future__ import annotations

import time
from collections import deque
from contextlib import AbstractContextManager
from typing import Final

from dragoman.core.trace import CURRENT, Context, parse
from dragoman.entropy import ENTROPY
from dragoman.ports.tracing import Kind, Span
from dragoman.telemetry import libraries

QUEUE: Final = 16_384
"""Spans that wait to be sent; what is past that is dropped, and counted."""

Attributes = dict[str, str | int]


class Recorded:
    """A span of a trace that is recorded."""

    recorded: Final = True

    __slots__ = (
        "_recorder", "attributes", "began", "context", "ended", "error", "id", "kind", "link", "name", "parent", "trace"
    )  # fmt: skip

    def __init__(
        self, recorder: Recorder, name: str, kind: Kind, parent: Context, link: Context | None, attributes: Attributes
    ) -> None:
        """`parent` has no span for one that begins a trace."""
        self._recorder = recorder
        self.name = name
        self.kind = kind
        self.trace = parent.trace
        self.parent = parent.span
        self.id = ENTROPY.take()[:8]
        self.context = f"00-{parent.trace.hex()}-{self.id.hex()}-01"
        """What is handed on."""
        self.link = link
        self.attributes = attributes
        self.error = ""
        self.ended = 0
        self.began = time.time_ns()

    def end(self, error: str = "", **attributes: str | int) -> None:
        """It is over."""
        if self.ended:
            return
        self.ended = time.time_ns()
        self.error = error
        if attributes:
            self.attributes.update(attributes)
        self._recorder.add(self)


class Silent:
    """A span of a trace that is not recorded: hands on whose it is, and that nobody wants it."""

    recorded: Final = False

    __slots__ = ("context", "name")

    def __init__(self, name: str, context: str) -> None:
        self.name = name
        self.context = context

    def end(self, error: str = "", **attributes: str | int) -> None:
        """Nothing."""


class Within:
    """What runs inside belongs to a trace context. Half the price of a generator."""

    __slots__ = ("_detach", "_span", "_token")

    def __init__(self, span: Span) -> None:
        self._span = span

    def __enter__(self) -> None:
        self._token = CURRENT.set(self._span.context)
        self._detach = libraries.attach(self._span.context) if self._span.recorded else None

    def __exit__(self, *_: object) -> None:
        CURRENT.reset(self._token)
        if self._detach is not None:
            self._detach()


class Recorder:
    """Implements `dragoman.ports.tracing.Tracer`. `take` gives what was recorded."""

    def __init__(self, share: float = 1.0) -> None:
        """`share`: of the traces that begin here, from 0 to 1."""
        self._below = round(share * 2**64)
        self._queue: deque[Recorded] = deque()
        self.recorded = 0
        self.dropped = 0

    def begin(self, name: str, kind: Kind, parent: str, *, link: str = "", **attributes: str | int) -> Span:
        known = parse(parent) if parent else None
        if known is None:
            trace = ENTROPY.take()
            if int.from_bytes(trace[8:]) >= self._below:
                said = trace.hex()
                return Silent(name, f"00-{said}-{said[:16]}-00")  # of a span that nobody will ever see
            known = Context(trace, b"", recorded=True)
        elif not known.recorded:
            return Silent(name, str(known))
        return Recorded(self, name, kind, known, parse(link) if link else None, attributes)

    def within(self, span: Span) -> AbstractContextManager[None]:
        return Within(span)

    def add(self, span: Recorded) -> None:
        """A span is over."""
        if len(self._queue) >= QUEUE:
            self.dropped += 1
        else:
            self.recorded += 1
            self._queue.append(span)

    def take(self, most: int) -> list[Recorded]:
        """Up to so many spans that are over, and that nobody was given yet. From any thread, but from one only."""
        taken: list[Recorded] = []
        while self._queue and len(taken) < most:
            taken.append(self._queue.popleft())
        return taken
