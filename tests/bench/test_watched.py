"""The collector that telemetry is measured with, and the table of what it costs."""

from __future__ import annotations

import pytest
from bench.rows import Rows
from bench.sections import WATCHED
from bench.servers import OURS

from bench import pieces, report, watched
from dragoman.wiring.telemetry import open_tracing


async def test_the_collector_takes_what_a_server_sends() -> None:
    async with watched.collector() as (url, came):
        async with open_tracing(url, {}, 1.0) as tracing:
            tracing.tracer.record_span("one", "internal", tracing.tracer.start_span(""), "", 1.0, (), ())
        assert len(came) == 1
        assert came[0] > 0
        assert (tracing.exporter.sent, tracing.exporter.failed) == (1, 0)


def test_ratios_are_taken_inside_each_round() -> None:
    rows = [
        {
            "section": WATCHED, "case": watched.case("grpc", looked), "server": OURS, "round": number,
            "value": base * share, "cpu": cpu,
        }
        for number, base in enumerate((1000.0, 500.0))
        for looked, share, cpu in ((watched.OFF, 1.0, 200.0), (watched.TRACED, 0.96, 208.0))
    ]  # fmt: skip
    last = report.watched_table(Rows([rows])).splitlines()[-1]
    cells = [cell.strip() for cell in last.strip("|").split("|")]
    assert cells[2].startswith("0.960")
    assert cells[4].startswith("1.04")


def test_every_piece_costs_something(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "GOES", 2)
    monkeypatch.setattr(pieces, "CALLS", 20)
    found = pieces.pieces()
    assert len(found) == 5
    assert all(cost >= 0 for cost in found.values())
