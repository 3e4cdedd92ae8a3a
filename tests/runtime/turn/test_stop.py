"""How turns stop: CANCELED is written when the agent has stopped, and never because time has passed."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest
from tests.eventually import eventually
from tests.runtime.harness import open_harness, state, status_text

from dragoman import Turn
from dragoman.core.errors import TaskNotCancelable
from dragoman.runtime.operations import cancel
from dragoman.runtime.turn import stop
from dragoman.stores.sqlite import open_store


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Agents are fenced at once, and CancelTask does not wait for them."""
    monkeypatch.setattr(stop, "FENCE_TIMEOUT", 0.0)
    monkeypatch.setattr(cancel, "CANCEL_TIMEOUT", 0.0)


async def test_a_canceled_thread_keeps_its_task_active_until_it_returns(tmp_path: Path) -> None:
    begun, release = threading.Event(), threading.Event()

    def deaf(turn: Turn) -> str:
        begun.set()
        assert release.wait(60)
        return "never seen"

    async with open_harness(tmp_path, deaf) as here:
        task = await here.start()
        await eventually(begun.is_set)
        (runner,) = here.runtime.scheduler._runners.values()
        await here.cancel(task.id)
        await eventually(lambda: runner._fenced)
        assert state(await here.cancel(task.id)) in ("SUBMITTED", "WORKING")
        release.set()
        assert state(await here.ended(task.id)) == "CANCELED"
        with pytest.raises(TaskNotCancelable):
            await here.cancel(task.id)


async def test_a_time_limit_ends_a_canceled_task_whose_agent_does_not_stop(tmp_path: Path) -> None:
    async def stubborn(turn: Turn) -> None:
        turn.status("at it")
        while not here.at("go").is_set():
            try:
                await here.at("go").wait()
            except asyncio.CancelledError:
                continue

    async with open_harness(tmp_path, stubborn, time_limit=0.2) as here:
        task = await here.start()
        await eventually(lambda: here.runtime.scheduler.running)
        await here.cancel(task.id)
        ended = await here.ended(task.id)
        assert (state(ended), status_text(ended).partition(":")[0]) == ("FAILED", "TIMED_OUT")
        here.at("go").set()


async def test_a_canceled_thread_that_outlasts_its_server_is_canceled_by_the_next_start(tmp_path: Path) -> None:
    begun, release = threading.Event(), threading.Event()

    def deaf(turn: Turn) -> None:
        begun.set()
        assert release.wait(60)

    async with open_harness(tmp_path, deaf) as here:
        task = await here.start()
        await eventually(begun.is_set)
        (runner,) = here.runtime.scheduler._runners.values()
        await here.cancel(task.id)
        await eventually(lambda: runner._fenced)
        await here.runtime.scheduler.drain(0)
        await here.idle()
        assert state(await here.get(task.id)) in ("SUBMITTED", "WORKING")
    release.set()
    async with open_harness(tmp_path, deaf, store=open_store(tmp_path / "tasks.db")) as there:
        assert state(await there.get(task.id)) == "CANCELED"
