"""Histories with called agents: the first ones are good, and a seed is always the same history."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter

import pytest
from tests.chaos.history import Canceled, Fault
from tests.simulation.called.plan import AGENTS, CALLED_FAULTS, CALLED_OPERATIONS, SEED_PREFIX, called_plan_of
from tests.simulation.plan import plan_from_json, plan_to_json
from tests.simulation.processes import histories
from tests.simulation.run import main

pytestmark = pytest.mark.extra("mcp")  # one of the called agents is an MCP server


HISTORIES = 60

PRINT_DIGESTS = """
import hashlib
from tests.simulation.called.plan import called_plan_of
from tests.simulation.history import simulate
for seed in range(1, 9):
    print(hashlib.sha256(simulate(called_plan_of(f"called {seed}")).text.encode()).hexdigest())
"""

PRINT_LATE_IMPORTS = """
import sys
from importlib import import_module
from tests.simulation.processes import PRELOADED
for name in PRELOADED:
    import_module(name)
from tests.simulation.history import simulate
from tests.simulation.kinds import SHARES, any_plan_of
before = set(sys.modules)
for prefix in SHARES:
    simulate(any_plan_of(f"{prefix}1"))
print(sorted(name for name in sys.modules.keys() - before if name.startswith(("dragoman", "mcp", "tests"))))
"""


def test_the_first_histories_with_called_agents_are_good() -> None:
    counts: Counter[type] = Counter()
    agents: set[str] = set()
    for outcome in histories(1, HISTORIES, SEED_PREFIX):
        assert outcome.problems == [], f"seed {outcome.plan.seed}"
        counts.update(map(type, outcome.entries))
        agents.update(operation.agent for caller in outcome.plan.callers for operation in caller)
    assert agents == set(AGENTS)
    assert all(counts[kind] > HISTORIES / 3 for kind in (Canceled, Fault))


def test_a_history_with_called_agents_does_not_depend_on_the_process_or_its_hashes() -> None:
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
    assert len(set(digests[0].split())) == 8
    assert digests[0] == digests[1]


def test_processes_share_what_each_kind_of_history_imports() -> None:
    late = subprocess.run([sys.executable, "-c", PRINT_LATE_IMPORTS], capture_output=True, text=True, check=True)
    assert late.stdout == "[]\n"


def test_a_plan_with_called_agents_can_be_kept_as_a_line() -> None:
    plans = [called_plan_of(f"called {seed}") for seed in range(100)]
    assert [plan_from_json(plan_to_json(plan)) for plan in plans] == plans
    assert {operation.kind for plan in plans for caller in plan.callers for operation in caller} == set(
        CALLED_OPERATIONS
    )
    assert set(CALLED_FAULTS) <= {fault.kind for plan in plans for fault in plan.faults}


def test_the_command_plays_seeds_with_called_agents(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "called 1", "--histories", "3", "--processes", "1"]) == 0
    assert "simulate: 3 histories from SEED=called 1" in capsys.readouterr().out
