"""What the runtime and the bindings need to be traced.

A span is what somebody did, in a trace: it is told once it is over. Until then there is only its trace context, which
is handed on, so that what follows from it belongs to it.
"""

from __future__ import annotations

from typing import Literal, Protocol

SpanKind = Literal["server", "client", "consumer", "internal"]


class Tracer(Protocol):
    """Records spans. Costs the recording only; sends are elsewhere."""

    def start_span(self, parent: str) -> str:
        """The trace context of a span that begins now, under the one of a trace context; without one it begins a trace.
        `dragoman.core.trace.is_recorded` says whether anybody will see it."""
        ...

    def activate(self, context: str) -> None:
        """What the present asyncio task does from now on belongs to the span, also for libraries that know of traces by
        themselves. Only for a trace that is recorded; others are known to `dragoman.core.trace.CURRENT_TRACE` alone."""
        ...

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
        """A span of a trace that is recorded is over now. May be called from any thread.

        `seconds`: how long it took. `attributes`: their names; a value that is an empty text is left out.
        `error`: why it failed, in a few words without content of the caller's; empty when it did not. `link`: the trace
        context of another span that it has to do with.
        """
        ...
