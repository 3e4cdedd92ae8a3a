"""Histories that once failed, each with the reason (tests/simulation/seeds.toml)."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from tests.simulation.history import simulate
from tests.simulation.plan import plan_from_json

SEEDS = tomllib.loads(Path(__file__).with_name("seeds.toml").read_text(encoding="utf-8"))["history"]


@pytest.mark.parametrize("history", SEEDS, ids=[history["name"] for history in SEEDS])
def test_a_history_that_once_failed_is_good(history: dict[str, str]) -> None:
    assert history["reason"]
    assert simulate(plan_from_json(history["plan"])).problems == []
