"""How OpenTelemetry's own API is told which span is the present one: the libraries of agents make children of that.

Only where something has loaded it, for with it a run costs some microseconds more.
"""

from __future__ import annotations

import sys
from functools import cache
from typing import Any


def attach(context: str) -> None:
    """Makes a recorded trace context (of ours) the present one, for the rest of the present asyncio task."""
    if "opentelemetry.trace" in sys.modules:
        # To import it is to wait for who is loading it just now, in another thread.
        from opentelemetry import context as contexts
        from opentelemetry import trace as api

        contexts.attach(api.set_span_in_context(_handed(api)(context)))


@cache
def _handed(api: Any) -> Any:
    """The kind of span that takes its text apart only once somebody makes a child of it."""
    flags = api.TraceFlags(api.TraceFlags.SAMPLED)

    class Handed(api.NonRecordingSpan):  # type: ignore[misc]  # of a module that need not be there
        def __init__(self, context: str) -> None:
            self._text = context

        def get_span_context(self) -> Any:
            trace, span = int(self._text[3:35], 16), int(self._text[36:52], 16)
            return api.SpanContext(trace, span, is_remote=True, trace_flags=flags)

    return Handed
