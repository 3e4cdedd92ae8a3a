"""Leases of workers: granted with the answers to heartbeats, never longer than the server's own."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Any

import pytest
from tests.agents.turn_context import RecordingTurnContext
from tests.agents.workers.fake_worker import registration
from tests.eventually import eventually

from dragoman.agents.workers.agent import WorkerAgent
from dragoman.agents.workers.connection import HeartbeatTimings, WorkerConnection, read_registration
from dragoman.ports import AgentStillRuns, WorkerLost
from dragoman_pb.dragoman.worker.v1 import worker_pb2 as wk

pytestmark = pytest.mark.long


class Worker:
    """A connected worker of the agent `desk`, and its agent at the server."""

    def __init__(
        self,
        lease_left: Callable[[], float] = lambda: math.inf,
        timings: HeartbeatTimings | None = None,
        *,
        retries: int = 0,
    ) -> None:
        entry = registration(turns=1, crash_retries=retries)
        spec = read_registration(entry)
        self.agent = WorkerAgent(spec, "", lambda: 0, 0)
        self.connection = WorkerConnection(
            wk.Hello(name="w", agents=[entry]), "peer", {spec.id: spec}, on_capacity_change=self.note_capacity,
            new_id=lambda: "id", frame_bytes=1_000_000, lease_left=lease_left,
        )  # fmt: skip
        self.connection.timings = timings or HeartbeatTimings()
        self.agent.workers.append(self.connection)
        self.capacities: list[tuple[int, int]] = []
        """The capacity at each notice that it has grown, and the frames that were on their way to the worker."""

    def note_capacity(self) -> None:
        self.agent.notify_capacity()
        self.capacities.append((self.agent.capacity, self.connection.outgoing.qsize()))

    def release(self, **reason: Any) -> None:
        """Returns its first turn."""
        end = wk.TurnEnd(turn_id="1", released=wk.Released(**reason))
        self.connection.receive(wk.ConnectRequest(turn_end=end))
        self.connection.receive(wk.ConnectRequest(credit=wk.Credit(agent_id="desk", turns=1)))

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
    assert 0 < worker.connection.remaining_lease <= 10.0


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


async def test_a_worker_without_a_lease_gets_no_turns_until_it_has_renewed_it() -> None:
    left = [5.0]
    worker = Worker(lambda: left[0])
    assert worker.agent.capacity == 1, "it has not asked for a lease yet"
    worker.beat(1)
    assert (worker.agent.capacity, worker.capacities) == (1, [])
    left[0] = 0.02
    worker = Worker(lambda: left[0])
    worker.beat(1)
    await eventually(lambda: worker.agent.capacity == 0)
    left[0] = 0.0
    worker.beat(2)
    assert (worker.agent.capacity, worker.capacities) == (0, [])
    left[0] = 5.0
    worker.beat(3)
    assert worker.capacities == [(1, 1)], "the lease is on its way before any turn"


async def test_a_started_turn_waits_until_a_worker_has_a_lease() -> None:
    left = [0.0]
    worker = Worker(lambda: left[0])
    worker.beat(1)
    run = asyncio.create_task(worker.agent.take_turn(RecordingTurnContext("go")))
    await asyncio.sleep(0)
    assert worker.connection.outgoing.empty()
    left[0] = 5.0
    worker.beat(2)
    frame = await worker.connection.outgoing.get()
    assert frame is not None
    assert frame.WhichOneof("frame") == "turn_start"
    run.cancel()
    worker.connection.close()


async def test_a_worker_that_returns_a_turn_it_had_not_begun_gets_none_until_it_has_renewed_its_lease() -> None:
    worker = Worker()
    worker.beat(1)
    run = asyncio.create_task(worker.agent.take_turn(RecordingTurnContext("go")))
    await worker.connection.outgoing.get()
    worker.release(not_begun=True, reason="The server did not renew its lease in time.")
    with pytest.raises(WorkerLost, match="did not renew its lease") as raised:
        await run
    assert not raised.value.may_have_started
    assert worker.agent.capacity == 0
    worker.beat(2)
    assert worker.agent.capacity == 1


@pytest.mark.parametrize(("reason", "text"), [({}, "The worker was stopped."), ({"reason": "x" * 300}, "x" * 200)])
async def test_a_turn_that_had_begun_is_lost_with_the_reason_of_its_worker(reason: Any, text: str) -> None:
    worker = Worker()
    worker.beat(1)
    run = asyncio.create_task(worker.agent.take_turn(RecordingTurnContext("go")))
    await worker.connection.outgoing.get()
    worker.release(**reason)
    with pytest.raises(WorkerLost) as raised:
        await run
    assert (str(raised.value), raised.value.may_have_started) == (text, True)
    assert worker.agent.capacity == 1


@pytest.mark.parametrize("reason", ["drain", "lease_lost"])
async def test_a_turn_that_no_worker_has_taken_is_returned_when_its_server_stops(reason: str) -> None:
    worker = Worker(lambda: 0.0)
    worker.beat(1)
    context = RecordingTurnContext("go")
    run = asyncio.create_task(worker.agent.take_turn(context))
    await asyncio.sleep(0)
    context.canceled, context.cancel_reason = True, reason
    run.cancel()
    with pytest.raises(WorkerLost) as raised:
        await run
    assert not raised.value.may_have_started


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


@pytest.mark.parametrize("attempt", [1, 2])
async def test_a_turn_that_runs_again_waits_until_the_lease_of_its_lost_worker_is_over(attempt: int) -> None:
    worker = Worker(timings=HeartbeatTimings(lease=0.2, margin=0.05), retries=1)
    worker.beat(1)
    context = RecordingTurnContext("go")
    context.attempt = attempt
    run = asyncio.create_task(worker.agent.take_turn(context))
    await asyncio.sleep(0)
    worker.connection.close()
    with pytest.raises(WorkerLost):
        await run
    assert (worker.connection.remaining_lease <= 0) is (attempt == 1)  # the last attempt ends at once


async def test_a_turn_that_waits_for_a_lease_takes_no_room_of_other_workers() -> None:
    worker = Worker(retries=1)
    worker.beat(1)
    run = asyncio.create_task(worker.agent.take_turn(RecordingTurnContext("go")))
    await asyncio.sleep(0)
    assert worker.agent.capacity == 1
    worker.agent.remove_worker(worker.connection)
    worker.connection.close()
    await eventually(lambda: worker.agent.capacity == 1)  # its own place, so that a new worker adds all of its own
    worker.connection.has_exited = True
    run.cancel()
    with pytest.raises(WorkerLost):
        await run
    assert worker.agent.capacity == 0


async def test_a_turn_that_its_worker_has_returned_runs_again_at_once_though_the_worker_has_left() -> None:
    worker = Worker(retries=1)
    worker.beat(1)
    run = asyncio.create_task(worker.agent.take_turn(RecordingTurnContext("go")))
    await asyncio.sleep(0)
    worker.release()
    worker.connection.close()
    with pytest.raises(WorkerLost, match="The worker was stopped"):
        await run
    assert worker.connection.remaining_lease > 0


async def test_a_turn_that_waits_for_a_lease_can_be_canceled() -> None:
    worker = Worker(timings=HeartbeatTimings(lease=0.2, margin=0.05), retries=1)
    worker.beat(1)
    context = RecordingTurnContext("go")
    run = asyncio.create_task(worker.agent.take_turn(context))
    await asyncio.sleep(0)
    worker.connection.close()
    await eventually(lambda: worker.agent.describe_run("task-1").startswith("Its worker is lost"))
    context.canceled, context.cancel_reason = True, "client"
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert worker.connection.remaining_lease <= 0
    assert not worker.agent.describe_run("task-1")


async def test_a_turn_that_nobody_canceled_is_lost_with_its_worker_at_once() -> None:
    worker = Worker()
    run = asyncio.create_task(worker.agent.take_turn(RecordingTurnContext("go")))
    await asyncio.sleep(0)
    worker.connection.close()
    with pytest.raises(WorkerLost):
        await run
