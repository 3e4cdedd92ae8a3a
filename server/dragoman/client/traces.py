"""Which trace a run belongs to (W3C Trace Context): the one that its caller is in, else a new one."""

from __future__ import annotations

import os
import sys
from typing import Any, Final

from dragoman.core import trace

VARIABLE: Final = "TRACEPARENT"
"""The environment variable by which one program tells another which trace it is in."""


def current() -> str:
    """A `traceparent` for a run.

    The first there is of: the turn of an agent that makes this call, in our own server; OpenTelemetry's current span,
    if its API is loaded; the environment variable TRACEPARENT; a new trace.
    """
    found = trace.CURRENT.get() or _opentelemetry()
    found = found or trace.read(os.environ.get(VARIABLE, "").strip())
    return found or trace.written(os.urandom(16).hex(), os.urandom(8).hex(), recorded=True)


def _opentelemetry() -> str:
    api: Any = sys.modules.get("opentelemetry.trace")  # who does not use it need not have it
    if api is None:
        return ""
    span = api.get_current_span().get_span_context()
    if not span.is_valid:
        return ""
    return trace.written(f"{span.trace_id:032x}", f"{span.span_id:016x}", recorded=bool(span.trace_flags & 1))
