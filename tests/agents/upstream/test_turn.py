"""One upstream turn with a scripted agent."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from tests.agents.turn_context import RecordingTurnContext, state_of, status_text
from tests.agents.upstream.scripted_transport import (
    BROKEN_RESPONSE,
    CONNECT_FAILURE,
    ScriptedTransport,
    agent,
    chunk,
    refused,
    run_turn,
    status,
    task,
)

from dragoman.agents.upstream.turn_writer import UpstreamTaskState
from dragoman.calling.errors import CallForbidden, CallRefused, ProtocolError
from dragoman.core.task import states
from dragoman.ports import TurnResult, WorkerLost
from dragoman.wire.remote_errors import RemoteError
from dragoman_pb.dragoman.worker.v1 import worker_pb2 as wk
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

pytestmark = pytest.mark.long

QUESTION = "question-1"
"""The id of the turn's message."""


def task_state_of(**fields: Any) -> bytes:
    return UpstreamTaskState(**fields).to_json()


def stored_state(context: RecordingTurnContext) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(context.task_states[-1])["upstream"]
    return found


def texts(task: pb.Task) -> str:
    return "".join(part.text for artifact in task.artifacts for part in artifact.parts)


# Streams -------------------------------------------------------------------------------------------------------------


async def test_stream_events_are_written_in_order_after_the_task_id() -> None:
    context = RecordingTurnContext("hi")
    events = [task("SUBMITTED"), status("WORKING"), chunk("a", append=False), chunk("b"), status("COMPLETED", "done")]
    found, _ = await run_turn(context, ScriptedTransport({"SendStreamingMessage": [events]}))
    assert (state_of(found), status_text(found), texts(found)) == ("COMPLETED", "done", "ab")
    assert stored_state(context) == {
        "location": "http://there",
        "task": "t-1",
        "context": "c-1",
        "last_message_id": QUESTION,
    }
    assert len(context.task_states) == 2  # with the first event


async def test_a_broken_stream_is_resumed_without_repeats() -> None:
    script = ScriptedTransport(
        {
            "SendStreamingMessage": [[task("WORKING"), chunk("a", append=False), BROKEN_RESPONSE]],
            "SubscribeToTask": [
                [task("WORKING", "a", "b"), chunk("c"), BROKEN_RESPONSE],
                [task("WORKING", "abc"), chunk("d")],
            ],
            "GetTask": [[task("WORKING", "a", "b", "c")], [task("COMPLETED", "abcd")]],
        }
    )
    found, _ = await run_turn(RecordingTurnContext("hi"), script)
    assert (state_of(found), texts(found)) == ("COMPLETED", "abcd")
    assert len(script.calls("SendStreamingMessage")) == 1


async def test_events_before_the_first_task_only_signal_a_change() -> None:
    script = ScriptedTransport(
        {
            "SendStreamingMessage": [[task("WORKING"), chunk("a", append=False), BROKEN_RESPONSE]],
            "SubscribeToTask": [[chunk("c"), status("COMPLETED")]],
            "GetTask": [[task("WORKING", "a", "b", "c")], [task("COMPLETED", "a", "b", "c")]],
        }
    )
    found, _ = await run_turn(RecordingTurnContext("hi"), script)
    assert (state_of(found), texts(found)) == ("COMPLETED", "abc")


async def test_a_task_without_streams_is_polled() -> None:
    script = ScriptedTransport(
        {
            "SendMessage": [[task("SUBMITTED")]],
            "GetTask": [[task("WORKING", "a")], [task("WORKING", "ab")], [task("COMPLETED", "abc")]],
        }
    )
    context = RecordingTurnContext("hi")
    found, _ = await run_turn(context, script, streams=False)
    assert (state_of(found), texts(found)) == ("COMPLETED", "abc")
    assert len(script.calls("GetTask")) == 3
    assert script.calls("SendMessage")[0].configuration.return_immediately


