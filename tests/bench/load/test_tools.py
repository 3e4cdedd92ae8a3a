"""Commands of wrk and h2load, their parsed output, and checks of their responses."""

from __future__ import annotations

import shutil
from dataclasses import replace

import pytest
from bench.load.codecs import CODECS
from bench.load.connections import WrongResponse
from bench.load.jobs import LoadResult
from bench.responses import TEXT

from bench.load import tools

LOAD_REPORT = """\
starting benchmark...
progress: 100% done

finished in 3.33s, 3003.84 req/s, 1.27MB/s
requests: 10000 total, 10000 started, 10000 done, 10000 succeeded, 0 failed, 0 errored, 0 timeout
status codes: 10000 2xx, 0 3xx, 0 4xx, 0 5xx
traffic: 4.24MB (4443242) total, 761.73KB (780016) headers (space savings 3.70%), 2.82MB (2960000) data
                     min         max         mean         sd        +/- sd
time for request:      300us     50.51ms      5.21ms      3.69ms    91.38%
"""
OWN = LoadResult(
    kind="send",
    count=900,
    seconds=0.3,
    p50=1,
    p99=2,
    server_cpu=0.1,
    load_cpu=0.1,
    tool="own client",
    size=291.0,
    head_size=78,
)


def test_the_summary_of_h2load_is_parsed() -> None:
    assert tools.read_h2load(LOAD_REPORT) == tools.H2loadReport(3.33, 10000, 0, 780016, 2960000)


@pytest.mark.parametrize(("text", "seconds"), [("270.10ms", 0.2701), ("999us", 0.000999), ("1.50m", 90.0)])
def test_every_time_unit_of_h2load_is_parsed(text: str, seconds: float) -> None:
    assert tools.read_h2load(LOAD_REPORT.replace("3.33s", text, 1)).seconds == pytest.approx(seconds)


def test_unknown_output_of_h2load_is_an_error() -> None:
    with pytest.raises(WrongResponse, match="unknown output"):
        tools.read_h2load("h2load: unrecognized option")


def test_responses_with_the_sizes_of_checked_responses_are_accepted() -> None:
    tools.check_h2load(tools.read_h2load(LOAD_REPORT), 10000, 16, OWN)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"succeeded": 9999}, "9999 responses"),
        ({"failed": 1}, "1 failed"),
        ({"heads": 780016 + 2}, "bytes of headers"),  # one response in ten thousand was an error: 80 bytes, not 78
        ({"heads": 780000 - 2}, "bytes of headers"),
        ({"data": 0}, "responses of -5.0 bytes"),
        ({"data": 2960000 - 200 * 296}, "some are errors"),  # one in fifty has no data
    ],
)
def test_grpc_errors_are_detected_by_their_sizes(change: dict[str, int], why: str) -> None:
    response = replace(tools.read_h2load(LOAD_REPORT), **change)
    with pytest.raises(WrongResponse, match=why):
        tools.check_h2load(response, 10000, 16, OWN)


def test_header_sizes_may_differ_between_servers() -> None:
    response = replace(tools.read_h2load(LOAD_REPORT), heads=91 * 10000 + 16)
    tools.check_h2load(response, 10000, 16, replace(OWN, head_size=91))


def test_the_wrk_script_checks_every_response() -> None:
    codec = CODECS["jsonrpc", "dragoman"]
    script = tools.wrk_script(codec.send(TEXT), None)
    assert 'wrk.method = "POST"' in script
    assert "TASK_STATE_COMPLETED" in script
    assert f"not body:find([====[{TEXT}]====], 1, true)" in script
    reading = tools.wrk_script(codec.get("talk", "an-id"), b"x" * 1234)
    assert "#body ~= 1234" in reading
    assert "an-id" in reading


def test_the_load_tool_depends_on_the_binding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    assert tools.find("grpc") == "/usr/bin/h2load"
    assert tools.find("rest") == tools.find("jsonrpc") == "/usr/bin/wrk"
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert tools.find("grpc") is None
