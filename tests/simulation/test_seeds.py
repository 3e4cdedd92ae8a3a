"""Histories that once failed, or still do, each with the reason (tests/simulation/seeds.toml)."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
from tests.simulation.called.known import KNOWN_DEFECTS, known_defect
from tests.simulation.called.plan import SEED_PREFIX
from tests.simulation.history import simulate
from tests.simulation.plan import plan_from_json

SEEDS = tomllib.loads(Path(__file__).with_name("seeds.toml").read_text(encoding="utf-8"))["history"]


VARIANTS: Final = 30
"""Seeds that a plan with a known defect is played with until it shows: a change of the runtime moves all chances."""


class KnownDefect(Exception):
    """A history fails in the way that its seed names."""


def _case(history: dict[str, str]) -> Any:
    marks: list[pytest.MarkDecorator] = (
        [pytest.mark.xfail(raises=KnownDefect, strict=True, reason=history["reason"])] if "known" in history else []
    )
    if SEED_PREFIX in history["plan"]:
        marks.append(pytest.mark.extra("mcp"))  # called agents, one of which is an MCP server
    return pytest.param(history, id=history["name"], marks=marks)


@pytest.mark.parametrize("history", [_case(history) for history in SEEDS])
def test_a_history_that_once_failed_is_good(history: dict[str, str]) -> None:
    assert history["reason"]
    plan = plan_from_json(history["plan"])
    known = set(filter(None, history.get("known", "").split("; ")))
    for number in range(VARIANTS if known else 1):
        outcome = simulate(replace(plan, seed=f"{plan.seed}.{number}") if number else plan)
        assert outcome.unexpected == []
        assert known or outcome.problems == []
        if known & set(map(known_defect, outcome.problems)):
            raise KnownDefect(outcome.problems[0])


def test_every_known_defect_has_a_seed() -> None:
    kinds = {kind for history in SEEDS if "known" in history for kind in history["known"].split("; ")}
    assert kinds == set(KNOWN_DEFECTS)
