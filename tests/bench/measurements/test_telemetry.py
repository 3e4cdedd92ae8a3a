"""The collector of the telemetry measurement, and the table of costs."""

from __future__ import annotations

import pytest
from bench.rows import Rows
from bench.sections import TELEMETRY
from bench.servers.contestants import DRAGOMAN

from bench.measurements import telemetry
from bench.report import document
from dragoman.ports.tracing import Span
from dragoman.wiring.telemetry import open_tracing


async def test_the_collector_accepts_exported_spans() -> None:
    async with telemetry.collector() as (url, received):
        async with open_tracing(url, {}, 1.0) as tracing:
            tracing.recorder.record_span(Span("one", "internal", tracing.recorder.start_span(""), "", 1.0, (), ()))
        assert len(received) == 1
        assert received[0] > 0
        assert (tracing.exporter.sent, tracing.exporter.is_failing) == (1, False)


def test_telemetry_ratios_are_computed_within_each_round() -> None:
    rows = [
        {
            "section": TELEMETRY, "case": telemetry.case("grpc", looked), "server": DRAGOMAN, "round": number,
            "value": base * share, "cpu": cpu,
        }
        for number, base in enumerate((1000.0, 500.0))
        for looked, share, cpu in ((telemetry.BASELINE, 1.0, 200.0), (telemetry.TRACED, 0.96, 208.0))
    ]  # fmt: skip
    last = document.telemetry_table(Rows([rows])).splitlines()[-1]
    cells = [cell.strip() for cell in last.strip("|").split("|")]
    assert cells[2].startswith("0.960")
    assert cells[4].startswith("1.04")


def test_every_operation_has_a_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telemetry, "REPETITIONS", 2)
    monkeypatch.setattr(telemetry, "CALLS", 20)
    found = telemetry.operation_costs()
    assert len(found) == 5
    assert all(cost >= 0 for cost in found.values())
