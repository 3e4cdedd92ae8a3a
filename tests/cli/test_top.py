"""`dragoman top`: the screen from two readings of the metrics, and the error without a server."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path

import pytest
from rich.console import Console
from tests.telemetry.test_metrics import ROOT, serving

from dragoman.cli.top import (
    MetricsDelta,
    MetricsSnapshot,
    MetricsUnavailable,
    TopOptions,
    _watch,
    format_seconds,
    render_dashboard,
    run_top,
)
from dragoman.client.calls import Client, message

BEFORE = """\
# TYPE dragoman_requests_total counter
dragoman_requests_total{method="Send",binding="grpc",dialect="1.0",code="OK"} 10
dragoman_requests_total{method="Get",binding="rest",dialect="1.0",code="200"} 50
# TYPE dragoman_request_duration_seconds histogram
dragoman_request_duration_seconds_bucket{method="Send",binding="grpc",le="0.1"} 10
dragoman_request_duration_seconds_bucket{method="Send",binding="grpc",le="1.0"} 10
dragoman_request_duration_seconds_bucket{method="Send",binding="grpc",le="+Inf"} 10
# TYPE dragoman_runs_begun_total counter
dragoman_runs_begun_total{agent="echo"} 10
# TYPE dragoman_runs_ended_total counter
dragoman_runs_ended_total{agent="echo",state="completed"} 8
"""
AFTER = BEFORE.replace(" 10\n", " 30\n").replace('le="0.1"} 30', 'le="0.1"} 11')


def shown(change: MetricsDelta) -> str:
    out = io.StringIO()
    Console(file=out, width=140, no_color=True).print(render_dashboard(change, "http://here"))
    return out.getvalue()


def test_rates_are_computed_from_the_time_between_two_readings() -> None:
    change = MetricsDelta(MetricsSnapshot.parse(BEFORE, 100.0), MetricsSnapshot.parse(AFTER, 104.0))
    assert change.rate("dragoman_requests_total", method="Send") == 5.0
    assert change.rate("dragoman_requests_total", method="Get") == 0.0
    assert change.quantile(0.5, "dragoman_request_duration_seconds") == 1.0
    assert change.quantile(0.01, "dragoman_request_duration_seconds") == 0.1
    assert change.quantile(0.5, "dragoman_run_duration_seconds") == 0.0
    anew = MetricsDelta(MetricsSnapshot.parse(AFTER, 100.0), MetricsSnapshot.parse(BEFORE, 104.0))
    assert anew.rate("dragoman_requests_total", method="Send") == 0.0
    lines = [line.split() for line in shown(change).splitlines()]
    assert ["echo", "22", "0", "-", "0.0", "0.0", "-", "0", "0"] in lines
    assert lines[-2:] == [["Send", "grpc", "5.0", "1.0", "s", "30"], ["Get", "rest", "0.0", "-", "50"]]


def test_durations_are_formatted_with_units() -> None:
    assert [format_seconds(value) for value in (0, 0.0042, 3.25, 600)] == ["-", "4 ms", "3.2 s", "10 min"]


async def test_a_server_is_shown_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with serving(tmp_path, token=ROOT) as app, Client(str(app.grpc), token=ROOT) as client:
        watching = asyncio.create_task(_watch(TopOptions(app.public_url, 0.3, True, None, ROOT)))
        await client.send(message("hello"))
        assert await watching == 0
        with pytest.raises(MetricsUnavailable, match="shows metrics to operators only"):
            await _watch(TopOptions(app.public_url, 0.2, True, None, ""))
    out = capsys.readouterr().out
    assert out.startswith("dragoman ")
    assert "0 of 1000 running" in out
    assert "echo" in out


def test_an_unreachable_server_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_top(TopOptions("http://127.0.0.1:1", 0.2, True, None, "")) == 3
    assert "cannot connect to http://127.0.0.1:1" in capsys.readouterr().err
