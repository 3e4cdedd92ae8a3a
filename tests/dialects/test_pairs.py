"""A task made in one dialect can be read, followed, continued and canceled in every other: all ordered pairs."""

from __future__ import annotations

import asyncio
from itertools import product

import pytest
from tests.dialects.dialect_clients import DIALECT_CLIENTS, ServerConnections

pytestmark = pytest.mark.long

PAIRS = pytest.mark.parametrize(("maker", "other"), list(product(DIALECT_CLIENTS, DIALECT_CLIENTS)))


@PAIRS
async def test_a_task_of_one_dialect_is_read_and_continued_in_another(
    connections: ServerConnections, maker: str, other: str
) -> None:
    started = await DIALECT_CLIENTS[maker].send(connections, "ask")
    assert started.state == "input-required"

    assert await DIALECT_CLIENTS[other].get(connections, started.id) == started

    finished = await DIALECT_CLIENTS[other].send(connections, "blue", started.id)
    assert (finished.id, finished.state, finished.text) == (started.id, "completed", "you said: blue")
    assert await DIALECT_CLIENTS[maker].get(connections, started.id) == finished


@PAIRS
async def test_a_task_of_one_dialect_is_followed_and_canceled_in_another(
    connections: ServerConnections, maker: str, other: str
) -> None:
    task = await DIALECT_CLIENTS[maker].start(connections, "sleep 60")
    states: list[str] = []
    following = asyncio.Event()

    async def follow() -> None:
        async for state in DIALECT_CLIENTS[other].follow(connections, task):
            states.append(state)
            following.set()

    async with asyncio.TaskGroup() as group:
        group.create_task(follow())
        await following.wait()
        canceled = await DIALECT_CLIENTS[other].cancel(connections, task)
    assert canceled.state == "canceled"
    assert states[-1] == "canceled"
    assert (await DIALECT_CLIENTS[maker].get(connections, task)).state == "canceled"