async def test_a_card_that_wrongly_claims_streams_is_overruled() -> None:
    script = ScriptedTransport({"SendMessage": [[task("COMPLETED", "a")]]})
    remote = agent(script)
    found = await remote.take_turn(RecordingTurnContext("hi"))
    assert found.status.state == states.COMPLETED
    assert not remote.supports_streaming


async def test_unsupported_subscriptions_are_not_repeated() -> None:
    script = ScriptedTransport(
        {
            "SendStreamingMessage": [[task("WORKING"), BROKEN_RESPONSE]],
            "GetTask": [[task("WORKING")], [task("WORKING")], [task("COMPLETED", "a")]],
        }
    )
    await run_turn(RecordingTurnContext("hi"), script)
    assert len(script.calls("SubscribeToTask")) == 1


async def test_artifacts_that_a_stream_left_out_are_read() -> None:
    script = ScriptedTransport(
        {"SendStreamingMessage": [[task("WORKING"), status("COMPLETED")]], "GetTask": [[task("COMPLETED", "a")]]}
    )
    found, _ = await run_turn(RecordingTurnContext("hi"), script)
    assert (state_of(found), texts(found)) == ("COMPLETED", "a")
    failing = ScriptedTransport(
        {"SendStreamingMessage": [[task("WORKING"), status("COMPLETED")]], "GetTask": [[CONNECT_FAILURE]]}
    )
    found, _ = await run_turn(RecordingTurnContext("hi"), failing)
    assert state_of(found) == "COMPLETED"


async def test_a_message_is_a_complete_response() -> None:
    answer = pb.Message(message_id="m", role=pb.ROLE_AGENT, task_id="x", parts=[pb.Part(text="hello")])
    _, result = await run_turn(RecordingTurnContext("hi"), ScriptedTransport({"SendStreamingMessage": [[answer]]}))
    assert result.reply is not None
    assert (result.reply.parts[0].text, result.reply.task_id, result.reply.context_id) == ("hello", "", "context-1")


# Turns that end and go on --------------------------------------------------------------------------------------------


async def test_a_question_ends_the_turn_and_the_reply_goes_to_the_same_task() -> None:
    first, second = RecordingTurnContext("hi"), RecordingTurnContext("blue")
    question = task("INPUT_REQUIRED", text="colour?")
    _, result = await run_turn(first, ScriptedTransport({"SendStreamingMessage": [[task("SUBMITTED"), question]]}))
    assert result.status.state == states.INPUT_REQUIRED
    second.task_state = result.state_update.task_state or b""
    second.question = pb.Message.FromString(result.status.message)
    # Some servers first send the task in its old state.
    script = ScriptedTransport(
        {"SendStreamingMessage": [[question, status("WORKING"), task("COMPLETED", "blue it is")]]}
    )
    found, _ = await run_turn(second, script)
    assert (state_of(found), texts(found)) == ("COMPLETED", "blue it is")
    (request,) = script.calls("SendStreamingMessage")
    assert (request.message.task_id, request.message.context_id) == ("t-1", "c-1")


async def test_an_agent_that_starts_a_task_for_each_message_is_followed() -> None:
    context = RecordingTurnContext("blue", task_state=task_state_of(task="t-1", context="c-1", last_message_id="m-0"))
    script = ScriptedTransport(
        {
            "SendStreamingMessage": [[task("WORKING", id="t-2"), BROKEN_RESPONSE]],
            "GetTask": [[task("COMPLETED", "a", id="t-2")]],
        }
    )
    found, _ = await run_turn(context, script)
    assert texts(found) == "a"
    assert stored_state(context)["task"] == "t-2"


async def test_the_same_question_in_a_later_turn_ends_that_turn_too() -> None:
    context = RecordingTurnContext("red")
    question = task("INPUT_REQUIRED", text="colour?", text_id="q-1")
    _, result = await run_turn(RecordingTurnContext("hi"), ScriptedTransport({"SendStreamingMessage": [[question]]}))
    context.task_state = result.state_update.task_state or b""
    again = task("INPUT_REQUIRED", text="colour?", text_id="q-2")
    _, result = await run_turn(context, ScriptedTransport({"SendStreamingMessage": [[question, again]]}))
    assert result.status.state == states.INPUT_REQUIRED


