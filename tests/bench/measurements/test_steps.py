"""The measurements of durable steps: their figures on a real store, and failures that are not hidden."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.measurements.steps import (
    COMMIT,
    FINISHED,
    RATE,
    STEP,
    SYNC_STEP,
    answer_case,
    check,
    measure_many,
    measure_one,
    serving,
)

from bench.measurements import steps
from dragoman import Turn
from dragoman.core.task import states
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


async def test_a_commit_and_its_steps_have_a_median_each(tmp_path: Path) -> None:
    figures = {case: (value, unit) for case, value, unit in await measure_one(tmp_path / "one.db", 3)}
    assert set(figures) == {COMMIT, STEP, SYNC_STEP}
    assert all(value > 0 and unit == "ms" for value, unit in figures.values())


async def test_the_rate_counts_the_steps_of_all_tasks(tmp_path: Path) -> None:
    ((case, rate, unit),) = await measure_many(tmp_path / "many.db", 2)
    assert (case, unit) == (RATE, "steps/s")
    assert rate > 0


async def test_a_turn_that_is_answered_finds_its_steps_and_makes_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = 0

    async def find() -> str:
        nonlocal runs
        runs += 1
        return "found"

    monkeypatch.setattr(steps, "find", find)
    figures = {case: value for case, value, _ in await steps.measure_finished(tmp_path / "finished.db", 2)}
    assert set(figures) == {answer_case(0), answer_case(FINISHED)}
    assert all(value > 0 for value in figures.values())
    assert runs == FINISHED


async def test_a_turn_that_fails_is_not_measured(tmp_path: Path) -> None:
    async def failing(turn: Turn) -> None:
        raise ConnectionError("the disk is away")

    async with serving(tmp_path / "failing.db", failing) as (_, send):
        task = await send("go", "")
    with pytest.raises(RuntimeError, match="the disk is away"):
        check(task, states.COMPLETED)
    completed = pb.Task(id="t", status=pb.TaskStatus(state=pb.TASK_STATE_COMPLETED))
    assert check(completed, states.COMPLETED).id == "t"
