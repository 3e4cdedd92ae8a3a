"""Progress and results of turns."""

from __future__ import annotations

import asyncio

import mcp_types as types
from google.protobuf.json_format import MessageToDict
from tests.agents.turn_context import RecordingTurnContext
from tests.clocks import SleepingClock
from tests.extensions.mcp.servers.scripted_server import text_result

from dragoman.agents.values import struct_of, struct_to_json
from dragoman.core.errors import InvalidAgentResponse
from dragoman.core.task import states
from dragoman.core.task.log import StatusChange
from dragoman.extensions.mcp.servers.call_state import CallState
from dragoman.extensions.mcp.servers.turn_output import PROGRESS_INTERVAL, McpTurnOutput
from dragoman.ports import NO_CHANGE
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


def progress_of(context: RecordingTurnContext) -> list[str]:
    changes = [change for change in context.changes if isinstance(change, StatusChange)]
    return [pb.Message.FromString(change.message).parts[0].text for change in changes]


async def test_progress_is_written_with_its_numbers() -> None:
    context = RecordingTurnContext()
    output = McpTurnOutput(context, CallState(), lambda: "id", SleepingClock())
    await output.on_progress(1, 4, None)
    (change,) = context.changes
    assert isinstance(change, StatusChange)
    assert change.state == states.WORKING
    assert progress_of(context) == ["1 of 4"]
    assert struct_to_json(struct_of(change.metadata)) == {"progress": 1, "total": 4}


async def test_of_fast_progress_only_the_last_is_written_and_late() -> None:
    context, clock = RecordingTurnContext(), SleepingClock()
    output = McpTurnOutput(context, CallState(), lambda: "id", clock)
    for number in range(10):
        await output.on_progress(number, None, None)
    assert progress_of(context) == ["0"]
    await asyncio.sleep(0)  # the first event is announced
    context.event_put.clear()
    await context.event_put.wait()
    assert progress_of(context) == ["0", "9"]
    clock.now += PROGRESS_INTERVAL
    await output.on_progress(10, None, None)
    assert progress_of(context) == ["0", "9", "10"]


async def test_progress_after_the_end_is_dropped() -> None:
    context = RecordingTurnContext()
    output = McpTurnOutput(context, CallState(), lambda: "id", SleepingClock())
    for number in range(3):
        await output.on_progress(number, None, None)
    output.stop_progress()
    passed = asyncio.Event()
    asyncio.get_running_loop().call_later(PROGRESS_INTERVAL, passed.set)
    await passed.wait()
    assert progress_of(context) == ["0"]


async def test_the_state_is_stored_once_with_the_result() -> None:
    context = RecordingTurnContext()
    output = McpTurnOutput(context, CallState(), lambda: "id", SleepingClock())
    output.state = CallState(tool="x")
    result = output.result_of("x", text_result("done"))
    assert result.state_update.task_state == CallState(tool="x").to_json()
    assert output.result_of("x", text_result("done")).state_update is NO_CHANGE


async def test_errors_have_a_reason_and_the_text() -> None:
    output = McpTurnOutput(RecordingTurnContext(), CallState(), lambda: "id", SleepingClock())
    for result, reason, text in (
        (output.result_of("x", text_result("bad", is_error=True)), "TOOL_ERROR", "bad"),
        (output.failed("MCP_ERROR", "no"), "MCP_ERROR", "MCP_ERROR: no"),
        (
            output.failed("InvalidAgentResponse", "odd", InvalidAgentResponse),
            "InvalidAgentResponse",
            "InvalidAgentResponse: odd",
        ),
    ):
        message = pb.Message.FromString(result.status.message)
        assert result.status.state == states.FAILED
        assert (MessageToDict(message.metadata), message.parts[0].text) == ({"reason": reason}, text)
    assert output.failed("InvalidAgentResponse", "odd", InvalidAgentResponse).error is not None


async def test_an_error_of_a_tool_keeps_its_other_content() -> None:
    output = McpTurnOutput(RecordingTurnContext(), CallState(), lambda: "id", SleepingClock())
    content: list[types.ContentBlock] = [
        types.TextContent(text="bad"),
        types.ImageContent(data="AAEC", mime_type="image/png"),
    ]
    result = output.result_of("x", types.CallToolResult(content=content, is_error=True))
    assert len(result.artifacts) == 1
    assert output.result_of("x", text_result("bad", is_error=True)).artifacts == []
