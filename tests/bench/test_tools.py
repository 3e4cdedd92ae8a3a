"""What wrk and h2load are told, and what is read in what they say."""

from __future__ import annotations

import shutil
from dataclasses import replace

import pytest
from bench.answers import TEXT
from bench.asking import FORMS
from bench.job import Measured
from bench.lines import Wrong

from bench import tools

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
OWN = Measured(
    kind="send",
    count=900,
    seconds=0.3,
    p50=1,
    p99=2,
    server_cpu=0.1,
    load_cpu=0.1,
    tool="own client",
    size=291.0,
    heads=78,
)


def test_what_h2load_says_is_read() -> None:
    assert tools.read_h2load(LOAD_REPORT) == tools.LoadReport(3.33, 10000, 0, 780016, 2960000)


@pytest.mark.parametrize(("text", "seconds"), [("270.10ms", 0.2701), ("999us", 0.000999), ("1.50m", 90.0)])
def test_every_unit_of_time_is_read(text: str, seconds: float) -> None:
    assert tools.read_h2load(LOAD_REPORT.replace("3.33s", text, 1)).seconds == pytest.approx(seconds)


def test_words_that_nobody_expected_are_an_error() -> None:
    with pytest.raises(Wrong, match="nobody can read"):
        tools.read_h2load("h2load: unrecognized option")


def test_answers_of_the_size_of_those_that_were_looked_at_are_right() -> None:
    tools.check_h2load(tools.read_h2load(LOAD_REPORT), 10000, 16, OWN)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"succeeded": 9999}, "9999 answers"),
        ({"failed": 1}, "1 failed"),
        ({"heads": 780016 + 2}, "bytes of headers"),  # one answer in ten thousand was an error: 80 bytes, not 78
        ({"heads": 780000 - 2}, "bytes of headers"),
        ({"data": 0}, "answers of -5.0 bytes"),
        ({"data": 2960000 - 200 * 296}, "some are errors"),  # one in fifty has no data
    ],
)
def test_a_grpc_error_among_them_is_found_by_sizes(change: dict[str, int], why: str) -> None:
    response = replace(tools.read_h2load(LOAD_REPORT), **change)
    with pytest.raises(Wrong, match=why):
        tools.check_h2load(response, 10000, 16, OWN)


def test_headers_of_another_server_are_no_error() -> None:
    response = replace(tools.read_h2load(LOAD_REPORT), heads=91 * 10000 + 16)
    tools.check_h2load(response, 10000, 16, replace(OWN, heads=91))


def test_the_script_looks_at_every_answer() -> None:
    form = FORMS["jsonrpc", "dragoman"]
    script = tools.wrk_script(form.send(TEXT), None)
    assert 'wrk.method = "POST"' in script
    assert "TASK_STATE_COMPLETED" in script
    assert f"not body:find([====[{TEXT}]====], 1, true)" in script
    reading = tools.wrk_script(form.get("talk", "an-id"), b"x" * 1234)
    assert "#body ~= 1234" in reading
    assert "an-id" in reading


def test_the_program_is_the_one_for_the_binding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    assert tools.find("grpc") == "/usr/bin/h2load"
    assert tools.find("rest") == tools.find("jsonrpc") == "/usr/bin/wrk"
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert tools.find("grpc") is None