async def test_a_stream_that_ends_with_auth_required_ends_the_turn_with_one_status() -> None:
    context = RecordingTurnContext("hi")
    script = ScriptedTransport({"SendStreamingMessage": [[task("WORKING"), status("AUTH_REQUIRED", "log in")]]})
    found, result = await run_turn(context, script)
    assert (result.status.state, status_text(found)) == (states.AUTH_REQUIRED, "log in")
    assert [change for change in context.changes if getattr(change, "state", 0) == states.AUTH_REQUIRED] == []


async def test_a_stream_that_continues_after_auth_required_does_not_end_the_turn() -> None:
    context = RecordingTurnContext("hi")
    events = [task("WORKING"), status("AUTH_REQUIRED", "log in"), status("WORKING"), status("COMPLETED")]
    found, _ = await run_turn(context, ScriptedTransport({"SendStreamingMessage": [events]}))
    assert state_of(found) == "COMPLETED"
    seen = [getattr(change, "state", 0) for change in context.changes]
    assert seen == [states.WORKING, states.AUTH_REQUIRED, states.WORKING]


async def test_a_message_to_an_ended_upstream_task_starts_another_in_the_same_context() -> None:
    context = RecordingTurnContext("more", task_state=task_state_of(task="t-1", context="c-1", last_message_id="m-0"))
    script = ScriptedTransport(
        {
            "SendStreamingMessage": [
                [refused("UNSUPPORTED_OPERATION")],
                [task("COMPLETED", "more", id="t-2")],
            ],
            "SendMessage": [[refused("UNSUPPORTED_OPERATION", "it has ended")]],
            "GetTask": [[task("COMPLETED")]],
        }
    )
    found, _ = await run_turn(context, script)
    assert texts(found) == "more"
    sent = script.calls("SendStreamingMessage")
    assert [(one.message.task_id, one.message.context_id) for one in sent] == [("t-1", "c-1"), ("", "c-1")]


async def test_messages_during_a_turn_go_to_the_upstream_task() -> None:
    go, context = asyncio.Event(), RecordingTurnContext("hi")
    script = ScriptedTransport(
        {
            "SendStreamingMessage": [[task("WORKING"), go, status("COMPLETED")]],
            "SendMessage": [[task("WORKING")]],
        }
    )
    turn = asyncio.create_task(agent(script).take_turn(context))
    context.queued_messages.put_nowait(pb.Message(message_id="m-2", parts=[pb.Part(text="and this")]))
    async with asyncio.timeout(60):
        await script.called("SendMessage").wait()
    go.set()
    assert (await turn).status.state == states.COMPLETED
    (passed_on,) = script.calls("SendMessage")
    assert (passed_on.message.task_id, passed_on.message.parts[0].text) == ("t-1", "and this")


async def test_a_message_that_came_too_late_starts_another_upstream_task() -> None:
    go, context = asyncio.Event(), RecordingTurnContext("hi")
    script = ScriptedTransport(
        {
            "SendStreamingMessage": [
                [task("WORKING"), go, status("COMPLETED", "first")],
                [task("COMPLETED", "second", id="t-2")],
            ],
            "SendMessage": [[refused("UNSUPPORTED_OPERATION", "it has ended")]],
        }
    )
    turn = asyncio.create_task(agent(script).take_turn(context))
    context.queued_messages.put_nowait(pb.Message(message_id="m-2", parts=[pb.Part(text="late")]))
    async with asyncio.timeout(60):
        await script.called("SendMessage").wait()
    go.set()
    result = await turn
    assert texts(context.task(result)) == "second"
    late = script.calls("SendStreamingMessage")[1].message
    assert (late.parts[0].text, late.task_id, late.context_id) == ("late", "", "c-1")


