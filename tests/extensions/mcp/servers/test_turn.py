"""One turn: calls, retries, questions, tasks of the server, and turns of dead processes."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import Any, cast

import mcp_types as types
import pytest
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError
from tests.agents.turn_context import RecordingTurnContext
from tests.extensions.mcp.servers.scripted_server import (
    BROKEN,
    CONNECT_FAILURE,
    NOT_SENT,
    SESSION_LOST,
    ScriptedServer,
    task_result,
    task_state,
    text_result,
    tool,
)

from dragoman.core.task import states
from dragoman.core.trace import CURRENT_TRACE
from dragoman.extensions.mcp.servers.call_state import CallState, read_call_state
from dragoman.extensions.mcp.servers.transport import FORBIDDEN_CODE
from dragoman.extensions.mcp.servers.turn import McpTurn
from dragoman.ports import TurnResult, WorkerLost
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
FORM = types.ElicitRequestFormParams(message="Who?", requested_schema=NAME)
ASK = types.ElicitRequest(params=FORM)
ASK_JSON = {
    "method": "elicitation/create",
    "params": {"mode": "form", "message": "Who?", "requestedSchema": NAME},
}
ACCEPTED = {"action": "accept", "content": {"name": "Ann"}}


async def no_sleep(seconds: float) -> None:
    await asyncio.sleep(0)


def turn(context: RecordingTurnContext, server: ScriptedServer) -> McpTurn:
    ids = count(1)
    return McpTurn(context, cast(Any, server), lambda: f"id-{next(ids)}", clock=lambda: 0.0, sleep=no_sleep)


def context(text: str = "write hello", *, attempt: int = 1, state: CallState | None = None) -> RecordingTurnContext:
    turn_context = RecordingTurnContext(text, task_state=state.to_json() if state is not None else b"")
    turn_context.attempt = attempt
    return turn_context


def outcome(result: TurnResult) -> tuple[int, str]:
    """The state and text of a result."""
    parts = pb.Message.FromString(result.status.message).parts
    return result.status.state, parts[0].text if parts else ""


async def run(server: ScriptedServer, turn_context: RecordingTurnContext | None = None) -> tuple[int, str]:
    return outcome(await turn(turn_context or context(), server).run())


async def test_a_result_completes_the_task() -> None:
    server = ScriptedServer({"call": [text_result("done")]})
    turn_context = context()
    result = await turn(turn_context, server).run()
    assert turn_context.task(result).artifacts[0].parts[0].text == "done"
    assert result.status.state == states.COMPLETED
    ((name, arguments, options),) = server.called("call")
    assert (name, arguments, options["meta"]) == ("write", {"text": "hello"}, None)
    assert result.state_update.task_state is not None
    assert read_call_state(result.state_update.task_state).tool == "write"


async def test_the_trace_of_the_task_goes_on_at_the_server() -> None:
    server = ScriptedServer({"call": [text_result("done")]})
    trace = f"00-{'1' * 32}-{'2' * 16}-01"
    token = CURRENT_TRACE.set(trace)
    try:
        await run(server)
    finally:
        CURRENT_TRACE.reset(token)
    assert server.called("call")[0][2]["meta"] == {"traceparent": trace}


async def test_a_call_that_was_not_sent_is_repeated() -> None:
    server = ScriptedServer({"connect": [CONNECT_FAILURE, None], "call": [NOT_SENT, text_result("done")]})
    assert await run(server) == (states.COMPLETED, "")
    assert len(server.called("call")) == 2


async def test_a_lost_session_is_opened_again() -> None:
    server = ScriptedServer({"call": [SESSION_LOST, text_result("done")]})
    assert await run(server) == (states.COMPLETED, "")


async def test_only_a_repeatable_tool_is_called_again_after_a_lost_connection() -> None:
    server = ScriptedServer({"call": [BROKEN, text_result("done")]})
    state, text = await run(server)
    assert (state, text[:60]) == (
        states.FAILED,
        'MCP_UNKNOWN: it is unknown what the tool "write" has done, b',
    )
    assert len(server.called("call")) == 1
    assert await run(server, context("read hello")) == (states.COMPLETED, "")


async def test_an_unavailable_server_returns_the_turn_to_the_queue() -> None:
    turn_context = context()
    with pytest.raises(WorkerLost) as raised:
        await run(ScriptedServer({"connect": [CONNECT_FAILURE]}), turn_context)
    assert not raised.value.may_have_started
    assert read_call_state(turn_context.task_states[-1]).unsent
    with pytest.raises(WorkerLost) as raised:
        await run(ScriptedServer({"call": [BROKEN]}), context("read hello"))
    assert raised.value.may_have_started


async def test_a_call_that_may_have_arrived_is_not_forgotten_when_the_server_refuses_the_next() -> None:
    turn_context = context("read hello")
    with pytest.raises(WorkerLost) as raised:
        await run(ScriptedServer({"call": [BROKEN, NOT_SENT]}), turn_context)
    assert raised.value.may_have_started
    assert not any(read_call_state(state).unsent for state in turn_context.task_states)


async def test_a_turn_of_a_dead_process_repeats_only_calls_that_may_be_repeated() -> None:
    server = ScriptedServer({"call": [text_result("done")]})
    state, text = await run(server, context(attempt=2))
    assert (state, "because this server stopped while it ran" in text) == (states.FAILED, True)
    assert server.called("call") == []
    assert await run(server, context("read hello", attempt=2)) == (states.COMPLETED, "")
    turn_context = context(attempt=2, state=CallState(unsent=True))
    assert await run(server, turn_context) == (states.COMPLETED, "")
    assert not read_call_state(turn_context.task_states[1]).unsent  # stored before the call


async def test_the_servers_task_is_stored_before_it_is_polled() -> None:
    turn_context = context()

    async def first_poll(_: Any) -> Any:
        assert read_call_state(turn_context.task_states[-1]).handle == "t-1"
        return task_state("working", status_message="at it")

    done = task_state("completed", result={"content": [{"type": "text", "text": "done"}]})
    server = ScriptedServer({"call": [task_result()], "tasks/get": [first_poll, done]})
    result = await turn(turn_context, server).run()
    assert (turn_context.task(result).artifacts[0].parts[0].text, outcome(result)) == ("done", (states.COMPLETED, ""))
    assert [pb.Message.FromString(change.message).parts[0].text for change in turn_context.changes] == ["at it"]  # type: ignore[union-attr]


async def test_a_turn_of_a_dead_process_follows_the_servers_task() -> None:
    done = task_state("completed", result={"content": []})
    server = ScriptedServer({"tasks/get": [BROKEN, NOT_SENT, done]})
    state = CallState(tool="write", handle="t-1")
    assert await run(server, context(attempt=2, state=state)) == (states.COMPLETED, "")
    assert server.called("tasks/get") == [{"taskId": "t-1"}] * 3


@pytest.mark.parametrize(
    ("polled", "expected"),
    [
        (task_state("failed", error={"code": -5, "message": "no"}), (states.FAILED, "MCP_ERROR: no (-5)")),
        (task_state("cancelled", status_message="stopped"), (states.CANCELED, "stopped")),
        (task_state("cancelled"), (states.CANCELED, "")),
        (
            MCPError(types.INVALID_PARAMS, "Task not found"),
            (states.FAILED, "MCP_LOST: the MCP server no longer knows its task t-1: Task not found"),
        ),
        (MCPError(-5, "no"), (states.FAILED, "MCP_ERROR: no (-5)")),
        (
            task_state("completed", result={"content": [], "structuredContent": {"n": 2**60}}),
            (states.COMPLETED, ""),
        ),
    ],
)
async def test_the_end_of_the_servers_task_ends_ours(polled: Any, expected: tuple[int, str]) -> None:
    server = ScriptedServer({"call": [task_result()], "tasks/get": [polled]})
    state, text = await run(server)
    assert (state, text[: len(expected[1])]) == expected


async def test_questions_of_the_servers_task_are_answered_one_by_one() -> None:
    other = types.ElicitRequest(params=types.ElicitRequestFormParams(message="And?", requested_schema=NAME))
    asks = task_state("input_required", input_requests={"a": ASK, "b": other})
    server = ScriptedServer({"call": [task_result()], "tasks/get": [asks], "tasks/update": [types.EmptyResult()]})
    result = await turn(context(), server).run()
    assert outcome(result) == (states.INPUT_REQUIRED, "Who?")
    assert result.state_update.task_state is not None
    result = await turn(context("Ann", state=read_call_state(result.state_update.task_state)), server).run()
    assert outcome(result) == (states.INPUT_REQUIRED, "And?")
    assert result.state_update.task_state is not None
    done = task_state("completed", result={"content": []})
    server.results["tasks/get"] = [asks, done]  # it may show requests once more that are answered
    turn_context = context("Bob", state=read_call_state(result.state_update.task_state))
    assert await run(server, turn_context) == (states.COMPLETED, "")
    answers = {"a": ACCEPTED, "b": {"action": "accept", "content": {"name": "Bob"}}}
    assert server.called("tasks/update") == [{"taskId": "t-1", "inputResponses": answers}]
    stored = read_call_state(turn_context.task_states[-1])
    assert (stored.answered, stored.requests) == (("a", "b"), {})


async def test_an_input_required_result_is_answered_with_its_state() -> None:
    asks = types.InputRequiredResult(input_requests={"who": ASK}, request_state="s-1")
    server = ScriptedServer({"call": [asks, text_result("done")]})
    result = await turn(context(), server).run()
    assert outcome(result) == (states.INPUT_REQUIRED, "Who?")
    assert result.state_update.task_state is not None
    state = read_call_state(result.state_update.task_state)
    assert (state.request_state, state.requests) == ("s-1", {"who": ASK_JSON})
    wrong = await turn(context("", state=state), server).run()
    assert outcome(wrong)[1].startswith("Please answer with an object as a data part")
    assert await run(server, context("Ann", state=state)) == (states.COMPLETED, "")
    options = server.called("call")[1][2]
    assert options["request_state"] == "s-1"
    assert options["input_responses"]["who"].content == {"name": "Ann"}
    assert (await run(server, context("Ann", state=state, attempt=2)))[1].startswith("MCP_UNKNOWN")


async def test_a_result_that_only_wants_another_call_gets_it() -> None:
    again = types.InputRequiredResult(request_state="s-1")
    server = ScriptedServer({"call": [again, again, text_result("done")]})
    assert await run(server) == (states.COMPLETED, "")
    assert [options["request_state"] for _, _, options in server.called("call")] == [None, "s-1", "s-1"]


async def test_a_question_during_a_call_is_answered_by_the_next_turn() -> None:
    server = ScriptedServer({}, stateless=False)

    async def call(on_progress: Any) -> Any:
        answer = await server.calls.elicit(FORM)
        assert isinstance(answer, types.ElicitResult)
        return text_result(str(answer.content))

    server.results["call"] = [call]
    result = await turn(context(), server).run()
    assert outcome(result) == (states.INPUT_REQUIRED, "Who?")
    assert result.state_update.task_state is not None
    turn_context = context("Ann", state=read_call_state(result.state_update.task_state))
    done = await turn(turn_context, server).run()
    assert turn_context.task(done).artifacts[0].parts[0].text == "{'name': 'Ann'}"
    assert len(server.called("call")) == 1


@pytest.mark.parametrize("name", ["write", "read"])
async def test_an_open_call_that_was_lost_is_repeated_if_it_may_be(name: str) -> None:
    server = ScriptedServer({}, stateless=False)

    async def call(on_progress: Any) -> Any:
        answer = await server.calls.elicit(FORM)
        assert isinstance(answer, types.ElicitResult)
        return text_result(str(answer.content))

    server.results["call"] = [call]
    state = CallState(tool=name, arguments={"text": "x"}, open_call="lost", requests={"": ASK_JSON})
    found, text = await run(server, context("Ann", state=state))
    if name == "write":
        assert (found, "its call was lost while it waited for the answer" in text) == (states.FAILED, True)
    else:
        assert (found, text) == (states.COMPLETED, "")  # the same question is answered with the same answer


async def test_an_open_call_that_ended_without_the_answer_gives_its_result() -> None:
    server = ScriptedServer({}, stateless=False)
    ended = asyncio.Event()

    async def call(on_progress: Any) -> Any:
        asking = asyncio.create_task(server.calls.elicit(FORM))
        await ended.wait()  # it does not wait for the answer
        asking.cancel()
        return text_result("nobody answered")

    server.results["call"] = [call]
    result = await turn(context(), server).run()
    assert result.state_update.task_state is not None
    ended.set()
    turn_context = context("Ann", state=read_call_state(result.state_update.task_state))
    done = await turn(turn_context, server).run()
    assert turn_context.task(done).artifacts[0].parts[0].text == "nobody answered"


async def test_a_lost_open_call_is_repeated_by_a_later_attempt_if_the_server_is_away() -> None:
    server = ScriptedServer({"connect": [CONNECT_FAILURE]}, stateless=False)
    state = CallState(tool="read", arguments={"text": "x"}, open_call="lost", requests={"": ASK_JSON})
    turn_context = context("Ann", state=state)
    with pytest.raises(WorkerLost):
        await run(server, turn_context)

    async def call(on_progress: Any) -> Any:
        answer = await other.calls.elicit(FORM)
        assert isinstance(answer, types.ElicitResult)
        return text_result(str(answer.content))

    other = ScriptedServer({"call": [call]}, stateless=False)
    later = context("Ann", attempt=2, state=read_call_state(turn_context.task_states[-1]))
    done = await turn(later, other).run()
    assert later.task(done).artifacts[0].parts[0].text == "{'name': 'Ann'}"


async def test_an_open_call_whose_connection_breaks_is_repeated_if_it_may_be() -> None:
    server = ScriptedServer({}, stateless=False)

    async def call(on_progress: Any) -> Any:
        await server.calls.elicit(FORM)
        return BROKEN if len(server.called("call")) == 1 else text_result("done")

    server.results["call"] = [call]
    result = await turn(context("read x"), server).run()
    assert result.state_update.task_state is not None
    turn_context = context("Ann", state=read_call_state(result.state_update.task_state))
    assert await run(server, turn_context) == (states.COMPLETED, "")
    assert len(server.called("call")) == 2


async def test_an_error_that_asks_to_visit_a_url_is_answered_by_another_call() -> None:
    elicitations = [{"message": "Sign in", "url": "https://x.example", "elicitationId": "e"}]
    error = MCPError(types.URL_ELICITATION_REQUIRED, "sign in first", {"elicitations": elicitations})
    server = ScriptedServer({"call": [error, text_result("done")]}, stateless=False)
    result = await turn(context(), server).run()
    assert outcome(result) == (states.AUTH_REQUIRED, "Sign in")
    assert result.state_update.task_state is not None
    assert await run(server, context("done", state=read_call_state(result.state_update.task_state))) == (
        states.COMPLETED,
        "",
    )
    assert server.called("call")[1][2]["input_responses"] is None
    empty = MCPError(types.URL_ELICITATION_REQUIRED, "sign in first", {})
    assert (await run(ScriptedServer({"call": [empty]})))[0] == states.FAILED


async def test_a_rejected_header_lets_the_tools_be_read_once_more() -> None:
    mismatch = MCPError(types.HEADER_MISMATCH, "missing header")
    server = ScriptedServer({"call": [mismatch, text_result("done")]})
    assert await run(server) == (states.COMPLETED, "")
    assert server.listed == 1
    server = ScriptedServer({"call": [mismatch]})
    assert await run(server) == (states.FAILED, "MCP_ERROR: missing header (-32020)")


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (text_result("bad", is_error=True), (states.FAILED, "bad")),
        (MCPError(-32602, "no such tool"), (states.FAILED, "MCP_ERROR: no such tool (-32602)")),
        (MCPError(FORBIDDEN_CODE, "not allowed"), (states.FAILED, "MCP_FORBIDDEN: not allowed")),
        (RuntimeError("Invalid structured content"), (states.FAILED, "InvalidAgentResponse: Invalid structured")),
        (
            ValidationError.from_exception_data("x", []),
            (states.FAILED, "InvalidAgentResponse: the answer of the MCP server is not valid: it has another form"),
        ),
        (types.EmptyResult(), (states.FAILED, "InvalidAgentResponse: the MCP server answered a call with Empty")),
        (
            types.InputRequiredResult(input_requests={"a": types.ListRootsRequest()}),
            (states.FAILED, 'MCP_UNSUPPORTED: the MCP server asks for "roots/list", which is not supported'),
        ),
    ],
)
async def test_errors_fail_the_task(answer: Any, expected: tuple[int, str]) -> None:
    state, text = await run(ScriptedServer({"call": [answer]}))
    assert (state, text[: len(expected[1])]) == expected


async def test_a_message_without_a_call_fails_the_task() -> None:
    server = ScriptedServer({})
    state, text = await run(server, context("hello"))
    assert (state, text[:55]) == (states.FAILED, 'MCP_INVALID_CALL: "hello" is not a tool. Tools: write, ')


async def test_a_tool_that_was_not_announced_is_found_by_reading_the_list_once_more() -> None:
    server = ScriptedServer({"call": [text_result("done")]})
    server.new_tools = [tool("new")]
    assert await run(server, context("new x")) == (states.COMPLETED, "")
    assert (await run(server, context("newer x")))[0] == states.FAILED
    assert server.listed == 2


async def test_a_canceled_turn_cancels_its_call() -> None:
    canceled = asyncio.Event()
    started = asyncio.Event()

    async def call(on_progress: Any) -> Any:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            canceled.set()

    running = asyncio.create_task(turn(context(), ScriptedServer({"call": [call]})).run())
    await started.wait()
    running.cancel()
    await asyncio.wait([running])
    assert canceled.is_set()
