"""Constants from measured cases, and the predictions from them."""

from __future__ import annotations

import pytest
from bench.sizing.cases import ALL, MEMORY_MANY, Case, Kind, Worker
from bench.sizing.constants import (
    MemoryCosts,
    NotMeasured,
    Split,
    demand,
    slowdown,
    solve,
)
from bench.sizing.predictions import Prediction, missing, predictions
from bench.sizing.queueing import solve_closed
from tests.bench.sizing.synthetic import measured

AT_ONE = Case(Kind.SEND, 1)


def test_the_cost_of_a_commit_is_the_difference_of_two_cases() -> None:
    split = Split.of({"commits": 2.0, "cpu": 5.0}, {"commits": 0.5, "cpu": 2.0}, lambda one: one["cpu"])
    assert (split.unit, split.commit) == (1.0, 2.0)


def test_noise_makes_no_cost_negative() -> None:
    cheaper = Split.of({"commits": 2.0, "cpu": 1.0}, {"commits": 0.5, "cpu": 2.0}, lambda one: one["cpu"])
    assert (cheaper.unit, cheaper.commit) == (2.0, 0.0)
    steep = Split.of({"commits": 2.0, "cpu": 50.0}, {"commits": 0.5, "cpu": 2.0}, lambda one: one["cpu"])
    assert (steep.unit, steep.commit) == (0.0, 4.0)


def test_the_constants_of_a_send_are_recovered_from_its_two_cases() -> None:
    send = demand(measured(), Kind.SEND)
    assert (send.unit, send.commit, send.delay) == pytest.approx((0.001, 0.0005, 0.0003), rel=0.01)


def test_the_delay_does_not_include_the_time_of_other_programs() -> None:
    figures = measured()
    one = figures[AT_ONE.name]
    figures[AT_ONE.name] = {**one, "others": 0.5, "p50": one["p50"] + 2.0}  # 2 ms of CPU took 4 ms
    assert demand(figures, Kind.SEND).delay == pytest.approx(0.0003, rel=0.01)


def test_cold_caches_slow_servers_that_share_a_core() -> None:
    assert [slowdown(measured(), servers) for servers in (1, 2, 3, 4)] == pytest.approx([1, 1.1, 1.2, 1.3])


def test_a_worker_on_the_store_writes_a_claim_for_each_task() -> None:
    plain, worker = (demand(measured(), Kind.SEND, worker=worker) for worker in (Worker.NONE, Worker.ON_STORE))
    assert (worker.writes, plain.writes) == (3, 2)
    assert worker.commit == pytest.approx(plain.commit)
    assert worker.unit > plain.unit


def test_memory_is_the_sum_of_its_parts() -> None:
    costs = MemoryCosts.of(measured())
    assert (costs.idle, costs.waiting, costs.stream, costs.running) == pytest.approx((95e6, 2e3, 25e3, 20e3))
    assert costs.total(MEMORY_MANY[1]) == pytest.approx(95e6 + 6_000 * 2e3 + 2_000 * 25e3)


def test_a_missing_constant_is_named() -> None:
    with pytest.raises(NotMeasured, match="1 server on PostgreSQL, 1 caller: send"):
        demand({}, Kind.SEND)


def test_every_case_has_a_prediction_or_a_reason() -> None:
    figures = measured()
    names = {one.case for one in predictions(figures)}
    assert all(case.constant or case.name in names for case in ALL)
    assert missing(figures) == []
    del figures[AT_ONE.name]
    assert any(AT_ONE.name in reason for reason in missing(figures))


def test_no_prediction_depends_on_what_it_predicts() -> None:
    figures = measured()
    before = [one.predicted for one in predictions(figures)]
    for case in ALL:
        if not case.constant:
            figures[case.name] = {name: value * 2 for name, value in figures[case.name].items()}
    assert [one.predicted for one in predictions(figures)] == before


def test_only_cpu_times_are_stretched_by_the_share_of_other_programs() -> None:
    figures = measured()
    case = Case(Kind.SEND, 16)
    figures[case.name]["others"] = 0.5
    assert solve(figures, case) == solve_closed(demand(figures, Kind.SEND).slowed(2.0), 16)


@pytest.mark.parametrize(
    ("measurement", "disturbed", "verdict"),
    [(100.0, 0.0, "yes"), (50.0, 0.0, "MISSED: the model"), (50.0, 0.4, "MISSED: other programs had 40%")],
)
def test_a_missed_row_says_why(measurement: float, disturbed: float, verdict: str) -> None:
    assert Prediction("case", "per second", 110.0, measurement, disturbed).verdict.startswith(verdict)