async def passed_on(
    script: ScriptedTransport, *, waiting: int = 0, attempt: int = 1, idempotent: bool = False
) -> TurnResult:
    """A turn that receives a message while its upstream task runs."""
    context = RecordingTurnContext(
        "hi", task_state=task_state_of(task="t-1", context="c-1", last_message_id=QUESTION) if attempt > 1 else b""
    )
    context.attempt, context.waiting_messages = attempt, waiting
    context.queued_messages.put_nowait(pb.Message(message_id="m-2", parts=[pb.Part(text="and this")]))
    async with asyncio.timeout(60):
        return await agent(script, idempotent=idempotent).take_turn(context)


def running(go: asyncio.Event, shown: list[str], answers: list[Any]) -> ScriptedTransport:
    """An upstream task with these messages in its history, which works until `go`. `answers`: to forwarded
    messages."""
    remote = task("WORKING")
    remote.history.extend(pb.Message(message_id=id, role=pb.ROLE_USER) for id in shown)
    stream = [task("WORKING"), go, status("COMPLETED", "done")]
    return ScriptedTransport(
        {
            "SendStreamingMessage": [stream],
            "SubscribeToTask": [stream],
            "GetTask": [[remote]],
            "SendMessage": [[one] for one in answers],
        }
    )


async def once(script: ScriptedTransport, rpc: str, then: asyncio.Event, times: int = 1) -> None:
    """Runs a callback after so many calls."""
    async with asyncio.timeout(60):
        while len(script.calls(rpc)) < times:
            script.called(rpc).clear()
            await script.called(rpc).wait()
    then.set()


@pytest.mark.parametrize(
    ("shown", "sends", "state"),
    [([QUESTION, "m-2"], 1, "COMPLETED"), ([QUESTION], 2, "COMPLETED"), ([], 1, "FAILED")],
)
async def test_a_message_with_a_broken_response_is_searched_for_and_not_sent_twice(
    shown: list[str], sends: int, state: str
) -> None:
    go = asyncio.Event()
    script = running(go, shown, [BROKEN_RESPONSE, task("WORKING")])
    going = asyncio.create_task(once(script, "GetTask", go))
    result = await passed_on(script)
    await going
    assert states.name(result.status.state) == f"TASK_STATE_{state}"
    assert len(script.calls("SendMessage")) == sends
    if state == "FAILED":
        assert b"UPSTREAM_UNKNOWN" in result.status.message


async def test_a_message_is_resent_to_an_idempotent_agent() -> None:
    go = asyncio.Event()
    script = running(go, [], [BROKEN_RESPONSE, task("WORKING")])
    going = asyncio.create_task(once(script, "SendMessage", go))
    result = await passed_on(script, idempotent=True)
    await going
    assert result.status.state == states.COMPLETED
    assert len(script.calls("SendMessage")) == 2
    keys = {key for (rpc, _), key in zip(script.requests, script.keys, strict=True) if rpc == "SendMessage"}
    assert len(keys) == 1


async def test_an_undelivered_follow_up_is_resent_while_the_upstream_task_works() -> None:
    go = asyncio.Event()
    script = running(go, [], [CONNECT_FAILURE, task("WORKING")])
    going = asyncio.create_task(once(script, "SendMessage", go))
    result = await passed_on(script)
    await going
    assert result.status.state == states.COMPLETED
    assert len(script.calls("SendMessage")) == 2


@pytest.mark.parametrize(
    ("shown", "sends", "state"),
    [([QUESTION, "m-2"], 0, "COMPLETED"), ([QUESTION], 1, "COMPLETED"), ([], 0, "FAILED")],
)
async def test_a_follow_up_that_another_process_may_have_forwarded_is_searched_for(
    shown: list[str], sends: int, state: str
) -> None:
    go = asyncio.Event()
    script = running(go, shown, [task("WORKING")])
    # Two reads: for the task of the turn, and for the message that arrived meanwhile.
    going = asyncio.create_task(once(script, "GetTask", go, 2))
    result = await passed_on(script, waiting=1, attempt=2)
    await going
    assert states.name(result.status.state) == f"TASK_STATE_{state}"
    assert (len(script.calls("SendMessage")), script.calls("SendStreamingMessage")) == (sends, [])


