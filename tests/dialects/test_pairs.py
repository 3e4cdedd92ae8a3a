"""A task made in one dialect can be read, followed, continued and canceled in every other: all ordered pairs."""

from __future__ import annotations

import asyncio
from itertools import product

import pytest
from tests.dialects.speakers import SPEAKERS, Road

PAIRS = pytest.mark.parametrize(("maker", "other"), list(product(SPEAKERS, SPEAKERS)))


@PAIRS
async def test_what_one_dialect_begins_another_reads_follows_and_finishes(road: Road, maker: str, other: str) -> None:
    begun = await SPEAKERS[maker].send(road, "ask")
    assert begun.state == "input-required"

    seen = await SPEAKERS[other].get(road, begun.id)
    assert seen == begun

    finished = await SPEAKERS[other].send(road, "blue", begun.id)
    assert (finished.id, finished.state, finished.text) == (begun.id, "completed", "you said: blue")
    assert await SPEAKERS[maker].get(road, begun.id) == finished


@PAIRS
async def test_what_one_dialect_begins_another_follows_and_cancels(road: Road, maker: str, other: str) -> None:
    task = await SPEAKERS[maker].start(road, "sleep 60")
    states: list[str] = []
    following = asyncio.Event()

    async def follow() -> None:
        async for state in SPEAKERS[other].follow(road, task):
            states.append(state)
            following.set()

    async with asyncio.TaskGroup() as group:
        group.create_task(follow())
        await following.wait()
        canceled = await SPEAKERS[other].cancel(road, task)
    assert canceled.state == "canceled"
    assert states[-1] == "canceled"
    assert (await SPEAKERS[maker].get(road, task)).state == "canceled"
