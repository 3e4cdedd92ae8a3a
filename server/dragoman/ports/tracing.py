"""The port of tracing: spans and their trace contexts.

A span is recorded when it ends. Until then only its trace context exists, which is passed on so that later spans become
its children.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, Protocol


class Span(NamedTuple):
    """A span that ends now, of a recorded trace. `parent` and `link` may be empty."""

    name: str
    kind: Literal["server", "client", "consumer", "internal"]
    context: str
    parent: str
    seconds: float  # its duration
    attributes: tuple[str, ...]  # the names of `values`
    values: tuple[str | int, ...]  # empty texts are left out
    error: str = ""  # why it failed, in a few words without content of the caller's; empty on success
    link: str = ""  # the trace context of a related span


class Tracer(Protocol):
    """Records spans, which are exported elsewhere."""

    def start_span(self, parent: str) -> str:
        """The trace context of a new span under `parent`; empty: of a new trace, recorded or not (`is_recorded`)."""

    def activate(self, context: str) -> None:
        """Makes the span of a recorded trace current for this asyncio task, also for libraries with own tracing."""

    def record_span(self, span: Span) -> None:
        """May be called from any thread."""
