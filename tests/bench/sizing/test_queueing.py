"""The queueing model: limits that are known without it."""

from __future__ import annotations

import pytest
from bench.sizing.queueing import Demand, Saturated, batch_of, commit_delay, solve_closed, solve_open

SEND = Demand(unit=0.001, commit=0.0005, delay=0.002, caller=0.0002, writes=2, full_batch=8)


def test_one_caller_waits_for_each_of_its_parts_and_nothing_else() -> None:
    solution = solve_closed(SEND, 1)
    assert solution.batch == 1
    assert solution.latency == pytest.approx(0.001 + 2 * 0.0005 + 2 * 0.002 + 0.0002)
    assert solution.rate == pytest.approx(1 / solution.latency)


def test_many_callers_are_limited_by_the_core() -> None:
    solution = solve_closed(SEND, 1_000)
    assert solution.rate == pytest.approx(1 / SEND.cpu(solution.batch), rel=0.01)
    assert solution.utilization == pytest.approx(1, rel=0.01)
    assert solution.latency == pytest.approx(1_000 / solution.rate)


def test_servers_on_one_core_share_fewer_writes_per_commit_than_one_with_all_callers() -> None:
    one, four = solve_closed(SEND, 16), solve_closed(SEND, 16, servers=4)
    assert four.batch < one.batch
    assert four.rate < one.rate


def test_half_of_few_callers_share_a_commit_and_many_fill_the_batch() -> None:
    assert [batch_of(callers, 1e9) for callers in (1, 2, 4, 16)] == pytest.approx([1, 1, 2, 8])
    assert batch_of(10_000, 8) == pytest.approx(8, rel=0.01)


def test_a_write_behind_a_commit_waits_for_half_of_it() -> None:
    assert commit_delay(0.002, 1) == 0.002
    assert commit_delay(0.002, 1e9) == pytest.approx(0.003)


def test_rare_chunks_have_a_commit_each_and_do_not_queue() -> None:
    solution = solve_open(SEND, 0.01)
    assert solution.batch == pytest.approx(1, abs=0.01)
    assert solution.latency == pytest.approx(0.001 + 0.0005 + 0.002 + 0.0002, rel=0.01)


def test_more_chunks_share_commits_and_wait_longer() -> None:
    solutions = [solve_open(SEND, rate) for rate in (10, 200, 600)]
    assert sorted(solutions, key=lambda one: one.batch) == solutions
    assert sorted(solutions, key=lambda one: one.latency) == solutions


def test_more_than_a_core_is_reported() -> None:
    with pytest.raises(Saturated, match="of a core"):
        solve_open(SEND, 1_200)


def test_commits_one_after_the_other_are_no_overload_while_they_have_room() -> None:
    slow = Demand(unit=0.00001, commit=0.01, delay=0.0, caller=0.0, writes=1, full_batch=20)
    solution = solve_open(slow, 1_000)
    assert solution.utilization > 0.95
    assert solution.latency == pytest.approx(0.015, rel=0.1)  # half a commit in flight, then its own
    with pytest.raises(Saturated):
        solve_open(slow, 2_500)


def test_a_slower_core_changes_cpu_times_only() -> None:
    slowed = SEND.slowed(2)
    assert (slowed.unit, slowed.commit, slowed.delay, slowed.caller) == (0.002, 0.001, 0.002, 0.0002)
