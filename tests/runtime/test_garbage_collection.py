"""Finished turns and streams are freed at once, without the cyclic garbage collector, which delays all callers."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from tests.runtime.harness import Harness, collect, open_harness, state

from dragoman import Turn


async def echoes(turn: Turn) -> str:
    return turn.text


async def three(turn: Turn) -> AsyncIterator[str]:
    for number in (1, 2, 3):
        yield f"{number} "


def threaded(turn: Turn) -> str:
    turn.status("in a thread")
    return turn.text


async def asks(turn: Turn) -> str:
    if turn.question is None:
        turn.ask("which?")
    return turn.text


async def waits(turn: Turn) -> None:
    await asyncio.Event().wait()


async def fails(turn: Turn) -> None:
    raise ValueError("no such table")


async def steps(turn: Turn) -> str:
    async with turn.step("plan") as plan:
        plan.result = "three chapters"
    await asyncio.gather(turn.step("read", asyncio.sleep, 0), asyncio.create_task(turn.step("search", str)))
    await turn.sleep(seconds=0.001)
    return turn.text


async def send(here: Harness) -> None:
    await here.send()


async def stream(here: Harness) -> None:
    await collect(here.stream())


async def follow_up(here: Harness) -> None:
    task = await here.send()
    assert state(await here.send("this one", task_id=task.id)) == "COMPLETED"


async def cancel(here: Harness) -> None:
    task = await here.start()
    assert state(await here.cancel(task.id)) == "CANCELED"


@pytest.mark.parametrize(
    ("agent", "use"),
    [
        (echoes, send),
        (three, stream),
        (threaded, send),
        (asks, follow_up),
        (waits, cancel),
        (fails, send),
        (steps, send),
    ],
)
async def test_a_finished_task_leaves_no_garbage_to_collect(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    agent: Callable[[Turn], object],
    use: Callable[[Harness], Awaitable[None]],
) -> None:
    caplog.set_level(logging.CRITICAL)  # a kept log record would keep its error
    async with open_harness(tmp_path, agent) as here:
        await use(here)  # the first use creates objects that later uses share
        await here.idle()
        gc.collect()
        gc.freeze()  # earlier objects need not be examined
        gc.disable()
        try:
            for _ in range(10):
                await use(here)
            await here.idle()
            await asyncio.sleep(0)
            gc.set_debug(gc.DEBUG_SAVEALL)
            gc.collect()
            left = Counter(type(one).__qualname__ for one in gc.garbage if type(one).__module__.startswith("dragoman"))
        finally:
            gc.set_debug(0)
            gc.enable()
            gc.garbage.clear()  # what is frozen stays so: most of it was, before
    assert not {name: count for name, count in left.items() if count >= 10}