@pytest.mark.parametrize("is_sent", [True, False])
async def test_a_follow_up_with_which_another_process_may_have_begun_a_task_is_searched_for(is_sent: bool) -> None:
    ended, other = task("COMPLETED", "first"), task("COMPLETED", "second", id="t-2")
    ended.history.add(message_id=QUESTION)
    other.history.add(message_id="m-2")
    script = ScriptedTransport(
        {
            "GetTask": [[ended]],
            "SendMessage": [[refused("UNSUPPORTED_OPERATION", "it has ended")]],
            "ListTasks": [[pb.ListTasksResponse(tasks=[ended, other] if is_sent else [ended])]],
            "SendStreamingMessage": [[other]],
        }
    )
    result = await passed_on(script, waiting=1, attempt=2)
    assert result.status.state == states.COMPLETED
    sent = [request.message.message_id for request in script.calls("SendStreamingMessage")]
    assert (len(script.calls("ListTasks")), sent) == (1, [] if is_sent else ["m-2"])


async def test_a_question_about_a_late_message_is_not_answered_with_the_one_before() -> None:
    asks = task("INPUT_REQUIRED", "second", id="t-2")  # begun with m-2: the task of the turn's message had ended
    asks.history.add(message_id="m-2")
    script = ScriptedTransport({"GetTask": [[asks]], "SendStreamingMessage": [[task("COMPLETED", id="t-2")]]})
    state = task_state_of(task="t-2", context="c-1", last_message_id="m-2")
    context = RecordingTurnContext("hi", history=[pb.Message(message_id="m-0")], task_state=state)
    context.attempt, context.waiting_messages = 2, 1
    context.queued_messages.put_nowait(pb.Message(message_id="m-2"))
    async with asyncio.timeout(60):
        result = await agent(script).take_turn(context)
    assert result.status.state == states.INPUT_REQUIRED
    assert script.calls("SendStreamingMessage") == script.calls("SendMessage") == []


async def test_a_repeated_turn_does_not_take_the_result_of_the_turn_before_for_its_own() -> None:
    ended, other = task("COMPLETED", "first"), task("COMPLETED", "second", id="t-2")
    ended.history.add(message_id="m-0")
    other.history.add(message_id=QUESTION)
    first = await agent(ScriptedTransport({"SendStreamingMessage": [[ended]]})).take_turn(RecordingTurnContext("hi"))
    assert first.state_update.task_state is not None
    script = ScriptedTransport({"ListTasks": [[pb.ListTasksResponse(tasks=[ended, other])]]})
    context = RecordingTurnContext(
        "hi", history=[pb.Message(message_id="m-0")], task_state=first.state_update.task_state
    )
    context.attempt = 2
    second = await agent(script).take_turn(context)
    assert (texts(context.task(second)), len(script.calls("SendStreamingMessage"))) == ("second", 0)


async def test_a_follow_up_that_arrived_after_the_restart_is_sent() -> None:
    go = asyncio.Event()
    script = running(go, [], [task("WORKING")])
    going = asyncio.create_task(once(script, "SendMessage", go))
    result = await passed_on(script, waiting=0, attempt=2)
    await going
    assert result.status.state == states.COMPLETED
    assert len(script.calls("SendMessage")) == 1


async def test_a_turn_is_returned_if_its_message_may_be_delivered_to_an_unavailable_agent() -> None:
    script = running(asyncio.Event(), [], [BROKEN_RESPONSE])
    script.results["GetTask"] = [[CONNECT_FAILURE]]
    with pytest.raises(WorkerLost) as lost:
        await passed_on(script)
    assert lost.value.may_have_started
    assert len(script.calls("SendMessage")) == 1


# Unavailable ---------------------------------------------------------------------------------------------------------


async def test_an_undelivered_message_is_resent() -> None:
    script = ScriptedTransport(
        {"SendStreamingMessage": [[CONNECT_FAILURE], [CONNECT_FAILURE], [task("COMPLETED", "a")]]}
    )
    found, _ = await run_turn(RecordingTurnContext("hi"), script)
    assert texts(found) == "a"
    assert len(set(script.keys)) == 1


