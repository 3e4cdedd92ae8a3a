"""A worker that dials again while a function of its earlier line has not ended: nothing can stop a thread from
outside."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress

import pytest
from tests.workers.conftest import Open
from tests.workers.reading import NOW, until

from dragoman import Turn, agent
from dragoman.client import Client, message
from dragoman.core import states
from dragoman.flaky.proxy import FlakyProxy
from dragoman.worker.serving import Worker


async def test_a_turn_that_outlives_its_line_makes_room_at_the_next_one(
    opened: Open, caplog: pytest.LogCaptureFixture
) -> None:
    goes_on = threading.Event()

    @agent
    def thread(turn: Turn) -> str:
        if turn.text == "stay":
            goes_on.wait(60)
        return turn.text

    async with opened() as app, Client(str(app.grpc), agent="thread") as client:
        async with FlakyProxy(str(app.grpc), every=0) as cable:
            at = cable.address
            worker = Worker([thread], at, turns=1)
            running = asyncio.create_task(worker.run())
            await worker.welcomed.wait()
            lost = (await client.send(message("stay"), configuration=NOW)).task.id
            await until(client, lost, states.WORKING)
        await until(client, lost, states.FAILED)
        async with FlakyProxy(str(app.grpc), listen=at, every=0):
            await worker.welcomed.wait()
            waiting = (await client.send(message("next"), configuration=NOW)).task
            goes_on.set()
            await until(client, waiting.id, states.COMPLETED)
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running
    assert "is broken" in caplog.text
    assert "encrypted" not in caplog.text  # no advice on how to dial, where that went well
