"""The judge of the soak: what is flat passes, what grows does not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.chaos.soak import Look, judge

MIB = 1024 * 1024


def looks(change: Callable[[Look], Look] = lambda one: one) -> list[Look]:
    """A run of two minutes: it warms up for 40 seconds, then nothing grows but the store, by 3000 bytes a task."""
    flat = (
        Look(
            at,
            memory=(80 + min(at, 40)) * MIB,
            handles=20 + min(at, 40) // 4,
            stored=at * 30_000,
            wal=MIB,
            tasks=at * 10,
        )
        for at in range(120)
    )
    return [change(one) for one in flat]


def test_a_flat_run_passes() -> None:
    assert judge(looks()) == []


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda one: replace(one, memory=one.memory + one.at * MIB), "memory grew from"),
        (lambda one: replace(one, handles=one.handles + one.at), "open files grew from"),
        (lambda one: replace(one, stored=one.at**2 * 1000), "a task took"),
        (lambda one: replace(one, wal=one.at * 2 * MIB), "write-ahead log grew to 238"),
        (lambda one: replace(one, tasks=5), "too little to judge by"),
    ],
)
def test_growth_is_reported(change: Callable[[Look], Look], problem: str) -> None:
    assert problem in "\n".join(judge(looks(change)))


@pytest.mark.parametrize(("seconds", "passes"), [(10, True), (3600, False)])
def test_only_short_runs_tolerate_an_eighth_of_growth(seconds: int, passes: bool) -> None:
    rate = seconds * 150 // 120  # tasks between two looks, the last 40 of which are the late half
    run = [
        replace(one, tasks=at * rate, stored=(at * 3400 + max(0, at - 80) * 425) * rate)
        for at, one in enumerate(looks())
    ]
    assert (judge(run) == []) is passes
