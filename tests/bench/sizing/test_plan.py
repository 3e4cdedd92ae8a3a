"""Plans for loads, and the limits."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from itertools import pairwise

import pytest
from bench.report.sizing import MEDIANS
from bench.sizing.constants import Split
from bench.sizing.plan import (
    LOADS,
    NATS_CORES,
    PEAK_FACTOR,
    POSTGRES_CORES,
    SLOTS,
    UTILIZATION,
    Costs,
    limits,
    plan,
    streams_load,
    tasks_load,
)
from tests.bench.sizing.synthetic import measured

COSTS = Costs.of(measured())


def test_the_parts_of_a_cost_add_up_to_the_constant_of_the_model() -> None:
    costs = Costs.of(json.loads(MEDIANS.read_text("utf-8"))["medians"])
    for whole, parts in ((costs.send, costs.send_parts), (costs.chunk, costs.chunk_parts)):
        assert sum(part.unit for part in parts.values()) == pytest.approx(whole.unit)
        assert sum(part.commit for part in parts.values()) == pytest.approx(whole.commit)


def test_the_peak_is_a_multiple_of_the_mean() -> None:
    load = tasks_load(86_400)
    assert load.sends == PEAK_FACTOR
    assert load.chunks_per_day == load.chunks / load.sends * 86_400


def test_few_tasks_need_one_process() -> None:
    small = plan(COSTS, LOADS[0])
    assert (small.processes, small.limited_by) == (1, "one is enough")
    assert small.memory == pytest.approx(COSTS.memory.idle, rel=0.01)


def test_processes_keep_the_planned_utilization_and_no_fewer_would() -> None:
    large = plan(COSTS, tasks_load(10_000_000))
    assert large.limited_by == "CPU"
    assert large.server_cores / large.processes <= UTILIZATION * 1.02
    assert large.server_cores / (large.processes - 1) > UTILIZATION * 0.98


def test_idle_turns_are_limited_by_slots_and_need_memory() -> None:
    streams = plan(COSTS, streams_load(100_000))
    assert (streams.processes, streams.limited_by) == (100_000 / SLOTS, "slots")
    assert streams.memory == pytest.approx(
        streams.processes * 95e6 + 100_000 * (COSTS.memory.stream + COSTS.memory.running)
    )


def test_a_hundred_times_the_load_needs_at_most_a_hundred_times_the_cores() -> None:
    plans = [plan(COSTS, load) for load in LOADS[:3]]
    for less, more in pairwise(plans):
        factor = more.load.sends / less.load.sends
        assert less.postgres_cores < more.postgres_cores <= less.postgres_cores * factor
        assert more.growth_per_day == pytest.approx(less.growth_per_day * factor)


def test_a_growing_load_reaches_the_limits_in_their_order() -> None:
    found = limits(COSTS)
    assert len(found) == 4
    assert sorted(found, key=lambda limit: limit.tasks_per_day) == found
    assert all(limit.tasks_per_day > 0 and limit.change for limit in found)


def test_a_limit_is_where_its_part_has_no_more_room() -> None:
    by_name = {limit.name.split()[0]: plan(COSTS, tasks_load(limit.tasks_per_day)) for limit in limits(COSTS)}
    assert by_name["PostgreSQL"].postgres_cores == pytest.approx(UTILIZATION * POSTGRES_CORES, rel=0.02)
    assert by_name["NATS"].nats_cores == pytest.approx(UTILIZATION * NATS_CORES, rel=0.02)
    assert by_name["more"].processes == 33
    assert by_name["the"].growth_per_day * 30 == pytest.approx(1e12)


def test_a_limit_that_no_load_reaches_is_infinitely_far() -> None:
    free = replace(
        COSTS,
        send_parts={**COSTS.send_parts, "nats": Split(0, 0)},
        chunk_parts={**COSTS.chunk_parts, "nats": Split(0, 0)},
    )
    assert limits(free)[-1].tasks_per_day == math.inf
