"""Metrics and tracing of a server: Prometheus exposition, and the recorder with its exporter."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

from dragoman.core.counters import Histogram, MetricFamily, counter, gauge
from dragoman.core.durations import Backoff
from dragoman.settings.settings import Settings
from dragoman.settings.types import parse_headers
from dragoman.telemetry import otlp
from dragoman.telemetry.spans import SpanRecorder

if TYPE_CHECKING:
    from prometheus_client.core import Metric


async def start_tracing(stack: AsyncExitStack, settings: Settings, role: str = "dragoman") -> Tracing | None:
    """Starts sending traces of a `role` until the stack closes; None if no collector is set (`--otlp`)."""
    if not settings.tracing.otlp:
        return None
    headers = parse_headers(settings.tracing.headers.get_secret_value())
    tracing = open_tracing(settings.tracing.otlp, headers, settings.tracing.share, role=role)
    return await stack.enter_async_context(tracing)


class Exposition:
    """Prometheus exposition of our metrics, and those of the process and of Python.

    Imports the library when created, at the first scrape: most servers are never scraped.
    """

    def __init__(self) -> None:
        from prometheus_client import GCCollector, PlatformCollector, ProcessCollector
        from prometheus_client.registry import CollectorRegistry

        self._families: Iterable[MetricFamily] = ()
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self._registry)

    def render(self, families: Iterable[MetricFamily], accept: str = "") -> tuple[bytes, str]:
        """Returns the text and its media type: OpenMetrics if accepted, otherwise the Prometheus text format."""
        from prometheus_client.exposition import choose_encoder

        encode, media_type = choose_encoder(accept)
        self._families = families
        return encode(self._registry), media_type

    def collect(self) -> Iterator[Metric]:
        """Called by the library."""
        return map(_to_metric, self._families)


def _to_metric(family: MetricFamily) -> Metric:
    """Converts one family to the library's form. Names get the prefix `dragoman_`."""
    from prometheus_client import core

    name, help, labels = f"dragoman_{family.name}", family.help, family.labels
    if family.kind == "histogram":
        histogram = core.HistogramMetricFamily(name, help, labels=labels)
        for sample in family.samples:
            assert isinstance(sample.value, Histogram)
            histogram.add_metric(sample.labels, _buckets(sample.value), sample.value.sum)
        return histogram
    kind = core.CounterMetricFamily if family.kind == "counter" else core.GaugeMetricFamily
    metric = kind(name, help, labels=labels)
    for sample in family.samples:
        assert not isinstance(sample.value, Histogram)
        metric.add_metric(sample.labels, float(sample.value))
    return metric


def _buckets(histogram: Histogram) -> list[tuple[str, float]]:
    """Cumulative counts by upper bound."""
    bounds = [*map(repr, histogram.bounds), "+Inf"]
    return list(zip(bounds, map(float, accumulate(histogram.counts)), strict=True))


@dataclass(frozen=True, slots=True)
class Tracing:
    """The running tracing: recorder and exporter."""

    recorder: SpanRecorder
    exporter: otlp.SpanExporter

    def families(self) -> Iterator[MetricFamily]:
        """The metrics of the exporter."""
        yield counter("spans", "Spans recorded.", self.recorder.recorded)
        yield counter("spans_sent", "Spans that the collector accepted.", self.exporter.sent)
        yield counter("spans_dropped", "Spans dropped because the queue was full.", self.recorder.dropped)
        yield gauge("traces_up", "Whether the collector accepted the last request.", not self.exporter.is_failing)


@asynccontextmanager
async def open_tracing(
    url: str,
    headers: Mapping[str, str],
    share: float,
    *,
    role: str = "dragoman",
    interval: float = otlp.EXPORT_INTERVAL,
    retry: Backoff = otlp.EXPORT_RETRY_BACKOFF,
) -> AsyncIterator[Tracing]:
    """Records and exports spans while the block runs. `role` is the `service.name`; the rest as in `SpanExporter`."""
    recorder = SpanRecorder(share)
    transport, resource = otlp.otlp_transport(url, headers), otlp.resource_attributes(role)
    exporter = otlp.SpanExporter(recorder, transport, resource, interval=interval, retry=retry)
    try:
        yield Tracing(recorder, exporter)
    finally:
        await asyncio.to_thread(exporter.close)
