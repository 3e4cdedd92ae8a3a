"""Leases of workers: granted with the answers to heartbeats, never longer than the server's own."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

import pytest
from tests.agents.turn_context import RecordingTurnContext
from tests.agents.workers.fake_worker import registration

from dragoman.agents.workers.agent import WorkerAgent
from dragoman.agents.workers.connection import HeartbeatTimings, WorkerConnection, read_registration
from dragoman.ports import AgentStillRuns, WorkerLost
from dragoman_pb.dragoman.worker.v1 import worker_pb2 as wk


class Worker:
    """A connected worker of the agent `desk`, and its agent at the server."""

    def __init__(self, lease_left: Callable[[], float] = lambda: math.inf, timings: HeartbeatTimings | None = None):
        entry = registration(turns=1)
        spec = read_registration(entry)
        self.agent = WorkerAgent(spec, "", lambda: 0, 0)
        self.connection = WorkerConnection(
            "w", "peer", "", {spec.id: spec}, [entry], on_capacity_change=lambda: None, new_id=lambda: "id",
            frame_bytes=1_000_000, lease_left=lease_left,
        )  # fmt: skip
        self.connection.timings = timings or HeartbeatTimings()
        self.agent.add_worker(self.connection)

    def beat(self, number: int) -> wk.Heartbeat:
        """Sends a heartbeat and returns the answer."""
        self.connection.receive(wk.ConnectRequest(heartbeat=wk.Heartbeat(number=number)))
        answer = self.connection.outgoing.get_nowait()
        assert answer is not None
        return answer.heartbeat


async def test_a_lease_is_granted_with_the_answer_to_a_heartbeat() -> None:
    worker = Worker()
    answer = worker.beat(7)
    assert (answer.number, answer.lease.ToSeconds()) == (7, 8)
    assert 9.0 < worker.connection.remaining_lease <= 10.0


async def test_a_lease_of_a_worker_ends_with_that_of_its_server() -> None:
    left = iter([3.0, -1.0])
    worker = Worker(lambda: next(left))
    assert worker.beat(1).lease.ToSeconds() == 3
    assert worker.beat(2).lease.ToNanoseconds() == 0


async def test_a_heartbeat_without_a_number_is_not_answered() -> None:
    worker = Worker()
    worker.connection.receive(wk.ConnectRequest(heartbeat=wk.Heartbeat()))
    assert worker.connection.outgoing.empty()
    assert worker.connection.remaining_lease > 11.0, "it stops when it has heard nothing for the lease"


async def canceled_turn(worker: Worker) -> tuple[RecordingTurnContext, asyncio.Task[object]]:
    context = RecordingTurnContext("go")
    run = asyncio.create_task(worker.agent.take_turn(context))
    await asyncio.sleep(0)
    context.canceled, context.cancel_reason = True, "client"
    run.cancel()
    await asyncio.sleep(0)
    return context, run


async def test_a_canceled_turn_of_a_lost_worker_lasts_as_long_as_the_lease_of_the_worker() -> None:
    worker = Worker(timings=HeartbeatTimings(lease=0.2, margin=0.05))
    worker.beat(1)
    _, run = await canceled_turn(worker)
    worker.connection.close()
    await asyncio.sleep(0.01)
    assert not run.done()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert worker.connection.remaining_lease <= 0


async def test_a_canceled_turn_of_a_process_that_has_exited_ends_at_once() -> None:
    worker = Worker()
    _, run = await canceled_turn(worker)
    worker.connection.has_exited = True
    worker.connection.close()
    with pytest.raises(asyncio.CancelledError):
        await run


async def test_a_shutdown_abandons_a_canceled_turn_without_the_claim_that_it_stopped() -> None:
    worker = Worker()
    context, run = await canceled_turn(worker)
    run.cancel()
    await asyncio.sleep(0)
    assert not run.done(), "only a shutdown abandons it"
    context.stopping = True
    run.cancel()
    with pytest.raises(AgentStillRuns):
        await run
    worker.connection.close()


async def test_a_turn_that_nobody_canceled_is_lost_with_its_worker_at_once() -> None:
    worker = Worker()
    run = asyncio.create_task(worker.agent.take_turn(RecordingTurnContext("go")))
    await asyncio.sleep(0)
    worker.connection.close()
    with pytest.raises(WorkerLost):
        await run
