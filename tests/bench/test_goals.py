"""The table of what has to be reached: where each figure comes from, and when it is reached."""

from __future__ import annotations

import pytest
from bench.goals import Goal, goals
from bench.hooked import CASES, DOWN
from bench.rows import Row, Rows
from bench.sections import HOOKED, LIST, MEMORY, SIZE, START, TIMED, commit_before
from bench.servers import OURS
from bench.size import SIZES, appending_case
from bench.spread import Spread
from bench.stored import FEW, HUGE, LAST, MANY, STATES, case


def row(section: str, case: str, server: str, value: float, **more: float) -> Row:
    return {"section": section, "case": case, "server": server, "round": 0, "value": value, "unit": "", **more}


def everything() -> list[Row]:
    """A run in which ours does everything half as fast as the others, and nothing grows."""
    rows = [row(*commit_before(section.name), 0.2) for section in TIMED if section.kind == "send"]
    for section in TIMED:
        for callers in section.callers:
            for name in section.servers:
                slow = name == OURS
                times = {"p50": 2.0 if slow else 1.0, "p99": 5.0 if slow else 2.0}
                rows.append(row(section.name, section.case(callers), name, 500 if slow else 1000, **times))
    for tasks in (FEW, MANY, HUGE):
        rows += [row(LIST, case(tasks, page, state), OURS, 3.0) for page in (1, LAST) for state in STATES]
    rows += [row(HOOKED, case, OURS, 21.0 if case == DOWN else 20.0, letters=8) for case in CASES]
    rows += [row(SIZE, appending_case(size), OURS, 200.0) for size in SIZES]
    rows += [
        row(MEMORY, name, OURS, held)
        for name, held in (("idle server", 80e6), ("idle stream", 45e3), ("waiting task", 400), ("finished task", 12))
    ]
    return [*rows, row(START, "to listening", OURS, 0.7)]


def found(rows: list[Row]) -> dict[str, Spread | None]:
    measured = Rows([rows])
    return {goal.title: goal.find(measured) for goal in goals()}


def median(spread: Spread | None) -> float:
    assert spread is not None
    return spread.median


def test_a_whole_run_has_a_figure_for_every_goal() -> None:
    assert [title for title, spread in found(everything()).items() if spread is None] == []


def test_a_run_of_nothing_has_no_figure() -> None:
    assert set(found([]).values()) == {None}


def test_figures_are_what_their_titles_say() -> None:
    figures = {title: round(median(spread), 6) for title, spread in found(everything()).items()}
    assert figures["gRPC blocking send, 64 callers"] == 0.5
    assert figures["REST one caller, p50 over bare and two commits"] == 0.6  # 2.0 - 1.0 - 2 * 0.2 ms
    assert figures["JSON-RPC p99 / p50 at 64 callers"] == 2.5
    assert figures["ListTasks page 100, by state, 1,000,000 tasks against 1,000"] == 1.0
    assert figures["append after 10,000 events against 10"] == 1.0
    assert figures["memory, idle server"] == 80
    assert figures["memory, idle gRPC stream"] == 45
    assert figures["memory, waiting task"] == 0.4
    assert figures["100 chunks on a stream, its receiver down, against no webhook"] == 1.05
    assert figures["`dragoman serve` to listening"] == 0.7


def test_each_goal_is_of_another_figure() -> None:
    titles = [goal.title for goal in goals()]
    assert len(titles) == len(set(titles))


@pytest.mark.parametrize(
    ("most", "value", "verdict"),
    [
        *((False, 0.41, "aim"), (False, 0.4, "aim"), (False, 0.28, "yes"), (False, 0.279, "NO")),
        *((True, 0.1, "aim"), (True, 0.28, "aim"), (True, 0.4, "yes"), (True, 0.41, "NO")),
    ],
)
def test_a_goal_is_reached_at_its_bound_and_not_before(most: bool, value: float, verdict: str) -> None:
    bound, aim = (0.40, 0.28) if most else (0.28, 0.40)
    goal = Goal("", lambda rows: None, bound, aim, most=most)
    assert goal.verdict(Spread(value, value, value, 1)) == verdict
    assert goal.verdict(None) == ""


def test_the_median_decides_and_not_the_best_round() -> None:
    goal = Goal("", lambda rows: None, 0.28, 0.40)
    assert goal.verdict(Spread(0.2, 0.1, 0.9, 5)) == "NO"
