"""The campaign of chaos runs: its plan, its data file, and its page."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from tests.chaos.campaign.page import (
    FIXES,
    GOALS,
    OPEN,
    PAGE,
    RUNS,
    SEVERAL_COMMITS,
    BadRecord,
    Fix,
    is_reached,
    page,
    read_fixes,
    read_runs,
    run_of,
    totals,
)
from tests.chaos.campaign.run import ROTATION, SHORTEST, append, plan
from tests.chaos.kinds import KINDS
from tests.chaos.pace import DENSE, DENSE_CLUSTER, ORDINARY

VALUES: dict[str, Any] = {
    "date": "2026-12-24", "commit": "abc", "kind": "dense", "seconds": 240, "seed": 7,
    "faults": {"kills": 60, "pauses": 10}, "counts": {"reconnects": 900, "events": 70_000, "sends": 5},
    "problems": 0, "first": [],
}  # fmt: skip
CLUSTER = VALUES | {
    "kind": "dense-cluster", "seed": 8, "faults": {"kills": 20, "kills of postgres": 3, "restarts of postgres": 4},
}  # fmt: skip
BROKEN = VALUES | {"seed": 9, "problems": 2, "first": ["task t: is | lost\nfor good"]}


def runs_of(*values: dict[str, Any]) -> list[Any]:
    return [run_of(one, "a line") for one in values]


def test_the_committed_page_is_that_of_the_committed_runs() -> None:
    assert PAGE.read_text("utf-8") == page(read_runs(RUNS), read_fixes(FIXES)), "make campaign ARGS=--page writes it"


def test_every_fix_is_that_of_a_recorded_run_with_violations() -> None:
    assert read_fixes(FIXES).keys() <= {run.seed for run in read_runs(RUNS) if run.problems}


def test_kills_of_all_parts_add_up() -> None:
    runs = runs_of(VALUES, CLUSTER)
    assert [run.kills for run in runs] == [60, 23]
    assert totals(runs)["kills"] == 83
    assert totals(runs)["events"] == 140_000


def test_the_goals_are_reached_when_every_one_is() -> None:
    run = VALUES | {"faults": {"kills": GOALS["kills"]}, "counts": {"reconnects": 10**6, "events": 10**8}}
    assert is_reached(runs_of(run))
    assert not is_reached(runs_of(run | {"faults": {"pauses": 10**6}}))
    assert not is_reached([])


def test_the_page_has_every_seed_and_every_fault() -> None:
    text = page(runs_of(VALUES, CLUSTER), {})
    assert "| 7 | dense | 2026-12-24 | abc | 240 | 60 | 900 | 70,000 | 0 |" in text
    assert "| 8 | dense-cluster | 2026-12-24 | abc | 240 | 23 | 900 | 70,000 | 0 |" in text
    assert "| kills | 60 | 20 | 80 |" in text
    assert "| kills of postgres |  | 3 | 3 |" in text
    assert "| events | 140,000 | 10,000,000 |" in text
    assert "## Violations\n\nNone.\n" in text
    assert "CHAOS_SECONDS=240 CHAOS_SEED=7 .venv/bin/python -m tests.chaos.run --kind dense" in text


def test_a_violation_is_open_until_its_fix_is_written_down() -> None:
    text = page(runs_of(BROKEN), {})
    assert f"| 9 | 2 | task t: is \\| lost for good | {OPEN} | {OPEN} | {OPEN} |" in text
    text = page(runs_of(BROKEN), {9: Fix(cause="a", fix="b", test="c")})
    assert "| 9 | 2 | task t: is \\| lost for good | a | b | c |" in text


def test_a_page_without_runs_says_so() -> None:
    assert "0 runs, 0 minutes in total." in page([], {})


def test_the_page_says_when_no_commit_has_reached_the_goals_alone() -> None:
    enough = {"faults": {"kills": GOALS["kills"]}, "counts": {"reconnects": 10**6, "events": 10**8}}
    assert SEVERAL_COMMITS in page(runs_of(VALUES, CLUSTER | {"commit": "def"}), {})
    assert SEVERAL_COMMITS not in page(runs_of(VALUES, CLUSTER), {})
    assert SEVERAL_COMMITS not in page(runs_of(VALUES | enough, CLUSTER | {"commit": "def"}), {})


def test_a_run_is_appended_as_one_line(tmp_path: Path) -> None:
    path = tmp_path / "campaign" / "runs.jsonl"
    append(path, VALUES)
    append(path, CLUSTER)
    assert [run.seed for run in read_runs(path)] == [7, 8]
    assert [json.loads(line) for line in path.read_text("utf-8").splitlines()] == [VALUES, CLUSTER]


def test_a_bad_record_is_named(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    path.write_text(json.dumps(VALUES) + "\n" + json.dumps({"seed": 7}) + "\n", "utf-8")
    with pytest.raises(BadRecord, match=r"runs\.jsonl:2: date is missing"):
        read_runs(path)
    with pytest.raises(BadRecord, match="kind is 'other', and has to be one of one, cluster, dense"):
        append(path, VALUES | {"kind": "other"})
    fixes = tmp_path / "fixes.toml"
    fixes.write_text('[9]\ncause = "a"\nfix = "b"\n', "utf-8")
    assert tomllib.loads(fixes.read_text("utf-8"))
    with pytest.raises(BadRecord, match=r"fixes\.toml, seed 9: test is missing"):
        read_fixes(fixes)


def test_the_plan_repeats_its_rotation_and_fills_the_time() -> None:
    planned = plan(list(KINDS), 3600)
    chosen = [next(planned), *(planned.send(3600) for _ in ROTATION)]
    assert chosen == [*ROTATION, ROTATION[0]]
    assert planned.send(SHORTEST + 5) == (ROTATION[1][0], int(SHORTEST + 5))
    with pytest.raises(StopIteration):
        planned.send(SHORTEST - 1)


def test_the_plan_leaves_out_kinds_that_cannot_run_here() -> None:
    planned = plan(["one"], 3600)
    assert [next(planned), planned.send(3600)] == [("one", 100), ("one", 100)]


def test_dense_runs_have_more_faults_than_ordinary_ones() -> None:
    assert {kind for kind, _ in ROTATION} == set(KINDS)
    assert sum(DENSE.between) < sum(ORDINARY.between)
    assert sum(DENSE_CLUSTER.cluster_between) < sum(ORDINARY.cluster_between)
    assert DENSE.kill_share > ORDINARY.kill_share
    assert ORDINARY.bursts == 0
