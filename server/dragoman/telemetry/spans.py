"""Spans: made on the way of requests, and written later, many at a time, by who sends them: in between the code of a
request that costs a multiple.

A caller that names a trace (`traceparent`) says whether it is recorded; of traces that begin here, a share is, by its
id, so that every server decides alike.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from dragoman.core import trace
from dragoman.entropy import ENTROPY
from dragoman.ports.tracing import Kind
from dragoman.telemetry import libraries, messages

QUEUE: Final = 16_384
"""Spans that wait to be sent; what is past that is dropped, and counted."""

LOT: Final = 512
"""Spans that are enough to be sent."""


class Recorder:
    """Implements `dragoman.ports.tracing.Tracer`. `take` gives what was recorded."""

    def __init__(self, share: float = 1.0) -> None:
        """`share`: of the traces that begin here, from 0 to 1."""
        self._below = round(share * 2**64)
        self._queue: deque[tuple[Any, ...]] = deque()
        self.enough: Callable[[], None] = lambda: None
        """Called when LOT of them wait."""
        self.recorded = 0
        self.dropped = 0

    def begin(self, parent: str) -> str:
        # As `trace.written` and `trace.is_recorded` have it: what is done twice in each request does without calls.
        if not parent:
            ids = ENTROPY.take()
            text = ids.hex()
            recorded = int.from_bytes(ids[8:]) < self._below
            return f"00-{text}-{text[:16]}-{'01' if recorded else '00'}"
        if parent[-1] != "1":
            return parent
        return f"{parent[:36]}{ENTROPY.take().hex()[:16]}-01"

    def enter(self, context: str) -> None:
        trace.CURRENT.set(context)
        libraries.attach(context)

    def record(
        self,
        name: str,
        kind: Kind,
        context: str,
        parent: str,
        seconds: float,
        attributes: tuple[str, ...],
        values: tuple[str | int, ...],
        error: str = "",
        link: str = "",
    ) -> None:
        waiting = len(self._queue)
        if waiting >= QUEUE:
            self.dropped += 1
            return
        # A tuple of texts and numbers: after a first look the collection of garbage passes over those.
        self._queue.append((name, kind, context, parent, seconds, time.time_ns(), attributes, values, error, link))
        self.recorded += 1
        if waiting + 1 == LOT:
            self.enough()

    @property
    def waiting(self) -> int:
        """Spans that are over, and that nobody was given yet."""
        return len(self._queue)

    def take(self, most: int) -> list[bytes]:
        """Up to so many spans that are over, and that nobody was given yet. From any thread, but from one only."""
        return [messages.span(*self._queue.popleft()) for _ in range(min(most, len(self._queue)))]
