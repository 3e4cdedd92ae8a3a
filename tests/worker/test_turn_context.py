"""The turn context of a worker: which frames it sends, and when events count as committed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from google.protobuf.struct_pb2 import Struct

from dragoman.core.limits.quotas import UsageReport
from dragoman.core.task import states
from dragoman.core.task.log import StatusChange
from dragoman.ports import LeaseLost, StateUpdate, TurnResult, WorkerLost
from dragoman.runtime.lease import Lease
from dragoman.worker.turn_context import RemoteTurnContext
from dragoman_pb.dragoman.worker.v1 import worker_pb2 as wk
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

FRAME_BYTES = 4096
WORKING = StatusChange(states.WORKING)
COMPLETED = TurnResult(StatusChange(states.COMPLETED))


class Turn:
    """A turn context and the frames that it sent, in order."""

    def __init__(self, **start: Any) -> None:
        self.frames: list[wk.ConnectRequest] = []
        self._sent = asyncio.Event()
        self.lease = Lease(3600.0)
        self.context = RemoteTurnContext(
            wk.TurnStart(turn_id="turn", agent_id="echo", task_id="task", **start),
            self._send,
            FRAME_BYTES,
            self.lease.hold(),
        )

    def _send(self, **frame: Any) -> None:
        self.frames.append(wk.ConnectRequest(**frame))
        self._sent.set()

    @property
    def kinds(self) -> list[str | None]:
        return [frame.WhichOneof("frame") for frame in self.frames]

    async def sent(self, number: int) -> None:
        """Waits for a number of frames."""
        async with asyncio.timeout(60):
            while len(self.frames) < number:
                self._sent.clear()
                await self._sent.wait()


async def test_a_question_is_there_only_if_the_server_sent_one() -> None:
    assert Turn().context.question is None
    assert Turn(question=pb.Message(message_id="q")).context.question == pb.Message(message_id="q")


async def test_error_texts_are_hidden_unless_the_server_shows_them() -> None:
    assert not Turn().context.shows_error_texts
    assert Turn(show_error_texts=True).context.shows_error_texts


async def test_events_are_flushed_when_the_server_confirms_their_number_and_not_before() -> None:
    turn = Turn()
    turn.context.put(WORKING)
    await turn.sent(1)
    flush = asyncio.create_task(turn.context.flush())
    assert turn.frames[0].events.number == 1
    turn.context.on_committed(0)
    for _ in range(5):
        await asyncio.sleep(0)
    assert not flush.done()
    turn.context.on_committed(1)
    async with asyncio.timeout(60):
        await flush
    turn.context.put(WORKING)
    await turn.sent(2)
    assert turn.frames[1].events.number == 2


async def test_an_oversized_event_fails_the_turn_with_its_error() -> None:
    turn = Turn()
    message = pb.Message(message_id="m", parts=[pb.Part(text="x" * 2 * FRAME_BYTES)]).SerializeToString()
    turn.context.put(StatusChange(states.WORKING, message))
    with pytest.raises(ValueError, match="an event has 8"):
        await turn.context.flush()
    await turn.context.finish(COMPLETED)
    (end,) = turn.frames
    assert end.turn_end.status.state == states.FAILED
    assert "EventTooLarge: an event has 8" in end.turn_end.status.message.parts[0].text


async def test_a_turn_ends_with_its_pending_events_before_its_result() -> None:
    turn = Turn()
    turn.context.put(WORKING, state_update=StateUpdate(task_state=b"1"))
    await turn.context.finish(COMPLETED)
    assert turn.kinds == ["events", "turn_end"]
    assert turn.frames[0].events.state_update.task_state == "1"
    assert turn.frames[1].turn_end.status.state == states.COMPLETED


@pytest.mark.parametrize(("reason", "end"), [("user", "canceled"), ("drain", "released")])
async def test_a_canceled_turn_is_returned_to_the_server_in_a_drain_only(reason: str, end: str) -> None:
    turn = Turn()
    turn.context.on_cancel(reason, b"")
    await turn.context.finish(None)
    (frame,) = turn.frames
    assert frame.turn_end.HasField(end)


async def test_a_turn_whose_process_died_is_returned_after_its_events() -> None:
    turn = Turn()
    turn.context.put(WORKING)
    await turn.context.give_back(WorkerLost("it was killed"))
    assert turn.kinds == ["events", "turn_end"]
    assert turn.frames[1].turn_end.released == wk.Released(reason="it was killed")


async def test_a_turn_that_has_not_begun_says_so_when_it_is_returned() -> None:
    turn = Turn()
    turn.context.on_cancel("drain", b"")
    await turn.context.finish(None)
    assert turn.frames[0].turn_end.released == wk.Released(not_begun=True)
    turn = Turn()
    await turn.context.give_back(WorkerLost("no process", may_have_started=False))
    assert turn.frames[0].turn_end.released == wk.Released(not_begun=True, reason="no process")


async def test_nothing_is_sent_once_the_server_has_ended_the_turn() -> None:
    turn = Turn()
    turn.context.on_turn_over("another worker has it")
    with pytest.raises(LeaseLost, match="another worker has it"):
        turn.context.put(WORKING)
    await turn.context.finish(COMPLETED)
    await turn.context.give_back(WorkerLost())
    assert turn.context.is_over
    assert turn.frames == []


async def test_each_message_is_requested_once_and_arrives_with_its_envelope() -> None:
    turn = Turn()
    arrived = [wk.MessageArrived(turn_id="turn", message=pb.Message(message_id=name)) for name in ("a", "b")]
    arrived[0].envelope.tenant = "acme"
    messages = turn.context.incoming()
    for number, frame in enumerate(arrived, 1):
        received = asyncio.ensure_future(anext(messages))
        await turn.sent(number)
        turn.context.on_message(frame)
        async with asyncio.timeout(60):
            assert await received == (frame.message, frame.envelope)
    assert turn.kinds == ["message_request", "message_request"]


async def test_a_second_reader_does_not_repeat_the_request_of_the_first() -> None:
    turn = Turn()
    first, second = (asyncio.ensure_future(anext(turn.context.incoming())) for _ in range(2))
    for _ in range(5):
        await asyncio.sleep(0)
    assert turn.kinds == ["message_request"]
    first.cancel()
    second.cancel()


async def test_usage_and_refused_cancels_name_their_turn() -> None:
    turn = Turn()
    turn.context.report_usage(UsageReport(tokens=7, cost=3, key="call-1"))
    turn.context.refuse_cancel("too late")
    assert turn.frames == [
        wk.ConnectRequest(usage=wk.Usage(turn_id="turn", tokens=7, cost=3, key="call-1")),
        wk.ConnectRequest(cancel_refused=wk.CancelRefused(turn_id="turn", reason="too late")),
    ]


async def test_a_cancel_brings_its_reason_and_metadata() -> None:
    metadata = Struct()
    metadata["why"] = "typo"
    context = Turn().context
    assert (context.canceled, context.stopping) == (False, False)
    context.on_cancel("user", metadata.SerializeToString())
    context.stopping = True
    assert (context.canceled, context.cancel_reason, context.stopping) == (True, "user", True)
    assert Struct.FromString(context.cancel_metadata) == metadata


async def test_a_lapsed_lease_stops_the_turn_and_gives_it_back() -> None:
    turn = Turn()
    turn.context.agent_begun = True
    assert not turn.context.loses_lease()
    turn.lease.extend(turn.lease.now() - 20.0, 10.0)
    assert [turn.context.loses_lease() for _ in range(2)] == [True, False]
    assert (turn.context.canceled, turn.context.cancel_reason) == (True, "lease_lost")
    with pytest.raises(LeaseLost):
        turn.context.put(WORKING)
    await turn.context.finish(None)
    assert turn.kinds == ["turn_end"]
    reason = "The server did not renew its lease in time."
    assert turn.frames[-1].turn_end.released == wk.Released(reason=reason)


async def test_a_turn_that_was_canceled_before_the_lapse_reports_that_it_has_stopped() -> None:
    turn = Turn()
    turn.context.on_cancel("client", b"")
    turn.lease.extend(turn.lease.now() - 20.0, 10.0)
    assert turn.context.loses_lease()
    await turn.context.finish(COMPLETED)
    assert turn.frames[-1].turn_end.HasField("canceled")


async def test_a_result_that_is_on_its_way_is_not_canceled() -> None:
    turn = Turn()
    turn.context.put(WORKING)
    await turn.sent(1)
    ending = asyncio.ensure_future(turn.context.finish(COMPLETED))
    await asyncio.sleep(0)
    assert turn.context.finishing
    turn.lease.extend(turn.lease.now() - 20.0, 10.0)
    assert not turn.context.loses_lease()
    turn.context.on_committed(1)
    await ending
    assert turn.frames[-1].turn_end.status.state == states.COMPLETED


async def test_calls_are_answered_by_their_numbers() -> None:
    turn = Turn()
    given = [wk.TaskCall(turn_id="child", number=number, get=pb.GetTaskRequest(id="a")) for number in (7, 8, 9)]
    calls = [asyncio.create_task(turn.context.call(call)) for call in given]
    await turn.sent(3)
    assert [(frame.task_call.turn_id, frame.task_call.number) for frame in turn.frames] == [
        ("turn", number) for number in (7, 8, 9)
    ]
    calls[0].cancel()
    await asyncio.wait([calls[0]])
    for number in (9, 8, 7):
        for error in ("first", "second"):  # which has no effect
            turn.context.on_call_result(wk.TaskCallResult(number=number, error=f"{error} {number}"))
    assert [(await call).error for call in calls[1:]] == ["first 8", "first 9"]
