"""Mutated answers of remote servers; `make fuzz-remote` runs many more."""

from __future__ import annotations

import random

import pytest
from tests.fuzz.remote.run import CHECKS, check


@pytest.mark.parametrize("name", CHECKS)
async def test_answers_without_mutations_are_read(name: str) -> None:
    ends = {await CHECKS[name](random.Random(seed), 0) for seed in range(20)}
    assert ends <= {"completed", "answered"}


@pytest.mark.parametrize("name", CHECKS)
async def test_mutated_answers_end_the_turn_or_the_call(name: str) -> None:
    ends = [await check(name, seed) for seed in range(150)]
    assert [(seed, fault) for seed, (_, fault) in enumerate(ends) if fault] == []
    assert len({ended for ended, _ in ends}) > 1  # the mutations have an effect
