"""Spans: made on the way of requests, and written at once, so that what waits to be sent is bytes, of which the
collection of garbage knows nothing.

A caller that names a trace (`traceparent`) says whether it is recorded; of traces that begin here, a share is, by its
id, so that every server decides alike.
"""

from __future__ import annotations

import time
from collections import deque
from typing import Final

from dragoman.core import trace
from dragoman.entropy import ENTROPY
from dragoman.ports.tracing import Kind, Span
from dragoman.telemetry import libraries, messages

QUEUE: Final = 16_384
"""Spans that wait to be sent; what is past that is dropped, and counted."""


class Recorded:
    """A span of a trace that is recorded."""

    recorded: Final = True

    __slots__ = ("_attributes", "_began", "_kind", "_link", "_parent", "_recorder", "context", "name")

    def __init__(
        self,
        recorder: Recorder,
        name: str,
        kind: Kind,
        context: str,
        parent: str,
        link: str,
        attributes: dict[str, messages.Attribute],
    ) -> None:
        """`parent` is empty for one that begins a trace."""
        self._recorder: Recorder | None = recorder
        self.name = name
        self._kind = kind
        self.context = context
        self._parent = parent
        self._link = link
        self._attributes = attributes
        self._began = time.time_ns()

    def end(self, error: str = "", **attributes: messages.Attribute) -> None:
        """It is over."""
        recorder, self._recorder = self._recorder, None
        if recorder is not None and recorder.has_room():
            ended = time.time_ns()
            told = self._attributes | attributes
            recorder.add(
                messages.span(
                    self.name, self._kind, self.context, self._parent, self._link, self._began, ended, error, told
                )
            )


class Silent:
    """A span of a trace that is not recorded: hands on whose it is, and that nobody wants it."""

    recorded: Final = False

    __slots__ = ("context", "name")

    def __init__(self, name: str, context: str) -> None:
        self.name = name
        self.context = context

    def end(self, error: str = "", **attributes: messages.Attribute) -> None:
        """Nothing."""


class Recorder:
    """Implements `dragoman.ports.tracing.Tracer`. `take` gives what was recorded."""

    def __init__(self, share: float = 1.0) -> None:
        """`share`: of the traces that begin here, from 0 to 1."""
        self._below = round(share * 2**64)
        self._queue: deque[bytes] = deque()
        self.recorded = 0
        self.dropped = 0

    def begin(self, name: str, kind: Kind, parent: str, *, link: str = "", **attributes: messages.Attribute) -> Span:
        if not parent:
            text = ENTROPY.take().hex()
            recorded = int(text[16:], 16) < self._below
            context = trace.written(text, text[:16], recorded=recorded)  # each other span of the trace has its own
        elif recorded := trace.is_recorded(parent):
            context = trace.written(parent[3:35], ENTROPY.take().hex()[:16], recorded=True)
        else:
            context = parent
        return Recorded(self, name, kind, context, parent, link, attributes) if recorded else Silent(name, context)

    def enter(self, span: Span) -> None:
        trace.CURRENT.set(span.context)
        if span.recorded:
            libraries.attach(span.context)

    def has_room(self) -> bool:
        """Whether another span can wait; counts it as dropped if not."""
        if len(self._queue) < QUEUE:
            return True
        self.dropped += 1
        return False

    def add(self, span: bytes) -> None:
        """A span is over."""
        self.recorded += 1
        self._queue.append(span)

    def take(self, most: int) -> list[bytes]:
        """Up to so many spans that are over, and that nobody was given yet. From any thread, but from one only."""
        taken: list[bytes] = []
        while self._queue and len(taken) < most:
            taken.append(self._queue.popleft())
        return taken
