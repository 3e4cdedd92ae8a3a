"""Calls that wait for their task: progress, questions, broken streams, limits, and results of every kind."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.extensions.mcp.endpoint.mcp_client import (
    FORMS,
    STATELESS,
    TASKS,
    asker,
    calling,
    ended,
    progress_of,
    read_answer,
)

from dragoman import Turn, agent, types
from dragoman.core.errors import InvalidParams
from dragoman.extensions.mcp.endpoint.tool_call import ElicitationId, ResumePoint

HANDSHAKE = "2025-11-25"


class Gate:
    """An agent that goes on when it is told to, and notes how it stopped."""

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.opened = asyncio.Event()
        self.canceled = asyncio.Event()
        gate = self

        @agent(id="gated", description="Waits", default=True)
        async def gated(turn: Turn) -> str:
            turn.status("waiting at the gate")
            gate.started.set()
            try:
                await gate.opened.wait()
            except asyncio.CancelledError:
                gate.canceled.set()
                raise
            return "through"

        self.agent = gated


@pytest.mark.parametrize("version", [STATELESS, HANDSHAKE])
async def test_progress_is_streamed_to_callers_with_a_token(version: str) -> None:
    @agent(default=True)
    async def counter(turn: Turn) -> Any:
        """Counts."""
        turn.status("counting")
        await turn.flush()
        yield "one "
        await asyncio.sleep(0)
        yield "two"

    async with calling(counter, version=version) as caller:
        answer = await caller.call("counter", message="go", meta={"progressToken": 0})
    progress = progress_of(answer.messages)
    assert answer.is_stream
    assert answer.text_content == "one two"
    assert progress[0]["message"] == "counting"
    assert progress[0]["progressToken"] == 0
    assert progress[0]["_meta"]["dragoman/task"] == answer.result["_meta"]["dragoman/task"]
    numbers = [one["progress"] for one in progress]
    assert numbers == sorted(set(numbers)), "progress increases"
    assert all(answer.ids) == (version == HANDSHAKE), "only the older revisions resume by event ids"


async def test_without_a_token_there_is_no_progress() -> None:
    gate = Gate()
    async with calling(gate.agent) as caller:
        call = asyncio.create_task(caller.call("gated", message="go"))
        await gate.started.wait()
        gate.opened.set()
        answer = await call
    assert progress_of(answer.messages) == []
    assert answer.text_content == "through"


async def test_a_call_that_waits_too_long_returns_the_task_and_how_to_ask_for_it() -> None:
    gate = Gate()
    async with calling(gate.agent, mcp_wait=0.2) as caller:
        answer = await caller.call("gated", message="go")
        handle = answer.result["_meta"]["dragoman/task"]
        waiting = await caller.call("get_task", task=handle)
        gate.opened.set()
        result = await caller.call("get_task", task=handle)
    assert answer.result["isError"] is False
    assert answer.text_content == waiting.text_content
    assert answer.text_content.endswith(f'Call get_task {{"task": "{handle}"}} later for its result.')
    assert result.text_content == "through"


async def test_a_question_is_asked_of_the_user_and_the_call_sent_again_with_the_answer() -> None:
    async with calling(asker, capabilities=FORMS) as caller:
        question = (await caller.call("asker", message="hello")).result
        [(key, request)] = question["inputRequests"].items()
        again = {
            "name": "asker",
            "arguments": {"message": "hello"},
            "requestState": question["requestState"],
            "inputResponses": {key: {"action": "accept", "content": {"answer": "large"}}},
        }
        answer = await caller.request("tools/call", again)
        repeated = await caller.request("tools/call", again)
    assert question["resultType"] == "input_required"
    assert request["method"] == "elicitation/create"
    assert request["params"]["message"] == "Which size?"
    assert request["params"]["requestedSchema"]["properties"]["answer"]["enum"] == ["small", "large"]
    assert answer.text_content == "chosen: large"
    assert repeated.text_content == "chosen: large", "the answer of a repeated call is not sent twice"


async def test_a_state_of_another_agent_or_server_is_rejected() -> None:
    async with calling(capabilities=FORMS) as caller:
        state = str(ElicitationId("asker", "01a20ee5-f138-7d0d-907f-a7f54102ec32", "key"))
        other = await caller.request("tools/call", {"name": "echo", "requestState": state})
        wrong = await caller.request("tools/call", {"name": "echo", "requestState": "elicit.????"})
    assert other.error["message"] == "requestState: is of a call of another agent"
    assert wrong.error["message"] == "requestState: is none of this server"


async def test_a_question_without_elicitation_is_the_result_and_answered_by_a_tool() -> None:
    async with calling(asker) as caller:
        question = await caller.call("asker", message="hello")
        handle = question.result["_meta"]["dragoman/task"]
        answer = await caller.call("answer_task", task=handle, answer="small")
        late = await caller.call("answer_task", task=handle, answer="large")
    assert question.text_content.startswith("The task waits for an answer: Which size?")
    assert f'answer_task {{"task": "{handle}"' in question.text_content
    assert answer.text_content == "chosen: small"
    assert late.result["isError"] is True
    assert "waits for no answer" in late.text_content


async def test_in_older_revisions_the_question_is_a_request_within_the_stream() -> None:
    async with calling(asker, version=HANDSHAKE) as caller:
        await caller.initialize(FORMS)
        async with caller.stream("tools/call", {"name": "asker", "arguments": {"message": "hi"}}) as events:
            result: dict[str, Any] = {}
            async for event in events:
                message = json.loads(event.data) if event.data else {}
                if message.get("method") == "elicitation/create":
                    answer = {"action": "accept", "content": {"answer": "large"}}
                    sent = await caller.post(
                        {"jsonrpc": "2.0", "id": message["id"], "result": answer}, dict(caller.headers)
                    )
                    assert (sent.status, sent.text) == (202, "")
                result = message.get("result", result)
    assert result["content"] == [{"type": "text", "text": "chosen: large"}]


async def test_a_client_that_cannot_ask_dismisses_the_question() -> None:
    async with calling(asker, version=HANDSHAKE) as caller:
        await caller.initialize(FORMS)
        async with caller.stream("tools/call", {"name": "asker", "arguments": {"message": "hi"}}) as events:
            result: dict[str, Any] = {}
            async for event in events:
                message = json.loads(event.data) if event.data else {}
                if message.get("method") == "elicitation/create":
                    error = {"code": -32601, "message": "Method not found"}
                    await caller.post({"jsonrpc": "2.0", "id": message["id"], "error": error}, dict(caller.headers))
                result = message.get("result", result)
    assert result["content"][0]["text"] == "chosen: The user dismissed the question without an answer."


async def test_a_broken_stream_of_an_older_revision_is_resumed_on_another_server(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/tasks.db"
    gate = Gate()
    async with calling(gate.agent, version=HANDSHAKE, store=store) as caller:
        await caller.initialize()
        params = {"name": "gated", "arguments": {"message": "go"}}
        async with caller.stream("tools/call", params, {"progressToken": "p"}) as events:
            priming = await anext(events.__aiter__())
            progress = await anext(events.__aiter__())
        gate.opened.set()
        assert (await caller.resume(priming.id)).text_content == "through"
    async with calling(gate.agent, version=HANDSHAKE, store=store) as caller:
        await caller.initialize()
        whole, rest = await caller.resume(priming.id), await caller.resume(progress.id)
        unknown = await caller.resume("nonsense")
    assert priming.data == b""
    assert progress_of(whole.messages)[-1]["progressToken"] == "p"
    assert json.loads(progress.data)["params"]["message"] == "waiting at the gate"
    assert "waiting at the gate" not in [one["message"] for one in progress_of(rest.messages)]
    assert whole.text_content == rest.text_content == "through"
    assert whole.last["id"] == 2, "the response has the id of the call"
    assert unknown.error["message"].startswith("Last-Event-ID: is no event id")


async def test_closing_the_stream_cancels_the_task_that_nobody_can_ask_for() -> None:
    gate = Gate()
    async with calling(gate.agent) as caller:
        async with caller.stream("tools/call", {"name": "gated", "arguments": {"message": "x"}}, {"progressToken": 1}):
            await gate.started.wait()
        await gate.canceled.wait()


async def test_a_call_with_a_key_goes_on_when_its_stream_closes_and_is_followed_again() -> None:
    gate = Gate()
    meta = {"progressToken": 1, "dragoman/idempotencyKey": "order-7"}
    async with calling(gate.agent) as caller:
        params = {"name": "gated", "arguments": {"message": "x"}}
        async with caller.stream("tools/call", params, meta) as events:
            first = json.loads((await anext(events.__aiter__())).data)["params"]
        cursor = first["_meta"]["dragoman/cursor"]
        gate.opened.set()
        again = await caller.call("gated", message="x", meta=meta)
        rest = await caller.call("gated", message="x", meta={**meta, "dragoman/cursor": cursor})
        other = await caller.call("gated", message="y", meta=meta)
    assert not gate.canceled.is_set()
    assert again.text_content == rest.text_content == "through"
    assert first["message"] not in [one["message"] for one in progress_of(rest.messages)]
    assert other.result["isError"] is True, "the same key with another content"


async def test_a_call_repeated_after_the_last_event_of_its_task_has_the_result() -> None:
    meta = {"progressToken": 1, "dragoman/idempotencyKey": "order-7"}
    async with calling() as caller:
        whole = await caller.call("failing", message="x", meta=meta)
        cursor = progress_of(whole.messages)[-1]["_meta"]["dragoman/cursor"]
        rest = await caller.call("failing", message="x", meta={**meta, "dragoman/cursor": cursor})
    assert progress_of(rest.messages) == []
    assert rest.result == whole.result
    assert "out of paper" in rest.text_content


async def test_a_call_repeated_while_nothing_happens_names_its_task() -> None:
    gate = Gate()
    meta = {"progressToken": 1, "dragoman/idempotencyKey": "order-7"}
    async with calling(gate.agent, mcp_wait=0.2) as caller:
        whole = await caller.call("gated", message="x", meta=meta)
        cursor = progress_of(whole.messages)[-1]["_meta"]["dragoman/cursor"]
        rest = await caller.call("gated", message="x", meta={**meta, "dragoman/cursor": cursor})
    assert rest.result == whole.result
    assert "is not finished yet" in rest.text_content


async def test_a_call_of_an_older_revision_is_canceled_by_a_notification() -> None:
    gate = Gate()
    async with calling(gate.agent, version=HANDSHAKE) as caller:
        await caller.initialize()
        async with caller.stream("tools/call", {"name": "gated", "arguments": {"message": "x"}}) as events:
            await gate.started.wait()
            cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 2}}
            assert (await caller.post(cancel, dict(caller.headers))).status == 202
            await gate.canceled.wait()
            last = [json.loads(event.data) async for event in events if event.data][-1]
    assert last["result"]["isError"] is True


async def test_a_task_is_canceled_by_its_handle() -> None:
    gate = Gate()
    async with calling(gate.agent, capabilities=TASKS) as caller:
        handle = (await caller.call("gated", message="x")).result["taskId"]
        await gate.started.wait()
        answer = await caller.request("tasks/cancel", {"taskId": handle})
        task = await ended(caller, handle)
    assert answer.result["resultType"] == "complete"
    assert task["status"] == "cancelled"


async def test_a_call_that_ends_soon_has_its_result_in_place_of_a_handle() -> None:
    async with calling(capabilities=TASKS, mcp_handle_after=60) as caller:
        done = (await caller.call("echo", message="hi")).result
        failed = (await caller.call("failing", message="hi")).result
    assert (done["resultType"], done["content"]) == ("complete", [{"type": "text", "text": "hi"}])
    assert (failed["resultType"], failed["isError"]) == ("complete", True)


async def test_a_cancel_of_an_ended_task_is_acknowledged() -> None:
    """SEP-2663, "Task Cancellation": an empty result, whatever the state of the task."""
    async with calling(capabilities=TASKS) as caller:
        handle = (await caller.call("echo", message="hi")).result["_meta"]["dragoman/task"]
        before = await ended(caller, handle)
        answer = await caller.request("tasks/cancel", {"taskId": handle})
        after = await ended(caller, handle)
        unknown = await caller.request("tasks/cancel", {"taskId": "echo/none"})
    assert answer.result == {"resultType": "complete"}
    assert (before["status"], after["status"]) == ("completed", "completed")
    assert unknown.error["code"] == -32602


async def test_a_direct_agent_answers_without_a_task() -> None:
    @agent(direct=True, default=True)
    async def quick(turn: Turn) -> None:
        """Replies."""
        turn.reply("at once")

    async with calling(quick, capabilities=TASKS) as caller:
        with_tasks = await caller.call("quick", message="hi")
        caller.capabilities = {}
        without = await caller.call("quick", message="hi")
    assert with_tasks.text_content == without.text_content == "at once"
    assert "dragoman/task" not in without.result.get("_meta", {})


async def test_an_agent_that_does_not_stream_is_waited_for() -> None:
    @agent(streaming=False, default=True)
    async def plain(turn: Turn) -> str:
        """Does not stream."""
        return turn.text

    async with calling(plain) as caller:
        answer = await caller.call("plain", message="hi", meta={"progressToken": 1})
        with_header = dict(caller.headers)
        body, headers = caller.envelope("tools/call", {"name": "plain", "arguments": {"message": "hi"}}, {})
        only_json = await caller.post(body, {**headers, **with_header, "Accept": "application/json"})
    assert answer.text_content == only_json.text_content == "hi"


async def test_results_have_content_of_every_kind() -> None:
    @agent(default=True)
    async def gallery(turn: Turn) -> list[types.Part]:
        """Shows everything."""
        return [
            types.text("text"),
            types.data({"a": 1}),
            types.file(b"\x89PNG", name="a.png", media_type="image/png"),
            types.file(b"RIFF", name="a.wav", media_type="audio/wav"),
            types.file(b"a,b", name="a.csv", media_type="text/csv"),
            types.link("https://example.com/b.pdf", name="b.pdf", media_type="application/pdf"),
        ]

    async with calling(gallery) as caller:
        result = (await caller.call("gallery", message="all")).result
    assert [one["type"] for one in result["content"]] == [
        *("text", "text", "image", "audio", "resource", "resource_link"),
    ]
    assert result["structuredContent"] == {"a": 1}
    assert result["content"][2] == {"type": "image", "data": "iVBORw==", "mimeType": "image/png"}
    assert result["content"][4]["resource"] == {
        "uri": "attachment:///a.csv",
        "mimeType": "text/csv",
        "blob": "YSxi",
    }


async def test_structured_content_is_an_object_in_older_revisions() -> None:
    @agent(default=True)
    async def lister(turn: Turn) -> list[int]:
        """Returns a list."""
        return [1, 2]

    async with calling(lister) as caller:
        new = (await caller.call("lister", message="x")).result
        caller.version = HANDSHAKE
        old = (await caller.call("lister", message="x")).result
    assert new["structuredContent"] == [1, 2]
    assert "structuredContent" not in old
    assert old["content"] == [{"type": "text", "text": "[1,2]"}]


async def test_a_large_result_of_a_stream_is_fetched_by_a_tool() -> None:
    @agent(default=True)
    async def big(turn: Turn) -> str:
        """Returns a lot."""
        turn.status("writing")
        await turn.flush()
        return "x" * 1_100_000

    async with calling(big) as caller:
        answer = await caller.call("big", message="x", meta={"progressToken": 1})
        task = await caller.call("get_task", task=answer.result["_meta"]["dragoman/task"])
    assert answer.text_content.startswith("The result is too large for a stream. Call get_task")
    assert len(task.text_content) == 1_100_000


ORDER = {"type": "object", "properties": {"count": {"type": "integer"}}, "required": ["count"]}
PRICE = {"type": "object", "properties": {"total": {"type": "number"}}, "required": ["total"]}


async def test_declared_schemas_are_shown_and_checked_on_both_sides() -> None:
    @agent(input=ORDER, output=PRICE, default=True)
    async def shop(turn: Turn) -> object:
        """Sells."""
        count = turn.data[0]["count"]
        return {"total": 2.5 * count} if count < 10 else {"sum": 1}

    async with calling(shop) as caller:
        [tool, *_] = (await caller.request("tools/list")).result["tools"]
        good = await caller.call("shop", count=4)
        bad = await caller.call("shop", count="four")
        wrong = await caller.call("shop", count=10)
    assert (tool["inputSchema"], tool["outputSchema"]) == (ORDER, PRICE)
    assert good.result["structuredContent"] == {"total": 10}
    assert (bad.result["isError"], bad.text_content) == (True, "arguments: count: must be of type integer")
    assert wrong.result["isError"] is True
    assert wrong.text_content.endswith('must have the property "total"')


async def test_arguments_of_a_declared_type_are_validated_by_the_agent_alone() -> None:
    @dataclass
    class Order:
        count: int

    @agent(input=Order, default=True)
    async def shop(turn: Turn) -> str:
        """Sells."""
        return f"{turn.input.count} sold"

    async with calling(shop) as caller:
        lax = await caller.call("shop", count="4")  # pydantic reads it, the JSON Schema of the type does not
        bad = await caller.call("shop", count="four")
    assert lax.text_content == "4 sold"
    assert (bad.result["isError"], "count: " in bad.text_content) == (True, True)
    assert "_meta" in bad.result, "it became a task, which the agent has ended"


async def test_an_unfinished_result_of_a_tool_with_an_output_schema_is_marked_as_an_error() -> None:
    @agent(output=PRICE, default=True)
    async def haggler(turn: Turn) -> object:
        """Asks back."""
        turn.ask("how much?")

    async with calling(haggler) as caller:
        answer = await caller.call("haggler", message="x")
    assert answer.result["isError"] is True, "clients expect structured content of every other result"
    assert "answer_task" in answer.text_content


def test_event_ids_and_question_ids_survive_their_text_form() -> None:
    point = ResumePoint("echo", "t", "0a.0b.3", 0, None, "echo_hi")
    question = ElicitationId("echo", "t", "key")
    assert ResumePoint.parse(str(point)) == point
    assert ElicitationId.parse(str(question)) == question


@pytest.mark.parametrize("id", [[[]], {}, 1.5, "[" * 1000])
async def test_an_event_id_with_a_made_up_id_of_its_request_is_rejected(id: Any) -> None:
    point = ResumePoint("echo", "t", "", id, None, "")
    async with calling(version=HANDSHAKE) as caller:
        answer = await caller.resume(str(point))
    expected = (400, -32602) if not isinstance(id, str) else (200, None)
    assert (answer.status, answer.last.get("error", {}).get("code")) == expected


@pytest.mark.parametrize("text", ["", "r1.", "r1.W10", "r1.!!!", "elicit.WzEsMiwzXQ", 7, None])
def test_ids_of_others_are_rejected(text: Any) -> None:
    with pytest.raises(InvalidParams):
        ElicitationId.parse(text)
    with pytest.raises(InvalidParams):
        ResumePoint.parse(str(text))


async def test_a_stream_that_waits_is_kept_alive_by_comments() -> None:
    gate = Gate()
    async with calling(gate.agent, keepalive=0.05) as caller:
        body, headers = caller.envelope("tools/call", {"name": "gated", "arguments": {"message": "x"}}, {})
        async with caller.session.post(caller.url, json=body, headers=headers) as response:
            assert response.headers["X-Accel-Buffering"] == "no"
            assert await response.content.readline() == b": keep-alive\n"
            gate.opened.set()
            assert (await read_answer(response)).text_content == "through"
