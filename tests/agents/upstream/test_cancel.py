"""Turns upstream that are stopped: by a client, a time limit, or a server that leaves."""

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

from dragoman.calling.errors import ProtocolError
from dragoman.core.task import states


def memory(**fields: Any) -> bytes:
    return json.dumps({"upstream": fields}).encode()


def kept(desk: RecordingTurnContext) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(desk.task_states[-1])["upstream"]
    return found


async def stopped(script: ScriptedTransport, reason: str, *, when: str = "") -> tuple[RecordingTurnContext, Any]:
    """A turn that is canceled once something was put, or once a call was made."""
    desk = RecordingTurnContext("hi")
    turn = asyncio.create_task(agent(script).take_turn(desk))
    async with asyncio.timeout(60):
        await (script.called(when) if when else desk.event_put).wait()
    desk.cancelled, desk.cancel_reason = True, reason
    turn.cancel()
    (result,) = await asyncio.gather(turn, return_exceptions=True)
    return desk, result


async def test_a_cancel_is_passed_on_and_what_comes_of_it_is_the_end() -> None:
    silent = asyncio.Event()
    script = ScriptedTransport(
        {
            "SendStreamingMessage": [[task("WORKING"), silent]],
            "CancelTask": [[task("CANCELED")]],
            "GetTask": [[task("CANCELED", said="stopped")]],
        }
    )
    desk, ending = await stopped(script, "client")
    assert script.calls("CancelTask")[0].id == "t-1"
    assert status_text(desk.task(ending)) == "stopped"


async def test_a_result_that_is_there_before_the_cancel_wins() -> None:
    silent = asyncio.Event()
    script = ScriptedTransport(
        {
            "SendStreamingMessage": [[task("WORKING"), silent]],
            "CancelTask": [[refused("TASK_NOT_CANCELABLE")]],
            "GetTask": [[task("COMPLETED", "a")]],
        }
    )
    _, ending = await stopped(script, "client")
    assert ending.status.state == states.COMPLETED


async def test_a_time_limit_cancels_there_too() -> None:
    silent = asyncio.Event()
    script = ScriptedTransport(
        {
            "SendStreamingMessage": [[task("WORKING"), silent]],
            "CancelTask": [[task("CANCELED")]],
            "GetTask": [[task("CANCELED")]],
        }
    )
    _, ending = await stopped(script, "deadline")
    assert isinstance(ending, asyncio.CancelledError)
    assert script.calls("CancelTask")


async def test_a_drain_leaves_the_task_there_running() -> None:
    script = ScriptedTransport({"SendStreamingMessage": [[task("WORKING"), asyncio.Event()]]})
    desk, ending = await stopped(script, "drain")
    assert isinstance(ending, asyncio.CancelledError)
    assert not script.calls("CancelTask")
    assert kept(desk)["task"] == "t-1"


async def test_a_cancel_while_the_message_is_on_its_way_waits_for_the_task_to_be_known() -> None:
    go, silent = asyncio.Event(), asyncio.Event()
    script = ScriptedTransport(
        {
            "SendStreamingMessage": [[go, task("WORKING"), silent]],
            "CancelTask": [[task("CANCELED")]],
            "GetTask": [[task("CANCELED")]],
        }
    )
    asyncio.get_running_loop().call_later(0.05, go.set)
    _, ending = await stopped(script, "client", when="SendStreamingMessage")
    assert ending.status.state == states.CANCELED
    assert script.calls("CancelTask")


async def test_a_waiting_task_is_let_go_of() -> None:
    script = ScriptedTransport({"CancelTask": [[task("CANCELED")]]})
    await agent(script).on_canceled(memory(task="t-1"))
    await agent(script).on_canceled(b"")
    assert [request.id for request in script.calls("CancelTask")] == ["t-1"]


@pytest.mark.parametrize(("reason", "kept_is"), [("drain", [b"", {"unsent": True}]), ("client", [b""])])
async def test_a_stop_before_the_message_went_out_is_one_at_once(reason: str, kept_is: list[Any]) -> None:
    desk = RecordingTurnContext("hi")
    there = agent(script := ScriptedTransport({"SendStreamingMessage": [[CONNECT_FAILURE]]}))
    resting = asyncio.Event()

    async def rest(_: float) -> None:
        resting.set()
        await asyncio.Event().wait()

    there._sleep = rest
    turn = asyncio.create_task(there.take_turn(desk))
    await resting.wait()
    desk.cancelled, desk.cancel_reason = True, reason
    turn.cancel()
    with pytest.raises(asyncio.CancelledError):
        await turn
    assert [data and json.loads(data)["upstream"] for data in desk.task_states] == kept_is
    assert not script.calls("CancelTask")


@pytest.mark.parametrize("answer", [BROKEN_RESPONSE, ProtocolError("x"), refused("TASK_NOT_CANCELABLE")])
async def test_one_that_does_not_stop_is_left_to_be_fenced_off(
    monkeypatch: pytest.MonkeyPatch, answer: Exception
) -> None:
    monkeypatch.setattr("dragoman.agents.upstream.agent.AGENT_STOP_TIMEOUT", 0.05)
    script = ScriptedTransport(
        {
            "SendStreamingMessage": [[task("WORKING"), asyncio.Event()]],
            "CancelTask": [[answer]],
            "GetTask": [[task("WORKING")]],
        }
    )
    _, ending = await stopped(script, "client")
    assert isinstance(ending, asyncio.CancelledError)


async def test_a_turn_that_is_begun_again_to_be_canceled_is_canceled_there() -> None:
    desk = RecordingTurnContext("hi", task_state=memory(task="t-1", context="c-1", heard="question-1"))
    desk.attempt = 2
    script = ScriptedTransport({"CancelTask": [[task("CANCELED")]], "GetTask": [[task("CANCELED", said="stopped")]]})
    turn = asyncio.create_task(agent(script).take_turn(desk))
    await asyncio.sleep(0)
    desk.cancelled, desk.cancel_reason = True, "client"
    turn.cancel()
    ending = await turn
    assert (ending.status.state, status_text(desk.task(ending))) == (states.CANCELED, "stopped")
