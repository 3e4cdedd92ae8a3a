"""The report and the history of a chaos run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.chaos import report
from tests.chaos.campaign.page import run_of
from tests.chaos.history import Entry, Fault, LateRecorder, Opened, Seen, load, shown_tasks
from tests.chaos.kinds import KINDS
from tests.chaos.pace import ORDINARY
from tests.chaos.run import counts, faults, read_arguments

from tools import scorecard

ENTRIES: list[Entry] = [
    Opened(follower=1, task="t", binding="grpc"),
    Seen(follower=1, sequence=2, digest="d2", shape="s2"),
    Seen(follower=1, sequence=3, digest="d3"),
    Opened(follower=1, task="t", binding="ws", after=3),
    Seen(follower=1, sequence=4, digest="d4"),
    Opened(follower=2, task="t", binding="rest"),
    Seen(follower=2, sequence=None, digest="d5", shape="s5"),
    Fault(how="kill"),
    Fault(how="kill", part="nats"),
    Fault(how="kill"),
]
REPORT = report.RunReport(
    date="2026-12-24", commit="abc", seconds=60, seed=7, faults={"kills": 2}, counts={"sends": 9},
    problems=[f"problem {number}" for number in range(8)],
)  # fmt: skip


def test_faults_and_counts_are_numbers_by_name() -> None:
    assert faults(ENTRIES) == {"kills": 2, "kills of nats": 1}
    found = counts(ENTRIES, {}, [])
    assert (found["events"], found["followers"], found["reconnects"], found["sends"]) == (4, 2, 1, 0)


def test_a_report_has_all_counts_and_the_first_problems() -> None:
    assert REPORT.text == "2 kills, 9 sends"
    run = run_of(REPORT.values("dense"), "the report")
    assert (run.kind, run.problems, list(run.first)) == ("dense", 8, [f"problem {number}" for number in range(5)])


def test_the_scorecard_reads_reports_of_ordinary_runs_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "REPORTS", tmp_path / ".chaos")
    for kind in KINDS:
        REPORT.write(kind)
    page = scorecard.chaos(scorecard.reports(tmp_path / ".chaos"))
    assert page.count("seed 7: **8 promises broken**.\n  2 kills, 9 sends") == 2
    REPORT.write("dense", tmp_path / "here.json")
    assert json.loads((tmp_path / "here.json").read_text("utf-8"))["kind"] == "dense"
    assert len(list((tmp_path / ".chaos").iterdir())) == 2


def test_a_late_history_is_written_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    with path.open("w", encoding="utf-8") as file:
        recorder = LateRecorder(file)
        for entry in ENTRIES:
            recorder.add(entry)
        assert file.tell() == 0
        recorder.write()
    assert load(path) == ENTRIES


def test_only_tasks_with_a_place_in_the_log_are_compared() -> None:
    assert shown_tasks(ENTRIES) == {("t", 2)}


def test_make_chaos_keeps_its_kinds_and_their_pace() -> None:
    assert read_arguments([]).kind == "one"
    assert read_arguments(["--replicas"]).kind == "cluster"
    assert KINDS["one"].pace is KINDS["cluster"].pace is ORDINARY
    assert KINDS["cluster"].several
    assert not KINDS["one"].several


def test_a_reported_problem_names_no_folder_of_the_machine_and_is_short() -> None:
    problem = f"the store /tmp/chaos-ab_12/disk/tasks.db of {report.ROOT}/tests/chaos/agents.py is full" + "!" * 1000
    text = report.summarize(problem)
    assert text.startswith("the store FOLDER/disk/tasks.db of tests/chaos/agents.py is full!!!")
    assert len(text) == report.MOST_CHARS
