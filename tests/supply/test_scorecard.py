"""The scorecard has recorded results only."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tools import scorecard
from tools.versions import version_of

ROOT = Path(__file__).parents[2]
DAY = "2026-12-24"

CLIENTS = """
| client | transport | send | get | list |
| --- | --- | --- | --- | --- |
| one 1.0 | GRPC | yes | yes | — |
| one 1.0 | JSONRPC | yes | FAILED | — |
| two 2.0 | HTTP+JSON | yes | yes | yes |
"""
RUN = {
    "several": False, "date": DAY, "commit": "abc", "seconds": 60, "seed": 7, "faults": {"kills": 3},
    "counts": {"sends": 9}, "problems": 0,
}  # fmt: skip


def test_clients_are_counted_and_failures_are_named() -> None:
    page = scorecard.clients(CLIENTS)
    assert "2 published clients, 3 ways to call: 6 of 7 operations done" in page
    assert "Failed: one 1.0 by JSONRPC: get." in page
    assert "| one 1.0 | GRPC, JSONRPC | 3 of 4 |" in page


def test_missing_chaos_runs_and_broken_promises_are_listed() -> None:
    assert scorecard.chaos([]).count("was not run") == 2
    page = scorecard.chaos([RUN, {**RUN, "several": True, "problems": 2}])
    assert f"one server on SQLite, 60 s on {DAY} at abc, seed 7: no promise broken.\n  3 kills, 9 sends" in page
    assert "PostgreSQL and NATS, 60 s" in page
    assert "**2 promises broken**" in page
    assert "was not run" not in page


def test_a_kind_of_chaos_run_without_a_report_keeps_its_entry() -> None:
    page = scorecard.chaos([RUN, {**RUN, "several": True, "faults": {"kills": 1, "drains of worker": 2}}])
    page = page.replace("1 kills, 2 drains of", "1 kills, 2 drains\n  of")  # wrapped by hand
    assert scorecard.chaos([], page) == page
    newer = scorecard.chaos([{**RUN, "seed": 8}], page)
    assert "seed 8: no promise broken.\n  3 kills" in newer
    assert "seed 7: no promise broken.\n  1 kills, 2 drains\n  of worker, 9 sends" in newer
    assert newer.count("seed") == 2


def test_the_committed_pages_produce_a_scorecard(tmp_path: Path) -> None:
    for name in ("reference", "explanation"):
        (tmp_path / "docs" / name).mkdir(parents=True)
    for name in ("reference/clients.md", "explanation/performance.md", "reference/limits.md"):
        shutil.copy(ROOT / "docs" / name, tmp_path / "docs" / name)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / ".chaos").mkdir()
    (tmp_path / ".chaos" / "one.json").write_text(json.dumps(RUN))
    page = scorecard.write(tmp_path)
    assert page.startswith(f"# Scorecard of {version_of(ROOT)}\n")
    for text in ("a2a-sdk", "3 kills", "Measured on ", "| gRPC blocking send, 64 callers / ceiling", "`--live-tasks`"):
        assert text in page
    (tmp_path / "docs" / "explanation" / "performance.md").write_text(
        "<!-- make bench: begin -->\n\nMeasured on a day.\n\n"
    )
    with pytest.raises(scorecard.NoTable, match="Targets"):
        scorecard.write(tmp_path)
