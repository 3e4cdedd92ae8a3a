"""The port of tracing: spans and their trace contexts.

A span is recorded when it ends. Until then only its trace context exists, which is passed on so that later spans become
its children.
"""

from __future__ import annotations

from typing import Literal, Protocol

SpanKind = Literal["server", "client", "consumer", "internal"]


class Tracer(Protocol):
    """Records spans. The call only records; spans are exported elsewhere."""

    def start_span(self, parent: str) -> str:
        """The trace context of a new span under `parent`; without a parent it starts a trace.

        `dragoman.core.trace.is_recorded` says whether the trace is recorded.
        """

    def activate(self, context: str) -> None:
        """Makes the span current for this asyncio task, also for libraries with their own tracing.

        Only for recorded traces; the context of others is only in `dragoman.core.trace.CURRENT_TRACE`.
        """

    def record_span(
        self,
        name: str,
        kind: SpanKind,
        context: str,
        parent: str,
        seconds: float,
        attributes: tuple[str, ...],
        values: tuple[str | int, ...],
        error: str = "",
        link: str = "",
    ) -> None:
        """Records a span that ends now, of a recorded trace. May be called from any thread.

        `seconds`: its duration. `attributes`: the names of `values`; empty texts are left out. `error`: why it failed,
        in a few words without content of the caller's; empty on success. `link`: the trace context of a related span.
        """
