"""`explain`: where a task stands, who holds it, and what happens next, in each of the places it can stand."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.runtime.test_sessions import Shifted, hold, two
from tests.runtime.world import World, world

from dragoman import Turn, retry
from dragoman.runtime.explain import Explanation


async def explained(here: World, task_id: str) -> Explanation:
    (one,) = await here.runtime.explainer.explain(task_id)
    return one


async def waits(turn: Turn) -> str:
    if turn.text == "ask":
        turn.ask("which?")
    await asyncio.Event().wait()
    return ""


async def test_a_running_task_is_held_here_until_its_session_ends(tmp_path: Path) -> None:
    async with world(tmp_path, waits, time_limit=60) as here:
        task = await here.start()
        one = await explained(here, task.id)
        assert (one.here, one.attempts_allowed, one.subscribers) == (True, 1, 0)
        assert one.session_expires > one.head.updated
        assert "ends it as FAILED after" in one.next
        assert "60 s" in one.next


async def test_a_task_without_a_slot_waits_for_one(tmp_path: Path) -> None:
    async with world(tmp_path, waits, slots=1) as here:
        await here.start()
        waiting = await here.start()
        one = await explained(here, waiting.id)
        assert (one.head.ready, one.here, one.free_slots) == (True, False, 0)
        assert one.next == "It waits for a free slot here; all are taken."


async def test_one_that_asked_waits_for_its_caller_and_one_that_ended_for_nothing(tmp_path: Path) -> None:
    async with world(tmp_path, waits) as here:
        asked = await here.send("ask")
        assert (await explained(here, asked.id)).next == "It waits for a message of its caller."
        await here.cancel(asked.id)
        assert (await explained(here, asked.id)).next == "Nothing: it has ended."


async def test_the_task_of_a_dead_process_says_what_becomes_of_it(tmp_path: Path) -> None:
    clock = Shifted()
    async with two(tmp_path, clock, hold, on_crash=retry(1)) as (one, other):
        task = await one.start()
        assert "begins attempt 2 of 2 after" in (await explained(other, task.id)).next
        assert not (await explained(other, task.id)).here
        clock.ahead += 15_000
        assert (await explained(other, task.id)).next.startswith("Its process is gone: ")


async def test_nothing_is_known_of_what_is_not_there(tmp_path: Path) -> None:
    async with world(tmp_path, waits) as here:
        assert await here.runtime.explainer.explain("none") == []