async def test_an_unavailable_agent_returns_the_turn_unsent() -> None:
    context, remote = (
        RecordingTurnContext("hi"),
        agent(ScriptedTransport({"SendStreamingMessage": [[CONNECT_FAILURE]]})),
    )
    with pytest.raises(WorkerLost) as lost:
        await remote.take_turn(context)
    assert not lost.value.may_have_started
    assert (remote.is_unavailable, remote.capacity, remote.problem) == (True, 0, CONNECT_FAILURE.summary)
    assert stored_state(context) == {"unsent": True}
    context.task_state, context.attempt = context.task_states[-1], 2
    script = ScriptedTransport({"SendStreamingMessage": [[task("COMPLETED", "a")]]})
    found, _ = await run_turn(context, script)
    assert texts(found) == "a"


async def test_a_returned_turn_continues_its_upstream_task() -> None:
    context = RecordingTurnContext("hi")
    script = ScriptedTransport(
        {
            "SendStreamingMessage": [[task("WORKING"), chunk("a", append=False), BROKEN_RESPONSE]],
            "SubscribeToTask": [[CONNECT_FAILURE]],
            "GetTask": [[CONNECT_FAILURE]],
        }
    )
    with pytest.raises(WorkerLost) as lost:
        await agent(script).take_turn(context)
    assert lost.value.may_have_started
    context.task_state, context.attempt = context.task_states[-1], 2
    back = ScriptedTransport({"SubscribeToTask": [[task("COMPLETED", "ab")]], "GetTask": [[task("WORKING", "a")]]})
    found, _ = await run_turn(context, back)
    assert (state_of(found), texts(found)) == ("COMPLETED", "ab")
    assert not back.calls("SendStreamingMessage")


async def test_a_lost_upstream_task_fails_with_that_reason() -> None:
    script = ScriptedTransport(
        {"SendStreamingMessage": [[task("WORKING"), BROKEN_RESPONSE]], "GetTask": [[refused("TASK_NOT_FOUND")]]}
    )
    found, _ = await run_turn(RecordingTurnContext("hi"), script)
    assert state_of(found) == "FAILED"
    assert status_text(found).startswith("UPSTREAM_LOST: the agent no longer knows its task t-1")


async def test_a_busy_agent_is_retried() -> None:
    busy = CallRefused.from_answer(RemoteError("RESOURCE_EXHAUSTED", "busy"))
    script = ScriptedTransport({"SendStreamingMessage": [[busy], [task("COMPLETED", "a")]]})
    found, _ = await run_turn(RecordingTurnContext("hi"), script)
    assert texts(found) == "a"


# Sent already? -------------------------------------------------------------------------------------------------------


async def test_a_message_that_may_be_delivered_is_searched_for_in_its_context() -> None:
    context = RecordingTurnContext("hi")
    context.attempt = 2
    listed = pb.ListTasksResponse(
        tasks=[task("WORKING", message_id="other", id="t-0"), task("WORKING", message_id=QUESTION)]
    )
    script = ScriptedTransport({"ListTasks": [[listed]], "SubscribeToTask": [[task("COMPLETED", "a")]]})
    found, _ = await run_turn(context, script)
    assert texts(found) == "a"
    assert not script.calls("SendStreamingMessage")
    (question,) = script.calls("ListTasks")
    assert question.context_id not in ("", "context-1")


async def test_a_message_that_is_not_found_is_sent() -> None:
    context = RecordingTurnContext("hi")
    context.attempt = 2
    script = ScriptedTransport(
        {"ListTasks": [[pb.ListTasksResponse()]], "SendStreamingMessage": [[task("COMPLETED", "a")]]}
    )
    found, _ = await run_turn(context, script)
    assert texts(found) == "a"


@pytest.mark.parametrize("dialect", ["0.3", "1.0"])
async def test_an_unknown_outcome_ends_the_turn_and_nothing_is_sent_twice(dialect: str) -> None:
    context = RecordingTurnContext("hi")
    context.attempt = 2
    script = ScriptedTransport({"SendStreamingMessage": [[task("COMPLETED", "a")]]}, dialect)
    found, _ = await run_turn(context, script)
    assert state_of(found) == "FAILED"
    assert status_text(found).startswith("UPSTREAM_UNKNOWN: the message may have been sent to the agent")
    assert not script.calls("SendStreamingMessage")


