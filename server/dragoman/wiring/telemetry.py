"""Metrics and tracing of a server, collected from its components.

Only here adapters of `dragoman.telemetry` have names.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dragoman.bindings.request_log import RequestMetrics
from dragoman.core.counters import MetricFamily, MetricSample, counter, gauge
from dragoman.release import version
from dragoman.runtime import Runtime
from dragoman.settings.settings import Settings
from dragoman.settings.types import parse_headers
from dragoman.telemetry.otlp import SpanExporter, otlp_transport, resource_attributes
from dragoman.telemetry.prometheus import Exposition
from dragoman.telemetry.spans import SpanRecorder

if TYPE_CHECKING:
    pass


async def start_tracing(stack: AsyncExitStack, settings: Settings) -> Tracing | None:
    """Starts sending traces until the stack closes; None without a collector."""
    if not settings.otlp:
        return None
    pass  # most servers need none of it

    headers = parse_headers(settings.otlp_headers.get_secret_value())
    return await stack.enter_async_context(open_tracing(settings.otlp, headers, settings.trace_share))


class MetricsEndpoint:
    """The metrics of one server; `read` formats them."""

    def __init__(
        self,
        settings: Settings,
        runtime: Runtime,
        request_metrics: RequestMetrics,
        draining: asyncio.Event,
        tracing: Tracing | None,
    ) -> None:
        about = (version(), "postgresql" if settings.is_shared else "sqlite")
        help = "The version of this server, and the kind of its store."
        self._build_info = MetricFamily("build_info", "gauge", help, ("version", "store"), (MetricSample(about, 1),))
        self._runtime = runtime
        self._request_metrics = request_metrics
        self._draining = draining
        self._tracing = tracing
        self._exposition: Exposition | None = None

    async def families(self) -> list[MetricFamily]:
        """The current values of all metrics."""
        draining = gauge("draining", "Whether the server is about to stop.", self._draining.is_set())
        traces = self._tracing.families() if self._tracing else ()
        return [
            self._build_info,
            draining,
            *traces,
            *self._request_metrics.families(),
            *await self._runtime.metrics.families(),
        ]

    async def read(self, accept: str = "") -> tuple[bytes, str]:
        """The metrics for an `Accept` header, and their media type."""
        self._exposition = self._exposition or Exposition()
        return self._exposition.render(await self.families(), accept)


@dataclass(frozen=True, slots=True)
class Tracing:
    """The running tracing: recorder and exporter."""

    tracer: SpanRecorder
    exporter: SpanExporter

    def families(self) -> Iterator[MetricFamily]:
        """The metrics of the exporter."""
        yield counter("spans", "Spans recorded.", self.tracer.recorded)
        yield counter("spans_sent", "Spans that the collector took.", self.exporter.sent)
        yield counter("spans_dropped", "Spans for which there was no room.", self.tracer.dropped)
        yield gauge("traces_up", "Whether the collector took what it was sent last.", not self.exporter.is_failing)


@asynccontextmanager
async def open_tracing(
    url: str, headers: Mapping[str, str], share: float, *, role: str = "dragoman"
) -> AsyncIterator[Tracing]:
    """Records and exports spans while the block runs. `role` is the `service.name`."""
    recorder = SpanRecorder(share)
    exporter = SpanExporter(recorder, otlp_transport(url, headers), resource_attributes(role))
    try:
        yield Tracing(recorder, exporter)
    finally:
        await asyncio.to_thread(exporter.close)
