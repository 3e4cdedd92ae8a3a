"""Answers to the calls of turns: a worker that does not read them gets no more of them."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import pytest
from tests.agents.turn_context import RecordingTurnContext
from tests.agents.workers.fake_worker import registration
from tests.eventually import eventually

from dragoman.agents.workers.connection import MAX_UNREAD_ANSWERS, WorkerConnection, read_registration
from dragoman.core.errors import TaskNotFound
from dragoman_pb.dragoman.worker.v1 import worker_pb2 as wk
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


class CallingTurnContext(RecordingTurnContext):
    """Notes the calls of its turn. Each is answered with a task, fails, or has no answer yet."""

    def __init__(self) -> None:
        super().__init__("go")
        self.calls: list[int] = []
        self.outcome: Any = wk.TaskCallResult(task=pb.Task(id="t"))

    async def call(self, call: wk.TaskCall) -> wk.TaskCallResult:
        self.calls.append(call.number)
        if self.outcome is None:
            await asyncio.Event().wait()
        if isinstance(self.outcome, Exception):
            raise self.outcome
        result = wk.TaskCallResult()
        result.CopyFrom(self.outcome)
        return result


class CallingWorker:
    """A connected worker with a turn that makes calls."""

    def __init__(self) -> None:
        entry = registration(turns=2)
        spec = read_registration(entry)
        self.connection = WorkerConnection(
            wk.Hello(name="w", agents=[entry]), "peer", {spec.id: spec}, on_capacity_change=lambda: None,
            new_id=lambda: "id", frame_bytes=1_000_000, lease_left=lambda: math.inf,
        )  # fmt: skip

    async def start(self) -> tuple[str, CallingTurnContext]:
        """Begins a turn. Returns its id, and its context."""
        context = CallingTurnContext()
        self.connection.start_turn("desk", context)
        frame = await self.connection.next_frame()
        assert frame is not None
        return frame.turn_start.turn_id, context

    def call(self, turn: str, *numbers: int) -> None:
        for number in numbers:
            call = wk.TaskCall(turn_id=turn, number=number, get=pb.GetTaskRequest(id="t"))
            self.connection.receive(wk.ConnectRequest(task_call=call))


@pytest.mark.parametrize("outcome", [wk.TaskCallResult(task=pb.Task(id="t")), TaskNotFound()])
async def test_a_call_waits_until_the_worker_has_read_earlier_answers(outcome: Any) -> None:
    worker = CallingWorker()
    turn, context = await worker.start()
    context.outcome = outcome
    wanted = list(range(1, MAX_UNREAD_ANSWERS + 4))
    worker.call(turn, *wanted)
    await eventually(lambda: worker.connection.outgoing.qsize() == MAX_UNREAD_ANSWERS)
    assert context.calls == wanted[:MAX_UNREAD_ANSWERS]
    read = []
    for _ in wanted:
        frame = await worker.connection.next_frame()
        assert frame is not None
        read.append(frame.task_call_result.number)
    assert read == context.calls == wanted


async def test_calls_of_a_turn_that_ends_leave_their_places_to_other_turns() -> None:
    worker = CallingWorker()
    turn, context = await worker.start()
    context.outcome = None
    worker.call(turn, *range(1, MAX_UNREAD_ANSWERS + 4))
    await eventually(lambda: len(context.calls) == MAX_UNREAD_ANSWERS)
    later, other = await worker.start()
    worker.call(later, 1)
    worker.connection.receive(wk.ConnectRequest(turn_end=wk.TurnEnd(turn_id=turn, released=wk.Released())))
    frame = await worker.connection.next_frame()
    assert frame is not None
    assert (frame.task_call_result.turn_id, other.calls) == (later, [1])
    assert len(context.calls) == MAX_UNREAD_ANSWERS
