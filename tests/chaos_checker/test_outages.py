"""Long outages: selected by name, planned so that those of one part follow each other."""

from __future__ import annotations

import random

import pytest
from tests.chaos.outages import ALL, ENOUGH, PARTS, SHORTEST_GAP, Outage, parse_outages, plan_outages


def test_outages_are_selected_by_name() -> None:
    assert parse_outages("postgres-freeze-30, nats-kill-75", 30) == [
        Outage("postgres", "freeze", 30),
        Outage("nats", "kill", 75),
    ]
    assert parse_outages("all", 30) == ALL
    assert parse_outages("none", ENOUGH) == []


def test_only_a_run_of_five_minutes_has_all_outages_by_default() -> None:
    assert parse_outages("", ENOUGH) == ALL
    assert parse_outages("", ENOUGH - 1) == []


@pytest.mark.parametrize("name", ["redis-kill-3", "nats-drop-3", "nats-kill-x", "nats"])
def test_an_unknown_outage_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f'"{name}" is not an outage'):
        parse_outages(name, 30)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("part", PARTS)
def test_five_minutes_have_room_for_all_outages_of_a_part(part: str, seed: int) -> None:
    planned = plan_outages(ALL, part, 250, random.Random(seed))
    assert sorted(map(str, (outage for _, outage in planned))) == sorted(str(one) for one in ALL if one.part == part)
    ends = 0.0
    for start, outage in planned:
        assert start >= ends + SHORTEST_GAP * 0.999
        ends = start + outage.seconds
    assert ends <= 250


def test_outages_that_do_not_fit_are_left_out() -> None:
    assert len(plan_outages(ALL, "nats", 60, random.Random(1))) < 4
    assert plan_outages(ALL, "nats", 10, random.Random(1)) == []
