"""PostgreSQL unavailable for longer than a lease, with connected workers: tasks wait, and no new one fails."""

from __future__ import annotations

import asyncio
import signal
from contextlib import suppress
from typing import Final

import pytest
from tests.agents.workers.tasks import NOW, status_text
from tests.conftest import timings
from tests.eventually import eventually
from tests.postgres import Server

from dragoman import Turn, agent
from dragoman.agents.workers.agent import WorkerAgent
from dragoman.agents.workers.connection import HeartbeatTimings
from dragoman.client import ClientError
from dragoman.client.calls import Client, message
from dragoman.core.task import states
from dragoman.settings.settings import Settings
from dragoman.wiring.app import App, AppTimings, open_app
from dragoman.worker.worker import Worker
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

pytestmark = pytest.mark.long

SHORT: Final = AppTimings(
    runtime=timings(renew_interval=0.1), lease=2.0, workers=HeartbeatTimings(heartbeat=1.0, lease=4.0, margin=2.0)
)
"""A worker renews its lease up to a second after its server."""

SENDERS: Final = 8


def has_worker_with_lease(app: App) -> bool:
    found = app.runtime.scheduler.queues.remote("far")
    assert isinstance(found, WorkerAgent)
    return any(worker.has_lease for worker in found.workers)


async def ended_task(client: Client, task: str) -> pb.Task:
    async for _ in client.subscribe(task, after="0"):
        pass  # until its last event
    return await client.get(task)


async def test_new_tasks_wait_for_the_lease_of_their_worker_after_an_outage(
    own_postgres: Server, caplog: pytest.LogCaptureFixture
) -> None:
    attempts: list[int] = []

    @agent
    async def far(turn: Turn) -> str:
        attempts.append(turn.attempt)
        return turn.text

    async def sends(client: Client, number: int) -> None:
        while not enough.is_set():
            with suppress(ClientError):  # in the outage
                tasks.append((await client.send(message(f"{number}"), configuration=NOW)).task.id)

    tasks: list[str] = []
    enough = asyncio.Event()
    settings = Settings(store=own_postgres.url(), http="127.0.0.1:0", grpc="127.0.0.1:0", workers_only=True)
    async with open_app(settings, [], timings=SHORT) as app, Client(str(app.grpc), agent="far") as client:
        worker = Worker([far], str(app.grpc))
        working = asyncio.create_task(worker.run())
        await worker.ready.wait()
        sending = [asyncio.create_task(sends(client, number)) for number in range(SENDERS)]
        await eventually(lambda: len(tasks) > SENDERS)
        await asyncio.to_thread(own_postgres.stop, signal.SIGQUIT)
        await eventually(lambda: not has_worker_with_lease(app))
        await asyncio.to_thread(own_postgres.start)
        before = len(tasks)
        await eventually(lambda: has_worker_with_lease(app) and len(tasks) > before + SENDERS)
        enough.set()
        await asyncio.gather(*sending)
        ended = [await ended_task(client, task) for task in tasks[before:]]
        assert [status_text(task) for task in ended if task.status.state != states.COMPLETED] == []
        assert set(attempts) == {1}
        assert "the lease of this worker has lapsed" not in [
            record.getMessage() for record in caplog.records if getattr(record, "task", "") in tasks[before:]
        ]
        await worker.drain(0)
        await working
