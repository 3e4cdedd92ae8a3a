"""Agents that raise, return or yield what the text of their message names, each in another place."""

from __future__ import annotations

import asyncio
import importlib
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

from dragoman import Retry, Turn, agent

sys.path.insert(0, str(Path(__file__).parent))
kinds: Any = importlib.import_module("kinds")  # tests/hostile/kinds.py


def fail(turn: Turn) -> None:
    raise kinds.EXCEPTIONS[turn.text]()


async def function(turn: Turn) -> None:
    fail(turn)


async def reraise(turn: Turn) -> None:
    try:
        fail(turn)
    except BaseException as error:
        raise error from error


async def generator(turn: Turn) -> AsyncIterator[str]:
    yield "before"
    fail(turn)


def sync_generator(turn: Turn) -> Iterator[str]:
    yield "before"
    fail(turn)


def thread(turn: Turn) -> None:
    fail(turn)


async def step(turn: Turn) -> None:
    async def work() -> None:
        fail(turn)

    await turn.step("work", work, retry=Retry(attempts=2, backoff=0.0))


async def thread_step(turn: Turn) -> None:
    await turn.step("work", fail, turn)


async def block_step(turn: Turn) -> None:
    async with turn.step("work"):
        fail(turn)


async def task_group(turn: Turn) -> None:
    async def work() -> None:
        fail(turn)

    async with asyncio.TaskGroup() as group:
        group.create_task(work())


async def own_task(turn: Turn) -> None:
    async def work() -> None:
        await asyncio.sleep(0)
        fail(turn)

    await asyncio.create_task(work())


async def retried(turn: Turn) -> None:
    fail(turn)


FUNCTIONS: tuple[Callable[[Turn], object], ...] = (
    *(function, reraise, generator, sync_generator, thread, step, thread_step, block_step, task_group, own_task),
)


# Values -----------------------------------------------------------------------------------------------------------


async def returned(turn: Turn) -> object:
    return kinds.VALUES[turn.text]()


async def yielded(turn: Turn) -> AsyncIterator[object]:
    yield kinds.VALUES[turn.text]()


def returned_by_thread(turn: Turn) -> object:
    return kinds.VALUES[turn.text]()


async def stored(turn: Turn) -> None:
    turn.state["value"] = kinds.VALUES[turn.text]()


async def labeled(turn: Turn) -> None:
    turn.metadata["value"] = kinds.VALUES[turn.text]()


async def step_result(turn: Turn) -> None:
    await turn.step("work", kinds.VALUES[turn.text])


VALUE_FUNCTIONS: tuple[Callable[[Turn], object], ...] = (
    *(returned, yielded, returned_by_thread, stored, labeled, step_result),
)


async def bystander(turn: Turn) -> str:
    return turn.text


ALL: tuple[Callable[[Turn], object], ...] = (bystander, *FUNCTIONS, *VALUE_FUNCTIONS)
for one in ALL:
    globals()[f"agent_{one.__name__}"] = agent(id=one.__name__.replace("_", "-"), default=one is bystander)(one)
globals()["agent_retried"] = agent(id="retried", retry=Retry(attempts=2, backoff=0.0))(retried)
