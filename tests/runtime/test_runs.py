"""The registry of running turns: slots, and waiting until none is taken."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.eventually import eventually
from tests.runtime.harness import open_harness

from dragoman import Turn
from dragoman.runtime.runs import RunRegistry


async def test_reserved_slots_are_not_free_and_not_idle() -> None:
    runs = RunRegistry(2)
    runs.reserved = 1
    waiting = asyncio.ensure_future(runs.wait_idle())
    await asyncio.sleep(0)
    runs.wake_if_idle()
    assert (runs.free_slots, runs.idle, waiting.done()) == (1, False, False)
    runs.reserved = 0
    runs.wake_if_idle()
    await waiting
    assert (runs.free_slots, runs.busiest) == (2, ("", 0))


async def test_running_turns_are_found_by_task_and_counted_by_agent(tmp_path: Path) -> None:
    async def waits(turn: Turn) -> None:
        await here.at("go").wait()

    async with open_harness(tmp_path, waits, slots=5) as here:
        tasks = [await here.start() for _ in range(3)]
        runs = here.runtime.scheduler.runs
        await eventually(lambda: len(runs) == 3)
        assert {runner.task_id for runner in runs} == {task.id for task in tasks}
        assert all(runs.find(runner.record.ref) is runner for runner in runs)
        assert (runs.busiest, runs.free_slots) == (("waits", 3), 2)
        here.at("go").set()
        await runs.wait_idle()
        assert (len(runs), runs.free_slots) == (0, 5)