async def test_an_idempotent_agent_gets_the_message_with_the_same_key() -> None:
    context = RecordingTurnContext("hi")
    script = ScriptedTransport({"SendStreamingMessage": [[BROKEN_RESPONSE], [task("COMPLETED", "a")]]}, "0.3")
    found, _ = await run_turn(context, script, idempotent=True)
    assert texts(found) == "a"
    assert len(set(script.keys)) == 1


async def test_a_task_with_an_id_of_ours_is_read_by_its_id() -> None:
    context = RecordingTurnContext("hi")
    context.attempt = 2
    script = ScriptedTransport(
        {"GetTask": [[refused("TASK_NOT_FOUND")]], "SendStreamingMessage": [[task("COMPLETED", "a")]]}, "0.1"
    )
    found, _ = await run_turn(context, script)
    assert texts(found) == "a"
    (question,), (sent,) = script.calls("GetTask"), script.calls("SendStreamingMessage")
    assert question.id == sent.message.task_id != ""


async def test_an_undelivered_reply_is_sent_and_a_delivered_one_is_not() -> None:
    before = task_state_of(task="t-1", context="c-1", last_message_id="m-0")
    waits, works = task("INPUT_REQUIRED", text="colour?"), task("WORKING", message_id=QUESTION)
    for remote, sends in ((waits, 1), (works, 0)):
        context = RecordingTurnContext("blue", history=[pb.Message(message_id="m-0")], task_state=before)
        context.attempt = 2
        done = task("COMPLETED", "blue")
        script = ScriptedTransport(
            {"GetTask": [[remote], [done]], "SendStreamingMessage": [[done]], "SubscribeToTask": [[done]]}
        )
        found, _ = await run_turn(context, script)
        assert texts(found) == "blue"
        assert len(script.calls("SendStreamingMessage")) == sends


# Refusals and nonsense -----------------------------------------------------------------------------------------------


async def test_output_modes_are_sent_where_servers_require_them() -> None:
    for dialect, modes in (("0.3", ["text/plain", "application/json"]), ("1.0", [])):
        script = ScriptedTransport({"SendStreamingMessage": [[task("COMPLETED", "a")]]}, dialect)
        await run_turn(RecordingTurnContext("hi"), script)
        (sent,) = script.calls("SendStreamingMessage")
        assert list(sent.configuration.accepted_output_modes) == modes


async def test_another_interface_is_used_when_one_lacks_a_method() -> None:
    first = ScriptedTransport(
        {"SendStreamingMessage": [[refused("METHOD_NOT_FOUND")]], "SendMessage": [[refused("METHOD_NOT_FOUND")]]}
    )
    second = ScriptedTransport({"SendStreamingMessage": [[task("COMPLETED", "a")]]}, "0.3")
    found, _ = await run_turn(RecordingTurnContext("hi"), first, second)
    assert texts(found) == "a"


async def test_the_agent_chooses_the_context_after_it_has_refused_ours() -> None:
    script = ScriptedTransport(
        {
            "SendStreamingMessage": [
                [refused("INVALID_PARAMS", "message.contextId: is not yours to choose")],
                [task("COMPLETED", "a")],
            ]
        }
    )
    found, _ = await run_turn(RecordingTurnContext("hi"), script)
    assert texts(found) == "a"
    first, second = script.calls("SendStreamingMessage")
    assert first.message.context_id
    assert not second.message.context_id


