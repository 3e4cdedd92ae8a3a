"""Targets: the source of each figure, and its verdict."""

from __future__ import annotations

import pytest
from bench.measurements.task_lists import FEW, HUGE, LAST, MANY, STATES, case
from bench.measurements.task_size import SIZES, append_case
from bench.measurements.webhooks import CASES, RECEIVER_DOWN
from bench.report.targets import Target, targets
from bench.rows import Row, Rows, Spread
from bench.sections import LIST, MEMORY, SIZE, START, STEPS, TIMED, WEBHOOKS, disk_key
from bench.servers.contestants import DRAGOMAN

from bench.measurements import steps


def row(section: str, case: str, server: str, value: float, **more: float) -> Row:
    return {"section": section, "case": case, "server": server, "round": 0, "value": value, "unit": "", **more}


def full_run() -> list[Row]:
    """Rows of a run in which Dragoman is half as fast as the others, and nothing grows."""
    rows = [row(*disk_key(section.name), 0.2) for section in TIMED if section.kind == "send"]
    for section in TIMED:
        for callers in section.callers:
            for name in section.servers:
                slow = name == DRAGOMAN
                times = {"p50": 2.0 if slow else 1.0, "p99": 5.0 if slow else 2.0}
                rows.append(row(section.name, section.case(callers), name, 500 if slow else 1000, **times))
    for tasks in (FEW, MANY, HUGE):
        rows += [row(LIST, case(tasks, page, state), DRAGOMAN, 3.0) for page in (1, LAST) for state in STATES]
    rows += [row(WEBHOOKS, case, DRAGOMAN, 21.0 if case == RECEIVER_DOWN else 20.0, calls=8) for case in CASES]
    rows += [row(SIZE, append_case(size), DRAGOMAN, 200.0) for size in SIZES]
    costs = {steps.COMMIT: 0.4, steps.STEP: 0.7, steps.RATE: 4_000, steps.answer_case(0): 2.0}
    costs[steps.answer_case(steps.FINISHED)] = 12.0
    rows += [row(STEPS, case, DRAGOMAN, value) for case, value in costs.items()]
    rows += [
        row(MEMORY, name, DRAGOMAN, held)
        for name, held in (("idle server", 80e6), ("idle stream", 45e3), ("waiting task", 400), ("finished task", 12))
    ]
    return [*rows, row(START, "to listening", DRAGOMAN, 0.7)]


def found(rows: list[Row]) -> dict[str, Spread | None]:
    measured = Rows([rows])
    return {target.title: target.find(measured) for target in targets()}


def median(spread: Spread | None) -> float:
    assert spread is not None
    return spread.median


def test_a_complete_run_has_a_result_for_every_target() -> None:
    assert [title for title, spread in found(full_run()).items() if spread is None] == []


def test_a_run_without_rows_has_no_results() -> None:
    assert set(found([]).values()) == {None}


def test_results_match_their_titles() -> None:
    figures = {title: round(median(spread), 6) for title, spread in found(full_run()).items()}
    assert figures["gRPC blocking send, 64 callers / ceiling"] == 0.5
    assert figures["JSON-RPC blocking send, 64 callers / fasta2a in memory"] == 0.5
    assert figures["REST one caller, p50 / ceiling"] == 2.0
    assert figures["JSON-RPC p99 / p50 at 64 callers"] == 2.5
    assert figures["ListTasks page 100, by state, 1,000,000 tasks / 1,000 tasks"] == 1.0
    assert figures["append after 10,000 events / after 10"] == 1.0
    assert figures["one step minus one commit, one caller"] == 0.3
    assert figures["steps of 64 tasks at once, one core"] == 4_000
    assert figures["1,000 finished steps found again, minus the same turn without steps"] == 10
    assert figures["memory, idle server"] == 80
    assert figures["memory, idle gRPC stream"] == 45
    assert figures["memory, waiting task"] == 0.4
    assert figures["100 chunks on a stream, webhook receiver down / no webhook"] == 1.05
    assert figures["`dragoman serve` to listening"] == 0.7


def test_titles_of_targets_are_unique() -> None:
    titles = [target.title for target in targets()]
    assert len(titles) == len(set(titles))


@pytest.mark.parametrize(
    ("lower_is_better", "value", "verdict"),
    [
        *((False, 0.41, "aim"), (False, 0.4, "aim"), (False, 0.28, "yes"), (False, 0.279, "NO")),
        *((True, 0.1, "aim"), (True, 0.28, "aim"), (True, 0.4, "yes"), (True, 0.41, "NO")),
    ],
)
def test_verdicts_at_bound_and_aim(lower_is_better: bool, value: float, verdict: str) -> None:
    bound, aim = (0.40, 0.28) if lower_is_better else (0.28, 0.40)
    target = Target("", lambda rows: None, bound, aim, lower_is_better=lower_is_better)
    assert target.verdict(Spread(value, value, value, 1)) == verdict
    assert target.verdict(None) == ""


def test_the_verdict_uses_the_median() -> None:
    target = Target("", lambda rows: None, 0.28, 0.40)
    assert target.verdict(Spread(0.2, 0.1, 0.9, 5)) == "NO"
