"""`explain`: the holder of a task and what happens next, in each situation."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.runtime.harness import Harness, open_harness
from tests.runtime.remote_agent import DONE, Far, served
from tests.runtime.test_sessions import Shifted, hold, two

from dragoman import Retry, Turn, retry
from dragoman.core.task import states
from dragoman.core.task.maintenance import RetentionPolicy
from dragoman.runtime.observe.explain import Explanation


async def explained(here: Harness, task_id: str) -> Explanation:
    (one,) = await here.runtime.explainer.explain(task_id)
    return one


async def waits(turn: Turn) -> str:
    if turn.text == "ask":
        turn.ask("which?")
    await asyncio.Event().wait()
    return ""


async def test_a_running_task_is_held_here_until_its_session_ends(tmp_path: Path) -> None:
    async with open_harness(tmp_path, waits, time_limit=60) as here:
        task = await here.start()
        one = await explained(here, task.id)
        assert (one.here, one.attempts_allowed, one.subscribers) == (True, 1, 0)
        assert one.session_expires > one.record.updated
        assert "it has produced no output yet. Its time limit is 60 s: at " in one.next
        assert "If this server dies, it ends as FAILED within 10 s" in one.next


async def test_the_idle_limit_of_a_silent_agent_is_explained(tmp_path: Path) -> None:
    begun = asyncio.Event()

    async def speaks_once(turn: Turn) -> None:
        turn.chunk("x")
        begun.set()
        await asyncio.Event().wait()

    async with open_harness(tmp_path, speaks_once, idle_limit=50) as here:
        task = await here.start()
        await begun.wait()
        text = (await explained(here, task.id)).next
        assert "its last output was " in text
        assert "Its idle limit is 50 s: without output it is stopped at about " in text
    async with open_harness(tmp_path, waits) as here:
        task = await here.start()
        assert "It has no time_limit and no idle_limit" in (await explained(here, task.id)).next


async def test_a_task_without_a_slot_waits_for_one(tmp_path: Path) -> None:
    async with open_harness(tmp_path, waits, slots=1) as here:
        await here.start()
        waiting = await here.start()
        one = await explained(here, waiting.id)
        assert (one.record.ready, one.here, one.free_slots) == (True, False, 0)
        assert one.next.startswith('It waits for a free slot here: all 1 are taken, by agent "waits". It starts when')


async def test_a_task_with_a_question_waits_for_its_caller_and_a_finished_one_has_ended(tmp_path: Path) -> None:
    async with open_harness(tmp_path, waits) as here:
        waiting_task = await here.send("ask")
        assert (await explained(here, waiting_task.id)).next == (
            'It waits for a message from its caller: "which?" Without an answer it waits indefinitely '
            "(--retention input-required=AGE is not set). A cancel also ends it."
        )
        await here.cancel(waiting_task.id)
        assert (await explained(here, waiting_task.id)).next == "Nothing: the task has ended."


async def test_a_task_whose_agent_is_not_served_says_why_its_caller_does_not_find_it(tmp_path: Path) -> None:
    async with open_harness(tmp_path, waits) as here:
        task = await here.send("ask")
    async with open_harness(tmp_path, hold) as here:
        text = (await explained(here, task.id)).next
        assert text.startswith('It waits for a message from its caller: "which?" No agent "waits" is served here, so ')
        assert "A cancel also ends it" not in text


async def test_the_expiry_of_a_task_that_waits_for_its_caller_is_explained(tmp_path: Path) -> None:
    rules = RetentionPolicy({states.INPUT_REQUIRED: 86_400_000})
    async with open_harness(tmp_path, waits, retention=rules) as here:
        waiting_task = await here.send("ask")
        one = await explained(here, waiting_task.id)
        ends = datetime.fromtimestamp(one.record.updated / 1000 + 86_400, UTC)
        assert one.next.endswith(
            f"Without an answer it ends as FAILED at about {ends:%Y-%m-%d %H:%M} UTC. A cancel also ends it."
        )


async def test_the_error_of_a_failed_task_is_explained(tmp_path: Path) -> None:
    async def fails(turn: Turn) -> None:
        raise RuntimeError("the pump\nis broken " + "x" * 500)

    async with open_harness(tmp_path, fails) as here:
        task = await here.send("x")
        text = (await explained(here, task.id)).next
        assert text.startswith('Nothing: the task has ended: "RuntimeError: the pump is broken xxx')
        assert text.endswith('x…"')


async def test_the_recovery_of_a_dead_process_s_task_is_explained(tmp_path: Path) -> None:
    clock = Shifted()
    async with two(tmp_path, clock, hold, on_crash=retry(1), retry=Retry(attempts=4)) as (one, other):
        task = await one.start()
        assert "its turn is repeated (attempt 2 of 2) after " in (await explained(other, task.id)).next
        assert not (await explained(other, task.id)).here
        clock.ahead += 15_000
        explained_next = (await explained(other, task.id)).next
        assert explained_next == (
            "The process running this task has died. A server will repeat its turn (attempt 2 of 2) within a few "
            "seconds; if none is running, at the next start."
        )


async def test_a_sleeping_turn_is_explained(tmp_path: Path) -> None:
    async def sleeps(turn: Turn) -> None:
        await turn.sleep(hours=3)

    async with open_harness(tmp_path, sleeps) as here:
        task = await here.start()
        await here.idle()
        text = (await explained(here, task.id)).next
        assert text.startswith("Its agent sleeps until ")
        assert text.endswith("and then continues behind its finished steps. A cancel ends it.")


async def test_a_turn_that_waits_for_its_next_attempt_is_explained(tmp_path: Path) -> None:
    async def fails(turn: Turn) -> None:
        raise ConnectionError("the model is away")

    async with open_harness(tmp_path, fails, retry=Retry(attempts=4, backoff=600)) as here:
        task = await here.start()
        await here.idle()
        one = await explained(here, task.id)
        assert (one.record.attempt, one.attempts_allowed) == (2, 4)
        assert one.next.startswith(
            'Its last attempt failed: "ConnectionError: the model is away" Attempt 2 of 4 begins'
        )


async def test_an_unknown_task_has_no_explanation(tmp_path: Path) -> None:
    async with open_harness(tmp_path, waits) as here:
        assert await here.runtime.explainer.explain("none") == []


@pytest.mark.parametrize(
    ("retries", "then"),
    [
        (0, "If its worker dies, it ends as FAILED at once"),
        (1, "its turn is repeated (attempt 2 of 2) when the worker's lease is over, within 10 s"),
    ],
)
async def test_what_follows_the_death_of_a_worker_is_explained(tmp_path: Path, retries: int, then: str) -> None:
    far = Far(crash_retries=retries)
    async with served(tmp_path, far) as here:
        task = await here.start()
        _, end = await far.turns.get()
        assert then in (await explained(here, task.id)).next
        end.set_result(DONE)
        await here.idle()