@pytest.mark.parametrize(
    ("failure", "state", "text"),
    [
        (
            refused("CONTENT_TYPE_NOT_SUPPORTED", "no csv"),
            "REJECTED",
            "UPSTREAM_REFUSED: CONTENT_TYPE_NOT_SUPPORTED: no csv",
        ),
        (refused("INTERNAL_ERROR", "oh"), "FAILED", "UPSTREAM_REFUSED: INTERNAL_ERROR: oh"),
        (ProtocolError("there: is no JSON"), "FAILED", "InvalidAgentResponse: is no JSON"),
        (CallForbidden("10.0.0.1: private"), "FAILED", "UPSTREAM_FORBIDDEN: 10.0.0.1: private"),
    ],
)
async def test_a_failure_is_reported_unchanged(failure: Exception, state: str, text: str) -> None:
    found, _ = await run_turn(RecordingTurnContext("hi"), ScriptedTransport({"SendStreamingMessage": [[failure]]}))
    assert (state_of(found), status_text(found)) == (state, text)


async def test_operators_see_the_address_that_callers_do_not() -> None:
    script = ScriptedTransport({"SendStreamingMessage": [[ProtocolError("there: is no JSON")]]})
    found, result = await run_turn(RecordingTurnContext("hi"), script)
    failure = wk.Failure.FromString(result.status.failure)
    assert failure.type == "InvalidAgentResponse"
    assert failure.text.startswith("there: is no JSON (upstream http")
    assert "http" not in status_text(found)


@pytest.mark.parametrize(
    "events",
    [
        [task("WORKING"), task("COMPLETED", id="another")],
        [task("WORKING", id="")],
        [task("WORKING", id="x" * 1001)],
    ],
)
async def test_a_stream_about_another_task_is_a_protocol_error(events: list[pb.Task]) -> None:
    found, _ = await run_turn(RecordingTurnContext("hi"), ScriptedTransport({"SendStreamingMessage": [events]}))
    assert state_of(found) == "FAILED"
    assert status_text(found).startswith("InvalidAgentResponse: ")


async def test_a_follow_up_to_a_lost_task_fails_with_that_reason() -> None:
    context = RecordingTurnContext("blue", task_state=task_state_of(task="t-1", context="c-1", last_message_id="m-0"))
    found, _ = await run_turn(context, ScriptedTransport({"SendStreamingMessage": [[refused("TASK_NOT_FOUND")]]}))
    assert status_text(found).startswith("UPSTREAM_LOST: ")


async def test_a_task_that_may_not_be_read_fails_with_the_refusal() -> None:
    script = ScriptedTransport(
        {"SendStreamingMessage": [[task("WORKING"), BROKEN_RESPONSE]], "GetTask": [[refused("INTERNAL_ERROR")]]}
    )
    found, _ = await run_turn(RecordingTurnContext("hi"), script)
    assert status_text(found).startswith("UPSTREAM_REFUSED: INTERNAL_ERROR")


async def test_an_agent_that_is_busy_during_a_poll_is_polled_later() -> None:
    busy = CallRefused.from_answer(RemoteError("RESOURCE_EXHAUSTED", "busy"))
    script = ScriptedTransport(
        {"SendStreamingMessage": [[task("WORKING"), BROKEN_RESPONSE]], "GetTask": [[busy], [task("COMPLETED", "a")]]}
    )
    found, _ = await run_turn(RecordingTurnContext("hi"), script)
    assert texts(found) == "a"


async def test_an_empty_response_is_a_protocol_error() -> None:
    found, _ = await run_turn(RecordingTurnContext("hi"), ScriptedTransport({"SendMessage": [[None]]}), streams=False)
    assert "holds neither a task nor a message" in status_text(found)


async def test_auth_required_is_shown_while_its_stream_stays_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dragoman.agents.upstream.turn.AUTH_REQUIRED_HOLD_SECONDS", 0.01)
    go, context = asyncio.Event(), RecordingTurnContext("hi")
    events = [task("WORKING"), status("AUTH_REQUIRED", "log in"), go, status("COMPLETED")]
    turn = asyncio.create_task(agent(ScriptedTransport({"SendStreamingMessage": [events]})).take_turn(context))
    async with asyncio.timeout(60):
        while states.AUTH_REQUIRED not in [getattr(change, "state", 0) for change in context.changes]:
            context.event_put.clear()
            await context.event_put.wait()
    go.set()
    assert (await turn).status.state == states.COMPLETED
