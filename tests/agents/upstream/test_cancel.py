"""Upstream turns that are stopped by a client, a time limit, or a drain."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from tests.agents.turn_context import RecordingTurnContext, status_text
from tests.agents.upstream.scripted_transport import (
    BROKEN_RESPONSE,
    CONNECT_FAILURE,
    ScriptedTransport,
    agent,
    refused,
    task,
)

from dragoman.agents.upstream.turn_writer import UpstreamTaskState
from dragoman.calling.errors import ProtocolError
from dragoman.core.errors import TaskNotCancelable, Unavailable
from dragoman.core.task import states
from dragoman.ports import TurnResult, WorkerLost
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

pytestmark = pytest.mark.long

METADATA = pb.Task(metadata={"why": "too late"}).metadata.SerializeToString()


def task_state_of(**fields: Any) -> bytes:
    return UpstreamTaskState(**fields).to_json()


def stored_state(context: RecordingTurnContext) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(context.task_states[-1])["upstream"]
    return found


async def canceled_turn(script: ScriptedTransport, reason: str, *, when: str = "") -> tuple[RecordingTurnContext, Any]:
    """A turn that is canceled after the first event, or after a call."""
    context = RecordingTurnContext("hi")
    turn = asyncio.create_task(agent(script).take_turn(context))
    async with asyncio.timeout(60):
        await (script.called(when) if when else context.event_put).wait()
    context.canceled, context.cancel_reason, context.cancel_metadata = True, reason, METADATA
    turn.cancel()
    (result,) = await asyncio.gather(turn, return_exceptions=True)
    return context, result


async def test_a_cancel_is_forwarded_and_its_result_ends_the_turn() -> None:
    silent = asyncio.Event()
    script = ScriptedTransport(
        {
            "SendStreamingMessage": [[task("WORKING"), silent]],
            "CancelTask": [[task("CANCELED")]],
            "GetTask": [[task("CANCELED", text="stopped")]],
        }
    )
    context, result = await canceled_turn(script, "client")
    assert script.calls("CancelTask") == [pb.CancelTaskRequest(id="t-1", metadata={"why": "too late"})]
    assert status_text(context.task(result)) == "stopped"


async def test_a_result_before_the_cancel_wins() -> None:
    silent = asyncio.Event()
    script = ScriptedTransport(
        {
            "SendStreamingMessage": [[task("WORKING"), silent]],
            "CancelTask": [[refused("TASK_NOT_CANCELABLE")]],
            "GetTask": [[task("COMPLETED", "a")]],
        }
    )
    _, result = await canceled_turn(script, "client")
    assert result.status.state == states.COMPLETED


async def test_a_time_limit_cancels_the_upstream_task() -> None:
    silent = asyncio.Event()
    script = ScriptedTransport(
        {
            "SendStreamingMessage": [[task("WORKING"), silent]],
            "CancelTask": [[task("CANCELED")]],
            "GetTask": [[task("CANCELED")]],
        }
    )
    _, result = await canceled_turn(script, "deadline")
    assert isinstance(result, asyncio.CancelledError)
    assert script.calls("CancelTask")


async def test_a_drain_leaves_the_upstream_task_running() -> None:
    script = ScriptedTransport({"SendStreamingMessage": [[task("WORKING"), asyncio.Event()]]})
    context, result = await canceled_turn(script, "drain")
    assert isinstance(result, asyncio.CancelledError)
    assert not script.calls("CancelTask")
    assert stored_state(context)["task"] == "t-1"


async def test_a_cancel_during_the_send_waits_until_the_task_is_known() -> None:
    go, silent = asyncio.Event(), asyncio.Event()
    script = ScriptedTransport(
        {
            "SendStreamingMessage": [[go, task("WORKING"), silent]],
            "CancelTask": [[task("CANCELED")]],
            "GetTask": [[task("CANCELED")]],
        }
    )
    asyncio.get_running_loop().call_later(0.05, go.set)
    _, result = await canceled_turn(script, "client", when="SendStreamingMessage")
    assert result.status.state == states.CANCELED
    assert script.calls("CancelTask")


async def test_canceling_a_waiting_task_cancels_the_upstream_task_and_reads_its_end() -> None:
    script = ScriptedTransport({"CancelTask": [[task("WORKING")]], "GetTask": [[task("WORKING")], [task("CANCELED")]]})
    assert await agent(script).cancel_waiting(task_state_of(task="t-1"), METADATA)
    assert script.calls("CancelTask") == [pb.CancelTaskRequest(id="t-1", metadata={"why": "too late"})]
    assert len(script.calls("GetTask")) == 2


async def test_a_waiting_task_without_upstream_work_needs_no_call() -> None:
    assert await agent(script := ScriptedTransport({})).cancel_waiting(b"", METADATA)
    assert not script.requests


@pytest.mark.parametrize(
    ("answer", "state", "error"),
    [
        (refused("TASK_NOT_CANCELABLE"), "INPUT_REQUIRED", TaskNotCancelable),
        (refused("TASK_NOT_CANCELABLE"), "CANCELED", None),
        (refused("TASK_NOT_FOUND"), refused("TASK_NOT_FOUND"), None),
        (BROKEN_RESPONSE, "INPUT_REQUIRED", Unavailable),
        (CONNECT_FAILURE, "INPUT_REQUIRED", Unavailable),
        (ProtocolError("x"), "INPUT_REQUIRED", Unavailable),
    ],
    ids=["refused", "ended before", "not known", "broken", "away", "unreadable"],
)
async def test_a_waiting_task_is_canceled_only_when_its_agent_says_so(
    answer: Exception, state: Any, error: type[Exception] | None
) -> None:
    found = state if isinstance(state, Exception) else task(state)
    script = ScriptedTransport({"CancelTask": [[answer]], "GetTask": [[found]]})
    canceling = agent(script).cancel_waiting(task_state_of(task="t-1"), b"")
    if error is None:
        assert await canceling
    else:
        with pytest.raises(error):
            await canceling


@pytest.mark.parametrize(
    ("fields", "attempt", "may"),
    [({}, 1, False), ({}, 2, True), ({"unsent": True}, 2, False), ({"task": "t-1"}, 1, True)],
)
def test_an_agent_may_have_work_that_was_sent_and_not_seen_to_end(
    fields: dict[str, Any], attempt: int, may: bool
) -> None:
    assert agent(ScriptedTransport({})).may_have_work(task_state_of(**fields), attempt) == may


@pytest.mark.parametrize(("reason", "kept_is"), [("drain", [b"", {"unsent": True}]), ("client", [b""])])
async def test_a_stop_before_the_send_takes_effect_at_once(reason: str, kept_is: list[Any]) -> None:
    context = RecordingTurnContext("hi")
    is_sleeping = asyncio.Event()

    async def rest(_: float) -> None:
        is_sleeping.set()
        await asyncio.Event().wait()

    script = ScriptedTransport({"SendStreamingMessage": [[CONNECT_FAILURE]]})
    turn = asyncio.create_task(agent(script, sleep=rest).take_turn(context))
    await is_sleeping.wait()
    context.canceled, context.cancel_reason = True, reason
    turn.cancel()
    (result,) = await asyncio.gather(turn, return_exceptions=True)
    if reason == "client":
        assert isinstance(result, TurnResult)
        assert result.status.state == states.CANCELED
    else:
        assert isinstance(result, asyncio.CancelledError)
    assert [data and json.loads(data)["upstream"] for data in context.task_states] == kept_is
    assert not script.calls("CancelTask")


@pytest.mark.parametrize("answer", [BROKEN_RESPONSE, ProtocolError("x"), refused("TASK_NOT_CANCELABLE")])
async def test_an_agent_that_does_not_stop_after_its_time_limit_is_left_to_the_runtime(
    monkeypatch: pytest.MonkeyPatch, answer: Exception
) -> None:
    monkeypatch.setattr("dragoman.agents.called.agent.AGENT_STOP_TIMEOUT", 0.05)
    script = ScriptedTransport(
        {
            "SendStreamingMessage": [[task("WORKING"), asyncio.Event()]],
            "CancelTask": [[answer]],
            "GetTask": [[task("WORKING")]],
        }
    )
    _, result = await canceled_turn(script, "deadline")
    assert isinstance(result, asyncio.CancelledError)


def repeated(context: RecordingTurnContext) -> RecordingTurnContext:
    """A second attempt of a turn that a client has canceled before."""
    context.attempt, context.canceled, context.cancel_reason = 2, True, "client"
    return context


async def test_a_repeated_turn_with_a_pending_cancel_cancels_the_upstream_task() -> None:
    known = task_state_of(task="t-1", context="c-1", last_message_id="question-1")
    context = repeated(RecordingTurnContext("hi", task_state=known))
    polls: list[Any] = [[task("WORKING")], [task("WORKING")], [task("CANCELED")]]
    script = ScriptedTransport({"CancelTask": [[BROKEN_RESPONSE], [task("CANCELED")]], "GetTask": polls})
    async with asyncio.timeout(60):
        result = await agent(script).take_turn(context)
    assert result.status.state == states.CANCELED
    assert script.calls("CancelTask")
    assert not script.calls("SendMessage")


async def test_a_repeated_turn_with_a_pending_cancel_sends_no_message_that_never_arrived() -> None:
    context = repeated(RecordingTurnContext("hi", task_state=task_state_of(unsent=True)))
    result = await agent(script := ScriptedTransport({})).take_turn(context)
    assert result.status.state == states.CANCELED
    assert not script.requests


async def test_a_cancel_that_is_refused_lets_the_task_go_on() -> None:
    go = asyncio.Event()
    script = ScriptedTransport(
        {
            "SendStreamingMessage": [[task("WORKING"), go, task("COMPLETED", "a")]],
            "CancelTask": [[refused("TASK_NOT_CANCELABLE")]],
            "GetTask": [[task("WORKING")]],
        }
    )
    context = RecordingTurnContext("hi")
    turn = asyncio.create_task(agent(script).take_turn(context))
    async with asyncio.timeout(60):
        await context.event_put.wait()
        context.canceled, context.cancel_reason = True, "client"
        turn.cancel()
        await script.called("GetTask").wait()
        go.set()
        result = await turn
    assert result.status.state == states.COMPLETED
    assert context.refusal == "the upstream agent refuses to cancel its task"


async def test_a_message_that_comes_while_a_cancel_waits_may_reach_the_agent_and_is_canceled_with_its_task() -> None:
    script = ScriptedTransport(
        {
            "SendStreamingMessage": [[task("WORKING"), asyncio.Event()]],
            "SendMessage": [[task("WORKING")]],
            "CancelTask": [[BROKEN_RESPONSE], [task("CANCELED")]],
            "GetTask": [[task("WORKING")], [task("CANCELED")]],
        }
    )
    context = RecordingTurnContext("hi")
    turn = asyncio.create_task(agent(script).take_turn(context))
    async with asyncio.timeout(60):
        await context.event_put.wait()
        context.canceled, context.cancel_reason = True, "client"
        turn.cancel()
        await script.called("CancelTask").wait()
        context.queued_messages.put_nowait(pb.Message(message_id="m-2", parts=[pb.Part(text="and this")]))
        await script.called("SendMessage").wait()
        result = await turn
    assert result.status.state == states.CANCELED
    assert [sent.message.task_id for sent in script.calls("SendMessage")] == ["t-1"]


async def test_a_canceled_turn_that_cannot_reach_its_agent_is_left_to_the_next_attempt() -> None:
    script = ScriptedTransport(
        {
            "SendStreamingMessage": [[task("WORKING"), BROKEN_RESPONSE]],
            "CancelTask": [[CONNECT_FAILURE]],
            "GetTask": [[CONNECT_FAILURE]],
        }
    )
    _, result = await canceled_turn(script, "client")
    assert isinstance(result, WorkerLost)
    assert result.may_have_started


async def test_a_canceled_turn_whose_process_stops_is_left_to_the_next_attempt() -> None:
    script = ScriptedTransport(
        {
            "SendStreamingMessage": [[task("WORKING"), asyncio.Event()]],
            "CancelTask": [[task("WORKING")]],
            "GetTask": [[task("WORKING")]],
        }
    )
    context = RecordingTurnContext("hi")
    turn = asyncio.create_task(agent(script).take_turn(context))
    async with asyncio.timeout(60):
        await context.event_put.wait()
        context.canceled, context.cancel_reason = True, "client"
        turn.cancel()
        await script.called("CancelTask").wait()
        turn.cancel()
        with pytest.raises(WorkerLost):
            await turn


async def test_a_message_that_a_refused_cancel_held_back_is_sent() -> None:
    known = task_state_of(task="t-1", context="c-1", last_message_id="question-1")
    context = repeated(RecordingTurnContext("hi", task_state=known))
    context.attempt = 1  # a follow-up that waited for the agent
    script = ScriptedTransport(
        {
            "SendStreamingMessage": [[task("COMPLETED", "a")]],
            "CancelTask": [[refused("TASK_NOT_CANCELABLE")]],
            "GetTask": [[task("INPUT_REQUIRED")]],
        }
    )
    async with asyncio.timeout(60):
        result = await agent(script).take_turn(context)
    assert result.status.state == states.COMPLETED
    assert context.refusal


async def test_a_question_of_the_agent_does_not_end_a_cancel() -> None:
    go = asyncio.Event()
    script = ScriptedTransport(
        {
            "SendStreamingMessage": [[task("WORKING"), go, task("INPUT_REQUIRED", text="q?")]],
            "CancelTask": [[BROKEN_RESPONSE], [task("CANCELED")]],
            "GetTask": [[task("INPUT_REQUIRED")], [task("CANCELED")]],
        }
    )
    context = RecordingTurnContext("hi")
    turn = asyncio.create_task(agent(script).take_turn(context))
    async with asyncio.timeout(60):
        await context.event_put.wait()
        context.canceled, context.cancel_reason = True, "client"
        turn.cancel()
        await script.called("CancelTask").wait()
        go.set()
        result = await turn
    assert result.status.state == states.CANCELED
