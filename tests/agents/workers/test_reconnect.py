"""Reconnection while a sync function of the earlier stream still runs, because a thread cannot be stopped."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress

import pytest
from tests.agents.workers.conftest import Open
from tests.agents.workers.tasks import NOW, wait_for_state

from dragoman import Turn, agent
from dragoman.client.calls import Client, message
from dragoman.core.task import states
from dragoman.fault_proxy import FaultProxy
from dragoman.worker.worker import Worker

pytestmark = pytest.mark.long


async def test_a_turn_that_outlives_its_stream_returns_its_credit_on_the_next_one(
    opened: Open, caplog: pytest.LogCaptureFixture
) -> None:
    release = threading.Event()

    @agent
    def thread(turn: Turn) -> str:
        if turn.text == "stay":
            release.wait(60)
        return turn.text

    async with opened() as app, Client(str(app.grpc), agent="thread") as client:
        async with FaultProxy(str(app.grpc), every=0) as proxy:
            at = proxy.address
            worker = Worker([thread], at, turns=1)
            running = asyncio.create_task(worker.run())
            await worker.ready.wait()
            lost = (await client.send(message("stay"), configuration=NOW)).task.id
            await wait_for_state(client, lost, states.WORKING)
        await wait_for_state(client, lost, states.FAILED)
        async with FaultProxy(str(app.grpc), listen=at, every=0):
            await worker.ready.wait()
            waiting = (await client.send(message("next"), configuration=NOW)).task
            release.set()
            await wait_for_state(client, waiting.id, states.COMPLETED)
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running
    assert "is broken" in caplog.text
    assert "encrypted" not in caplog.text  # no advice about TLS after a successful connection
