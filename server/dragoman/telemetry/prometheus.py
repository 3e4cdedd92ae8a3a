"""Prometheus exposition of our metrics, and those of the process and of Python.

Names get the prefix `dragoman_` and the suffixes of the format. The library is imported on the first scrape, because
most servers are never scraped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from dragoman.core.counters import Histogram, MetricFamily

if TYPE_CHECKING:
    from prometheus_client.core import Metric

METRIC_PREFIX: Final = "dragoman_"


class Exposition:
    """Renders metric families and process metrics."""

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
        return map(to_metric, self._families)


def to_metric(family: MetricFamily) -> Metric:
    """Converts one family to the library's form."""
    from prometheus_client import core

    name, help, labels = METRIC_PREFIX + family.name, family.help, family.labels
    if family.kind == "histogram":
        spread = core.HistogramMetricFamily(name, help, labels=labels)
        for sample in family.samples:
            assert isinstance(sample.value, Histogram)
            spread.add_metric(sample.labels, _buckets(sample.value), sample.value.sum)
        return spread
    kind = core.CounterMetricFamily if family.kind == "counter" else core.GaugeMetricFamily
    plain = kind(name, help, labels=labels)
    for sample in family.samples:
        assert not isinstance(sample.value, Histogram)
        plain.add_metric(sample.labels, float(sample.value))
    return plain


def _buckets(histogram: Histogram) -> list[tuple[str, float]]:
    """Cumulative counts by upper bound."""
    bounds = [*map(repr, histogram.bounds), "+Inf"]
    return list(zip(bounds, map(float, accumulate(histogram.counts)), strict=True))
