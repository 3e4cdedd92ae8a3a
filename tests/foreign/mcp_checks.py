"""Checks of MCP clients against one agent with the commands of the playground. Given a `Connect` and a `Place`."""

from __future__ import annotations

import base64
import json
import re
import uuid

from checks import Checks
from mcp_client import Connect, Json, accept, refuse
from mcp_helpers import DATA, TASK_TOOLS, Place, check_unknown, error_of, handle_in, say, state_of, tasks_of, until

every = Checks()
gives_up = Checks()
"""Of clients that tell the server when they give a call up."""


@every.of("list")
async def its_tools_are_listed(connect: Connect, place: Place) -> None:
    async with connect(place.endpoint) as session:
        tools = await session.tools()
    assert set(tools) >= {place.tool("echo"), *TASK_TOOLS}, sorted(tools)
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) for name in tools), sorted(tools)
    schema = tools[place.tool("echo")].input
    assert schema["type"] == "object"
    assert schema["properties"]["message"]["type"] == "string"
    assert tools["answer_task"].input["required"] == ["task", "answer"]
    assert tools["get_task"].annotations["readOnlyHint"] is True


@every.of("call")
async def a_text_is_answered(connect: Connect, place: Place) -> None:
    async with connect(place.endpoint) as session:
        result = await session.call(place.tool("echo"), say("echo hello"))
    assert (result.texts, result.is_error) == (("hello",), False), result
    assert re.fullmatch(rf"{place.agent}/[0-9a-f-]+", result.meta["dragoman/task"]), result


@every.of("call")
async def data_is_text_and_structured_content(connect: Connect, place: Place) -> None:
    async with connect(place.endpoint) as session:
        result = await session.call(place.tool("parts"), say("data"))
    assert result.data == json.loads(result.text) == DATA, result


@every.of("call")
async def a_file_is_an_embedded_resource(connect: Connect, place: Place) -> None:
    async with connect(place.endpoint) as session:
        result = await session.call(place.tool("parts"), say("file"))
    assert result.files == {"attachment:///hello.txt": b"hello from the playground\n"}, result


@every.of("call")
async def a_file_goes_there_and_back(connect: Connect, place: Place) -> None:
    content = bytes(range(256))
    file = {"name": "all.bin", "mimeType": "application/octet-stream", "data": base64.b64encode(content).decode()}
    async with connect(place.endpoint) as session:
        result = await session.call(place.tool("parts"), {"files": [file]})
    assert result.files == {"attachment:///all.bin": content}, result


@every.of("call")
async def a_message_alone_is_a_result(connect: Connect, place: Place) -> None:
    async with connect(place.endpoint) as session:
        result = await session.call(place.tool("ends"), say("reply hello"))
    assert (result.texts, result.is_error) == (("hello",), False), result


@every.of("call")
async def calls_share_a_conversation(connect: Connect, place: Place) -> None:
    async with connect(place.endpoint) as session:
        first = await session.call(place.tool("echo"), say("echo one"))
        context = first.meta["dragoman/contextId"]
        second = await session.call(place.tool("echo"), say("echo two", contextId=context))
    assert second.meta["dragoman/contextId"] == context, second
    assert len(await tasks_of(place, context)) == 2


@every.of("call")
async def a_repeated_call_with_a_key_has_one_task(connect: Connect, place: Place) -> None:
    meta = {"dragoman/idempotencyKey": str(uuid.uuid4())}
    async with connect(place.endpoint) as session:
        first = await session.call(place.tool("echo"), say("echo once"), meta=meta)
        again = await session.call(place.tool("echo"), say("echo once"), meta=meta)
    assert first.texts == again.texts == ("once",), (first, again)
    assert first.meta["dragoman/task"] == again.meta["dragoman/task"]


@every.of("call", "errors")
async def an_agent_s_failure_is_a_result(connect: Connect, place: Place) -> None:
    async with connect(place.endpoint) as session:
        failed = await session.call(place.tool("ends"), say("fail"))
        rejected = await session.call(place.tool("ends"), say("reject"))
    assert failed.is_error, failed
    assert "failing, as asked" in failed.text, failed
    assert rejected.is_error, rejected
    assert "rejecting, as asked" in rejected.text, rejected


@every.of("errors")
async def an_unknown_tool_is_an_error(connect: Connect, place: Place) -> None:
    async with connect(place.endpoint) as session:
        await check_unknown(session, f"{place.agent}_nothing")
        assert (await session.call(place.tool("echo"), say("echo still here"))).text == "still here"


