"""Which errors of a log are explained by a fault."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.chaos.faults.logged_errors import AWAY, FAILED_OVER, NOTICED, errors_of

from dragoman.extensions.postgres.database import DEFAULT_RETRIES


def line(at: float, exception: str, level: str = "ERROR") -> str:
    time = datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")
    return json.dumps({"time": time, "level": level, "logger": "l", "message": "m", "exception": f"x\n{exception}"})


@pytest.mark.parametrize(
    ("response", "reported"),
    [
        (line(105, f"{AWAY[0]}; x"), 0),
        (line(110 + DEFAULT_RETRIES.write, f"{AWAY[0]}; x"), 0),
        (line(111 + DEFAULT_RETRIES.write, f"{AWAY[0]}; x"), 1),
        (line(99, f"{AWAY[0]}; x"), 1),
        (line(105, "KeyError: 1"), 1),
        (line(105, "KeyError: 1", "WARNING"), 0),
        (line(105, "RuntimeError: failing, as asked"), 0),
    ],
)
def test_store_errors_during_an_outage_are_no_violation(tmp_path: Path, response: str, reported: int) -> None:
    log = tmp_path / "server-1.log"
    log.write_text(f"{response}\n{response}\nnot JSON\n")
    found = errors_of(log, [(100.0, 110.0)])
    assert len(found) == reported
    assert all("server-1 logged, 2 times: l: m: " in text for text in found)


@pytest.mark.parametrize(("at", "reported"), [(105, 0), (110 + NOTICED, 0), (111 + NOTICED, 1), (99, 1)])
def test_a_report_of_a_failover_is_expected_after_one(tmp_path: Path, at: float, reported: int) -> None:
    logger, _, message = FAILED_OVER.partition(": ")
    log = tmp_path / "server-1.log"
    log.write_text(json.dumps({**json.loads(line(at, "")), "logger": logger, "message": f"{message} 1, now 2)"}))
    assert len(errors_of(log, [(100.0, 110.0)], [(100.0, 110.0)])) == reported
    assert len(errors_of(log, [(100.0, 110.0)])) == 1
