"""A run continues with the next unread message; nothing of one turn affects the next."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import set_timings
from tests.eventually import eventually
from tests.runtime.harness import Harness, open_harness, state, status_text
from tests.runtime.test_sessions import Shifted, reaper, two

from dragoman import Turn, retry
from dragoman.core.limits.quotas import TaskBudgets
from dragoman.core.task.log import Append, Appended
from dragoman.runtime.turn.runner import TurnRunner
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """CancelTask does not wait for the agent."""
    set_timings(monkeypatch, cancel_timeout=0.0)


class Stage:
    """An agent whose first turn ends on a signal and ignores cancels; the second one obeys them."""

    def __init__(self) -> None:
        self.began, self.notified, self.may = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.second: asyncio.Queue[tuple[bool, str, int]] = asyncio.Queue()
        """The cancel state of the second turn at its beginning."""
        self.over = asyncio.Event()

    async def plays(self, turn: Turn) -> str:
        if turn.text == "first":
            self.began.set()
            while not self.may.is_set():
                try:
                    await self.may.wait()
                except asyncio.CancelledError:
                    if turn.cancel_reason == "drain":
                        raise
                    self.notified.set()
            return "overtakes the cancel"
        task = asyncio.current_task()
        assert task is not None
        self.second.put_nowait((turn.canceled, turn.cancel_reason, task.cancelling()))
        try:
            await asyncio.Event().wait()
        finally:
            self.over.set()
        return "never"


ACTIVE = ("SUBMITTED", "WORKING")
UNTOUCHED = (False, "", 0)


def run_of(here: Harness) -> TurnRunner:
    (run,) = here.runtime.scheduler.runs
    return run


class Held:
    """A store that holds back the end of a turn."""

    def __init__(self, here: Harness) -> None:
        self.waits, self.may = asyncio.Event(), asyncio.Event()
        self._append: Any = here.store.append
        here.store.append = self.append  # type: ignore[method-assign]

    def append(self, change: Append) -> asyncio.Future[Appended]:
        return asyncio.ensure_future(self._later(change)) if change.release else self._append(change)

    async def _later(self, change: Append) -> Appended:
        self.waits.set()
        await self.may.wait()
        appended: Appended = await self._append(change)
        return appended


async def between_two_turns(here: Harness, stage: Stage) -> tuple[Held, pb.Task]:
    """A task whose first turn has ended, with the write of its end held back; the message of the second one waits."""
    held = Held(here)
    task = await here.start("first")
    await stage.began.wait()
    await here.start("second", task_id=task.id)
    stage.may.set()
    await held.waits.wait()
    return held, task


async def test_a_message_after_a_cancel_is_not_canceled(tmp_path: Path) -> None:
    stage = Stage()
    async with asyncio.timeout(60), open_harness(tmp_path, stage.plays) as here:
        task = await here.start("first")
        await stage.began.wait()
        assert state(await here.cancel(task.id)) in ACTIVE
        await stage.notified.wait()
        timers = list(run_of(here).deadlines.timers)
        await here.start("second", task_id=task.id)
        stage.may.set()
        assert await stage.second.get() == UNTOUCHED
        assert timers
        assert all(timer.cancelled() for timer in timers), "the fence timer of the first turn is canceled"
        assert state(await here.get(task.id)) in ACTIVE


async def test_the_next_turn_can_be_canceled_like_any_other(tmp_path: Path) -> None:
    stage = Stage()
    async with asyncio.timeout(60), open_harness(tmp_path, stage.plays) as here:
        task = await here.start("first")
        await stage.began.wait()
        await here.cancel(task.id)
        await here.start("second", task_id=task.id)
        stage.may.set()
        await stage.second.get()
        await here.cancel(task.id)
        await stage.over.wait()
        ended = await here.ended(task.id)
        assert (state(ended), status_text(ended)) == ("CANCELED", ""), "it stopped without a fence"


async def test_a_cancel_applies_to_every_message_that_had_arrived(tmp_path: Path) -> None:
    stage = Stage()
    async with asyncio.timeout(60), open_harness(tmp_path, stage.plays) as here:
        task = await here.start("first")
        await stage.began.wait()
        await here.start("second", task_id=task.id)
        assert state(await here.cancel(task.id)) in ACTIVE
        stage.may.set()
        assert state(await here.ended(task.id)) == "CANCELED"
        assert stage.second.empty()


@pytest.mark.parametrize("goes_on", ["before it is on disk", "after it is on disk"])
async def test_a_cancel_between_two_turns_stops_the_next_one(tmp_path: Path, goes_on: str) -> None:
    """No turn can be stopped while its end is being written: CancelTask stops the next one before it responds."""
    stage = Stage()
    async with asyncio.timeout(60), open_harness(tmp_path, stage.plays) as here:
        held, task = await between_two_turns(here, stage)
        ask = here.store.cancel_requests.request

        async def asks(*given: Any) -> None:
            if goes_on == "before it is on disk":
                held.may.set()
                await stage.second.get()
            await ask(*given)

        here.store.cancel_requests.request = asks  # type: ignore[assignment]
        assert state(await here.cancel(task.id)) in ACTIVE
        held.may.set()
        assert state(await here.ended(task.id)) == "CANCELED"
        assert stage.over.is_set() == (goes_on == "before it is on disk"), "else the second turn never begins"


async def test_an_end_that_waits_for_the_store_is_not_overtaken_by_one_without_the_agent(tmp_path: Path) -> None:
    stage = Stage()
    async with asyncio.timeout(60), open_harness(tmp_path, stage.plays) as here:
        held = Held(here)
        task = await here.start("first")
        await stage.began.wait()
        await here.cancel(task.id)
        await here.start("second", task_id=task.id)
        stage.may.set()
        await held.waits.wait()
        run_of(here).mute()  # the timeout: the agent has stopped, and its end is being written
        held.may.set()
        assert await stage.second.get() == UNTOUCHED


async def test_the_second_turn_waits_for_the_next_server_after_a_drain_between_two_turns(tmp_path: Path) -> None:
    stage = Stage()
    async with asyncio.timeout(60), open_harness(tmp_path, stage.plays) as here:
        held, task = await between_two_turns(here, stage)
        await here.runtime.scheduler.drain(0)
        held.may.set()
        await here.idle()
        assert state(await here.get(task.id)) in ACTIVE
        assert stage.second.empty()
    async with asyncio.timeout(60), open_harness(tmp_path, stage.plays) as here:
        assert await stage.second.get() == UNTOUCHED


async def test_a_limit_applies_to_each_turn(tmp_path: Path) -> None:
    """The first turn ends past its limit; the second one has the full limit, and exceeds it as well."""
    stage = Stage()
    async with asyncio.timeout(60), open_harness(tmp_path, stage.plays, time_limit=0.2) as here:
        task = await here.start("first")
        await stage.notified.wait()
        await here.start("second", task_id=task.id)
        stage.may.set()
        assert await stage.second.get() == UNTOUCHED
        ended = await here.ended(task.id)
        assert (state(ended), status_text(ended).split(":")[0]) == ("FAILED", "TIMED_OUT")


async def test_the_timers_of_a_turn_stop_at_its_end(tmp_path: Path) -> None:
    stage = Stage()
    async with asyncio.timeout(60), open_harness(tmp_path, stage.plays, time_limit=3600, idle_limit=1800) as here:
        task = await here.start("first")
        await stage.began.wait()
        limits = run_of(here).deadlines
        before, began = list(limits.timers), limits.started_at
        await here.start("second", task_id=task.id)
        stage.may.set()
        assert await stage.second.get() == UNTOUCHED
        assert all(timer.cancelled() for timer in before)
        assert len([timer for timer in limits.timers if not timer.cancelled()]) == 2
        assert limits.started_at > began, "`explain` says since when the present turn works"


async def test_a_task_over_its_budget_gets_no_other_turn(tmp_path: Path) -> None:
    stage = Stage()

    async def spends(turn: Turn) -> str:
        if turn.text == "first":
            turn.usage(tokens=100)
        return await stage.plays(turn)

    async with asyncio.timeout(60), open_harness(tmp_path, spends, budgets=TaskBudgets({"tokens": 50})) as here:
        task = await here.start("first")
        await stage.notified.wait()
        await here.start("second", task_id=task.id)
        stage.may.set()
        ended = await here.ended(task.id)
        assert (state(ended), status_text(ended).split(":")[0]) == ("FAILED", "OVER_BUDGET")


async def test_references_of_a_message_do_not_carry_over_to_the_next(tmp_path: Path) -> None:
    seen: list[list[str]] = []
    stage = Stage()

    async def refers(turn: Turn) -> str:
        seen.append([one.id for one in turn.references])
        return await stage.plays(turn)

    async with asyncio.timeout(60), open_harness(tmp_path, refers) as here:
        stage.may.set()
        other = await here.send("first")
        stage.may.clear()
        task = await here.start("first", reference_task_ids=[other.id])
        await eventually(lambda: len(seen) == 2)
        await here.start("second", task_id=task.id)
        stage.may.set()
        await stage.second.get()
        assert seen == [[], [other.id], []]


async def test_attempts_are_counted_per_turn(tmp_path: Path) -> None:
    seen: list[tuple[str, int]] = []
    clock, stage = Shifted(), Stage()

    async def counts(turn: Turn) -> str:
        seen.append((turn.text, turn.attempt))
        return await stage.plays(turn)

    async with asyncio.timeout(60), two(tmp_path, clock, counts, on_crash=retry(1)) as (one, other):
        task = await one.start("first")
        await eventually(lambda: len(seen) == 1)
        clock.ahead += 15_000
        await reaper(other).reap()
        await eventually(lambda: len(seen) == 2)
        await other.start("second", task_id=task.id)
        stage.may.set()
        await eventually(lambda: len(seen) == 3)
        assert seen == [("first", 1), ("first", 2), ("second", 1)]
