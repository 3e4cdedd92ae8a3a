"""Histories that once failed, or still do, each with the reason (tests/simulation/seeds.toml)."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from tests.simulation.called.known import KNOWN_DEFECTS, known_defect
from tests.simulation.history import simulate
from tests.simulation.plan import plan_from_json

SEEDS = tomllib.loads(Path(__file__).with_name("seeds.toml").read_text(encoding="utf-8"))["history"]


class KnownDefect(Exception):
    """A history fails in the way that its seed names."""


def _case(history: dict[str, str]) -> Any:
    marks = [pytest.mark.xfail(raises=KnownDefect, strict=True, reason=history["reason"])] if "known" in history else []
    return pytest.param(history, id=history["name"], marks=marks)


@pytest.mark.parametrize("history", [_case(history) for history in SEEDS])
def test_a_history_that_once_failed_is_good(history: dict[str, str]) -> None:
    assert history["reason"]
    outcome = simulate(plan_from_json(history["plan"]))
    assert outcome.unexpected == []
    if outcome.problems:
        assert {known_defect(problem) for problem in outcome.problems} == set(history["known"].split("; "))
        raise KnownDefect(outcome.problems[0])


def test_every_known_defect_has_a_seed() -> None:
    kinds = {kind for history in SEEDS if "known" in history for kind in history["known"].split("; ")}
    assert kinds == set(KNOWN_DEFECTS)
