"""Long outages: selected by name, planned so that those of one part follow each other."""

from __future__ import annotations

import random

import pytest
from tests.chaos.faults.outages import (
    CLUSTER,
    ENOUGH,
    ENOUGH_FOR_SHORT,
    SERVER,
    SHORT,
    SHORTEST_GAP,
    Outage,
    Outages,
    plan_outages,
)


def test_outages_are_selected_by_name() -> None:
    assert CLUSTER.parse("postgres-freeze-30, nats-kill-75", 30) == [
        Outage("postgres", "freeze", 30),
        Outage("nats", "kill", 75),
    ]
    assert SERVER.parse("disk-fill-2.5", 30) == [Outage("disk", "fill", 2.5)]
    assert CLUSTER.parse("all", 30) == CLUSTER.usual
    assert CLUSTER.parse("none", ENOUGH) == []


@pytest.mark.parametrize("target", [CLUSTER, SERVER])
def test_a_longer_run_has_more_outages_by_default(target: Outages) -> None:
    assert target.parse("", ENOUGH) == target.usual
    short = target.parse("", ENOUGH - 1)
    assert short == target.parse("", ENOUGH_FOR_SHORT)
    assert short == [outage for outage in target.usual if outage.seconds <= SHORT]
    assert target.parse("", ENOUGH_FOR_SHORT - 1) == []


@pytest.mark.parametrize("target", [CLUSTER, SERVER])
@pytest.mark.parametrize("name", ["redis-kill-3", "nats-drop-3", "nats-kill-x", "nats", "disk", "disk-fill"])
def test_an_unknown_outage_is_refused(target: Outages, name: str) -> None:
    with pytest.raises(ValueError, match=f'"{name}" is not an outage here; .*-SECONDS'):
        target.parse(name, 30)


def test_outages_of_another_target_are_refused() -> None:
    with pytest.raises(ValueError, match="disk-fill-SECONDS"):
        SERVER.parse("nats-kill-3", 30)
    with pytest.raises(ValueError, match="postgres-failover-SECONDS"):
        CLUSTER.parse("disk-fill-5", 30)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("part", CLUSTER.kinds)
def test_five_minutes_have_room_for_all_outages_of_a_part(part: str, seed: int) -> None:
    planned = plan_outages(CLUSTER.usual, part, 250, random.Random(seed))
    expected = sorted(str(one) for one in CLUSTER.usual if one.part == part)
    assert sorted(map(str, (outage for _, outage in planned))) == expected
    ends = 0.0
    for start, outage in planned:
        assert start >= ends + SHORTEST_GAP * 0.999
        ends = start + outage.seconds
    assert ends <= 250


def test_outages_of_all_parts_can_follow_each_other() -> None:
    planned = plan_outages(SERVER.usual, "", ENOUGH_FOR_SHORT, random.Random(1))
    assert sorted(map(str, (outage for _, outage in planned))) == sorted(map(str, SERVER.usual))


def test_outages_that_do_not_fit_are_left_out() -> None:
    assert len(plan_outages(CLUSTER.usual, "nats", 60, random.Random(1))) < 4
    assert plan_outages(CLUSTER.usual, "nats", 5, random.Random(1)) == []
