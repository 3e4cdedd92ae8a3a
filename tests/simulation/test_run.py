"""Histories of the real runtime: the first ones are good, and a seed is always the same history."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter

import pytest
from tests.chaos.history import Acknowledged, Canceled, Delivered, Fault, Seen
from tests.simulation.history import simulate
from tests.simulation.plan import FAULTS, OPERATIONS, Plan, PlannedOperation, plan_from_json, plan_of, plan_to_json
from tests.simulation.processes import Played, histories
from tests.simulation.run import main, report

from dragoman.ids import IDS

pytestmark = pytest.mark.long

HISTORIES = 150

PRINT_DIGESTS = """
import hashlib
from tests.simulation.history import simulate
from tests.simulation.plan import plan_of
for seed in (*range(40, 49), 8000375):  # in the last one, two webhooks were once claimed in the order of a set
    print(hashlib.sha256(simulate(plan_of(seed)).text.encode()).hexdigest())
"""


def test_the_first_histories_keep_every_guarantee() -> None:
    counts: Counter[type] = Counter()
    kinds: set[str] = set()
    for outcome in histories(1, HISTORIES):
        assert outcome.problems == [], f"seed {outcome.plan.seed}"
        counts.update(map(type, outcome.entries))
        kinds.update(operation.kind for caller in outcome.plan.callers for operation in caller)
    assert kinds == set(OPERATIONS)
    assert all(counts[kind] > HISTORIES / 10 for kind in (Acknowledged, Canceled, Delivered, Seen, Fault))


def test_tasks_that_wait_for_one_slot_may_take_minutes_together() -> None:
    operations = tuple(PlannedOperation("at once", "stubborn 14000", 0.0, 0, number) for number in range(1, 10))
    outcome = simulate(Plan("slot", servers=1, slots=1, callers=(operations,)))
    assert outcome.problems == []
    assert outcome.seconds > 9 * 14


def test_a_seed_gives_one_history_byte_by_byte() -> None:
    for seed in (3, 7, 14):
        assert simulate(plan_of(seed)).text == simulate(plan_of(seed)).text
    assert simulate(plan_of(3)).text != simulate(plan_of(4)).text


def test_a_history_does_not_depend_on_the_process_or_its_hashes() -> None:
    digests = [
        subprocess.run(
            [sys.executable, "-c", PRINT_DIGESTS],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1")
    ]
    assert len(set(digests[0].split())) == 10
    assert digests[0] == digests[1]


def test_ids_are_random_again_after_a_history() -> None:
    simulate(plan_of(1))
    first = IDS.hex()
    simulate(plan_of(1))
    assert IDS.hex() != first


def test_a_plan_can_be_kept_as_a_line() -> None:
    plans = [plan_of(seed) for seed in range(100)]
    assert [plan_from_json(plan_to_json(plan)) for plan in plans] == plans
    assert {fault.kind for plan in plans for fault in plan.faults} == set(FAULTS)


def test_the_command_prints_a_history_and_its_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "3", "--show"]) == 0
    shown = capsys.readouterr().out
    assert '"what": "Acknowledged"' in shown
    assert shown.rstrip().endswith("SEED=3: ok")


def test_histories_in_several_processes_add_up(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "1", "--histories", "7", "--processes", "2"]) == 0
    operations = sum(plan_of(seed).operations for seed in range(1, 8))
    assert f"simulate: 7 histories, {operations} operations" in capsys.readouterr().out


def test_every_failing_seed_is_printed_and_the_first_one_described(capsys: pytest.CaptureFixture[str]) -> None:
    shares = [
        Played(500, 2000, 4000.0, 3.0, {"3": ["lost", "late"], "5": ["twice"]}),
        Played(2, 8, 16.0, 0.1, {"501": ["lost"]}),
    ]
    totals = report(shares, lambda seed: f"the plan of {seed}")
    assert capsys.readouterr().out.splitlines() == [
        "simulate: SEED=3: lost",
        "    late",
        "the plan of 3",
        "simulate: SEED=5: twice",
        "simulate: SEED=501: lost",
    ]
    assert (totals.histories, totals.failed) == (502, 3)


def test_a_history_is_shown_of_a_given_seed_only(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--show"])
    assert "--show needs --seed" in capsys.readouterr().err
