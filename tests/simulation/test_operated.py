"""Histories with operators: the first ones are good, and each kind of act happens."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.simulation.operated.callers import Erased, HookChanged, Operated, Paused, Rerun
from tests.simulation.operated.plan import OPERATED_OPERATIONS, SEED_PREFIX, operated_plan_of
from tests.simulation.operated.quotas import Limited, Requested
from tests.simulation.operated.readers import SlowRead
from tests.simulation.plan import plan_from_json, plan_to_json
from tests.simulation.processes import histories
from tests.simulation.run import main

pytestmark = pytest.mark.long

HISTORIES = 120
KINDS = (Erased, HookChanged, Limited, Operated, Paused, Requested, Rerun, SlowRead)


def test_the_first_histories_with_operators_are_good() -> None:
    counts: Counter[type] = Counter()
    for outcome in histories(1, HISTORIES, SEED_PREFIX):
        assert outcome.problems == [], f"seed {outcome.plan.seed}"
        counts.update(map(type, outcome.entries))
    assert all(counts[kind] > HISTORIES / 20 for kind in KINDS)


def test_a_plan_with_operators_can_be_kept_as_a_line() -> None:
    plans = [operated_plan_of(f"operated {seed}") for seed in range(100)]
    assert [plan_from_json(plan_to_json(plan)) for plan in plans] == plans
    assert {one.kind for plan in plans for caller in plan.callers for one in caller} == set(OPERATED_OPERATIONS)


def test_the_command_plays_seeds_with_operators(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "operated 1", "--histories", "3", "--processes", "1"]) == 0
    assert "simulate: 3 histories from SEED=operated 1" in capsys.readouterr().out