@every.of("errors")
async def invalid_arguments_are_named_in_a_result(connect: Connect, place: Place) -> None:
    async with connect(place.endpoint) as session:
        for arguments, named in (({"message": 5}, "message"), ({"massage": "hello"}, "massage"), ({}, "message")):
            result = await session.call(place.tool("echo"), arguments)
            assert result.is_error, result
            assert named in result.text, result


@every.of("errors")
async def an_unknown_task_is_an_error(connect: Connect, place: Place) -> None:
    async with connect(place.endpoint) as session:
        for task in (f"{place.agent}/0000", "nonsense"):
            result = await session.call("get_task", {"task": task})
            assert result.is_error, result


@every.of("progress")
async def output_is_reported_on_the_way(connect: Connect, place: Place) -> None:
    seen: list[tuple[float, str]] = []
    async with connect(place.endpoint) as session:
        call = session.call(
            place.tool("stream"), say("stream 6 200"), on_progress=lambda at, text: seen.append((at, text))
        )
        result = await call
    assert "".join(result.texts) == "".join(f"chunk-{n} " for n in range(1, 7)), result
    numbers = [at for at, _ in seen]
    assert len(seen) >= 3, seen
    assert numbers == sorted(set(numbers)), seen
    assert any("chunk-" in text for _, text in seen), seen


@every.of("progress")
async def a_status_is_reported(connect: Connect, place: Place) -> None:
    seen: list[str] = []
    async with connect(place.endpoint) as session:
        await session.call(place.tool("sleep"), say("sleep 0.5"), on_progress=lambda _, text: seen.append(text))
    assert any("sleeping" in text for text in seen), seen


@every.of("input")
async def a_question_is_answered(connect: Connect, place: Place) -> None:
    questions: list[Json] = []

    async def answer(question: Json) -> Json:
        questions.append(question)
        return {"action": "accept", "content": {"answer": "blue"}}

    async with connect(place.endpoint, answer) as session:
        result = await session.call(place.tool("ends"), say("ask"))
    assert (result.texts, result.is_error) == (("you said: blue",), False), result
    (question,) = questions
    assert question["message"] == "what would you like to say?", question
    assert question["requestedSchema"]["properties"]["answer"]["type"] == "string", question


@every.of("input")
async def a_declined_question_goes_on(connect: Connect, place: Place) -> None:
    for action, text in (("decline", "declined"), ("cancel", "dismissed")):
        async with connect(place.endpoint, refuse(action)) as session:
            result = await session.call(place.tool("ends"), say("ask"))
        assert result.text.startswith("you said: "), result
        assert text in result.text, result


@every.of("input")
async def a_call_waits_for_authentication_elsewhere(connect: Connect, place: Place) -> None:
    async with connect(place.endpoint, accept()) as session:
        result = await session.call(place.tool("ends"), say("auth"))
    assert result.text == "you said: done", result


@every.of("tools")
async def a_question_is_answered_with_a_tool(connect: Connect, place: Place) -> None:
    async with connect(place.endpoint) as session:
        waiting = await session.call(place.tool("ends"), say("ask"))
        assert "what would you like to say?" in waiting.text, waiting
        assert "answer_task" in waiting.text, waiting
        handle = handle_in(waiting)
        still = await session.call("get_task", {"task": handle})
        assert handle_in(still) == handle
        done = await session.call("answer_task", {"task": handle, "answer": "blue"})
        assert (done.text, done.is_error) == ("you said: blue", False), done
        assert (await session.call("get_task", {"task": handle})).text == "you said: blue"


@every.of("tools", "cancel")
async def a_task_is_canceled_with_a_tool(connect: Connect, place: Place) -> None:
    async with connect(place.endpoint) as session:
        handle = handle_in(await session.call(place.tool("ends"), say("ask")))
        await session.call("cancel_task", {"task": handle})
        canceled = await session.call("get_task", {"task": handle})
    assert canceled.is_error, canceled
    assert await state_of(place, handle) == "TASK_STATE_CANCELED"


@gives_up.of("cancel")
async def a_call_that_the_client_gives_up_is_canceled(connect: Connect, place: Place) -> None:
    context = f"given-up-{uuid.uuid4()}"
    async with connect(place.endpoint) as session:
        await error_of(session.call(place.tool("sleep"), say("sleep 600", contextId=context), limit=1))

        async def canceled() -> bool:
            (task,) = await tasks_of(place, context)
            return task["status"]["state"] == "TASK_STATE_CANCELED"

        await until(canceled)
        assert (await session.call(place.tool("echo"), say("echo next"))).text == "next"
