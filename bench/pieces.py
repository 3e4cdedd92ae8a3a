"""What the pieces of telemetry cost a send, one by one: CPU time of a thread, the least of many goes.

Ratios of rates say what counts, and need a quiet machine; these figures hardly mind who else is at work.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextvars import copy_context
from typing import Final

from bench.rows import Key
from bench.run import Run
from bench.sections import WATCHED
from bench.servers import OURS
from dragoman.bindings.request_log import GRPC_LABEL, RequestLogEntry, RequestMetrics
from dragoman.core import trace
from dragoman.core.counters import Histogram
from dragoman.telemetry.spans import SpanRecorder

GOES: Final = 60
CALLS: Final = 2000

METHOD: Final = "lf.a2a.v1.A2AService/SendMessage"
TASK: Final = "01a1ffb1-fc95-7f79-839e-d0636d382268"
ENVELOPE: Final = b"\x12\x0c\x0a\x0atext/plain"


def least(piece: Callable[[], object], calls: int = CALLS) -> float:
    """Microseconds of one call."""
    took = []
    for _ in range(GOES):
        began = time.thread_time()
        for _ in range(calls):
            piece()
        took.append((time.thread_time() - began) / calls * 1e6)
    return min(took)


def pieces() -> dict[str, float]:
    """Microseconds of each, by what a table calls it. Leaves no trace to whoever asks."""
    log = logging.getLogger("dragoman.access")
    before = log.level
    log.setLevel(logging.WARNING)  # as it is unless lines are JSON
    try:
        return copy_context().run(_pieces)
    finally:
        log.setLevel(before)


def _pieces() -> dict[str, float]:
    request_metrics, spread, recorder = RequestMetrics(), Histogram(), SpanRecorder()

    def counted() -> None:
        RequestLogEntry(request_metrics, GRPC_LABEL, METHOD, "1.0").finish("OK")

    def server() -> str:
        access = RequestLogEntry(traced, GRPC_LABEL, METHOD, "1.0")
        access.start_trace("")
        access.finish("OK")
        return trace.CURRENT_TRACE.get()

    def declined() -> None:
        access = RequestLogEntry(none, GRPC_LABEL, METHOD, "1.0")
        access.start_trace("")
        access.finish("OK")

    def run() -> None:
        parent = trace.trace_of(stamped)
        context, began = recorder.start_span(parent), time.perf_counter()
        if not trace.is_recorded(context):
            return
        recorder.activate(context)
        about = ("dragoman.agent", "dragoman.task", "dragoman.attempt", "dragoman.state")
        took = time.perf_counter() - began
        recorder.record_span("run echo", "consumer", context, parent, took, about, ("echo", TASK, 1, "COMPLETED"))

    def emptied(piece: Callable[[], object]) -> Callable[[], None]:
        def both() -> None:
            piece()
            recorder.take(1)

        return both

    traced, none = RequestMetrics(recorder), RequestMetrics(SpanRecorder(0.0))
    stamped = trace.add_trace(ENVELOPE, server())
    recorder.take(1)
    return {
        "a request, counted and not traced": least(counted),
        "one value more in a histogram": least(lambda: spread.add(0.003)),
        "a request of a trace that is not recorded": least(declined),
        "a request, counted, traced and written": least(emptied(server)),
        "a run, traced and written": least(emptied(run)),
    }


def measure(run: Run) -> None:
    """Each once."""
    for name, cost in pieces().items():
        run.figure(Key(WATCHED, name, OURS), 0, cost, "us", text=f"{cost:.2f} µs")
