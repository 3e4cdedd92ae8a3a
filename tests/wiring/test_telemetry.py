"""The exposition of metrics in both formats, and tracing that is off by default."""

from __future__ import annotations

from contextlib import AsyncExitStack

from tests.telemetry.test_metrics import parsed

from dragoman.core.counters import Histogram, MetricFamily, MetricSample, counter, gauge
from dragoman.settings.settings import load_settings
from dragoman.wiring.telemetry import Exposition, start_tracing


def test_histograms_have_cumulative_buckets() -> None:
    spread = Histogram((1.0, 2.0))
    for number in (0.5, 1.0, 1.5, 9.0):
        spread.add(number)
    family = MetricFamily("took_seconds", "histogram", "How long.", ("who",), (MetricSample(("me",), spread),))
    text, _ = Exposition().render([family])
    values = parsed(text.decode())["dragoman_took_seconds_bucket"]
    assert [values[("le", bound), ("who", "me")] for bound in ("1.0", "2.0", "+Inf")] == [2, 3, 4]
    assert parsed(text.decode())["dragoman_took_seconds_sum"][(("who", "me"),)] == 12.0


def test_counters_and_gauges_have_the_prefix_and_the_kind_of_the_family() -> None:
    text, media_type = Exposition().render([counter("spans", "Spans.", 7), gauge("draining", "Draining.", True)])
    lines = text.decode().splitlines()
    assert media_type.startswith("text/plain")
    assert {"# TYPE dragoman_spans_total counter", "dragoman_spans_total 7.0"} <= set(lines)
    assert {"# TYPE dragoman_draining gauge", "dragoman_draining 1.0"} <= set(lines)


def test_openmetrics_is_sent_to_those_who_accept_it() -> None:
    text, media_type = Exposition().render([gauge("draining", "Draining.", False)], "application/openmetrics-text")
    assert media_type.startswith("application/openmetrics-text")
    assert text.endswith(b"# EOF\n")


def test_each_scrape_has_only_its_own_values_and_those_of_the_process() -> None:
    exposition = Exposition()
    exposition.render([gauge("before", "Gone.", 1)])
    text, _ = exposition.render([gauge("now", "Here.", 2)])
    names = parsed(text.decode()).keys()
    assert "dragoman_now" in names
    assert "dragoman_before" not in names
    assert {"process_start_time_seconds", "python_info"} <= names


async def test_nothing_is_traced_without_a_collector() -> None:
    async with AsyncExitStack() as stack:
        assert await start_tracing(stack, load_settings({"otlp": ""})) is None
