"""Histories that once failed, each with the reason (tests/simulation/seeds.toml)."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
from tests.simulation.called.plan import SEED_PREFIX
from tests.simulation.history import simulate
from tests.simulation.plan import plan_from_json

SEEDS = tomllib.loads(Path(__file__).with_name("seeds.toml").read_text(encoding="utf-8"))["history"]

VARIANTS: Final = 30
"""Seeds that a plan of called agents is played with: a change of the runtime moves all chances."""


def _case(history: dict[str, str]) -> Any:
    is_called = SEED_PREFIX in history["plan"]  # one of the called agents is an MCP server
    return pytest.param(history, id=history["name"], marks=[pytest.mark.extra("mcp")] if is_called else [])


@pytest.mark.parametrize("history", [_case(history) for history in SEEDS])
def test_a_history_that_once_failed_is_good(history: dict[str, str]) -> None:
    assert history["reason"]
    plan = plan_from_json(history["plan"])
    for number in range(VARIANTS if plan.called else 1):
        assert simulate(replace(plan, seed=f"{plan.seed}.{number}") if number else plan).problems == [], number
