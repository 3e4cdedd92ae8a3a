"""Having traces sent: where to, as the settings of a server or the options of a worker say.

Only here the adapters that make and send spans have names.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from dragoman.core.counters import MetricFamily, counter, gauge
from dragoman.telemetry.otlp import SpanExporter, otlp_transport, resource_attributes
from dragoman.telemetry.spans import SpanRecorder


@dataclass(frozen=True, slots=True)
class Tracing:
    """Spans are recorded, and on their way."""

    tracer: SpanRecorder
    exporter: SpanExporter

    def families(self) -> Iterator[MetricFamily]:
        """How that goes, in numbers."""
        yield counter("spans", "Spans recorded.", self.tracer.recorded)
        yield counter("spans_sent", "Spans that the collector took.", self.exporter.sent)
        yield counter("spans_dropped", "Spans for which there was no room.", self.tracer.dropped)
        yield gauge("traces_up", "Whether the collector took what it was sent last.", not self.exporter.is_failing)


@asynccontextmanager
async def open_tracing(
    url: str, headers: Mapping[str, str], share: float, *, role: str = "dragoman"
) -> AsyncIterator[Tracing]:
    """Records and sends spans for as long as the block runs. `role` is this process's `service.name`."""
    recorder = SpanRecorder(share)
    exporter = SpanExporter(recorder, otlp_transport(url, headers), resource_attributes(role))
    try:
        yield Tracing(recorder, exporter)
    finally:
        await asyncio.to_thread(exporter.close)
