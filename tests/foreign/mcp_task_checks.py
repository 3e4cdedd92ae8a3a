"""Checks of MCP clients with the extension for tasks, against one agent. Given a `Connect` and a `Place`."""

from __future__ import annotations

import re

from checks import Checks
from mcp_client import Connect, accept, refuse
from mcp_helpers import DATA, INVALID_PARAMS, Place, error_of, say, state_of, until_status

tasks = Checks()
follows = Checks()
"""Of clients that listen for notifications of tasks."""


@tasks.of("handle")
async def a_call_is_a_task_until_it_is_completed(connect: Connect, place: Place) -> None:
    async with connect(place.endpoint, tasks=True) as session:
        handle = await session.start(place.tool("sleep"), say("sleep 1"))
        assert re.fullmatch(rf"{place.agent}/[0-9a-f-]+", handle.id), handle.id
        task = await handle.get()
        assert task["status"] == "working", task
        await handle.result()
        task = await handle.get()
        assert (task["status"], task["result"].get("isError", False)) == ("completed", False), task


@tasks.of("handle", "call")
async def a_task_is_resolved_within_a_call(connect: Connect, place: Place) -> None:
    async with connect(place.endpoint, tasks=True) as session:
        assert (await session.call(place.tool("echo"), say("echo hello"))).text == "hello"
        data = await session.call(place.tool("parts"), say("data"))
        assert data.data == DATA, data
        file = await session.call(place.tool("parts"), say("file"))
        assert file.files == {"attachment:///hello.txt": b"hello from the playground\n"}, file


@tasks.of("handle", "errors")
async def an_agent_s_failure_is_a_completed_task(connect: Connect, place: Place) -> None:
    async with connect(place.endpoint, tasks=True) as session:
        handle = await session.start(place.tool("ends"), say("fail"))
        failed = await handle.result()
        assert failed.is_error, failed
        assert "failing, as asked" in failed.text, failed
        assert (await handle.get())["status"] == "completed"


@tasks.of("handle", "input")
async def a_task_s_question_is_answered(connect: Connect, place: Place) -> None:
    async with connect(place.endpoint, accept(answer="blue"), tasks=True) as session:
        handle = await session.start(place.tool("ends"), say("ask"))
        task = await until_status(handle, "input_required")
        (request,) = task["inputRequests"].values()
        assert request["method"] == "elicitation/create", request
        assert request["params"]["message"] == "what would you like to say?", request
        assert (await handle.result()).text == "you said: blue"


@tasks.of("handle", "input")
async def a_task_s_question_is_declined(connect: Connect, place: Place) -> None:
    async with connect(place.endpoint, refuse("decline"), tasks=True) as session:
        handle = await session.start(place.tool("ends"), say("ask"))
        declined = await handle.result()
        assert "declined" in declined.text, declined


@tasks.of("handle", "cancel")
async def a_task_is_canceled(connect: Connect, place: Place) -> None:
    async with connect(place.endpoint, tasks=True) as session:
        handle = await session.start(place.tool("sleep"), say("sleep 600"))
        await handle.cancel()
        await until_status(handle, "cancelled")
    assert await state_of(place, handle.id) == "TASK_STATE_CANCELED"


@tasks.of("handle", "errors")
async def an_unknown_handle_is_an_error(connect: Connect, place: Place) -> None:
    async with connect(place.endpoint, tasks=True) as session:
        error = await error_of(session.handle(f"{place.agent}/0000").get())
    assert error.code == INVALID_PARAMS, error


@tasks.of("handle")
async def another_session_follows_a_task(connect: Connect, place: Place) -> None:
    async with connect(place.endpoint, tasks=True) as session:
        handle = await session.start(place.tool("sleep"), say("sleep 1"))
    async with connect(place.endpoint, tasks=True) as other:
        assert not (await other.handle(handle.id).result()).is_error
        assert (await other.handle(handle.id).get())["status"] == "completed"


@follows.of("listen", "handle")
async def changes_of_a_task_are_announced(connect: Connect, place: Place) -> None:
    async with connect(place.endpoint, tasks=True) as session:
        handle = await session.start(place.tool("sleep"), say("sleep 1"))
        async with session.listen(handle.id) as notices:
            while (task := await notices.wait())["status"] != "completed":
                assert (task["taskId"], task["status"]) == (handle.id, "working"), task
        assert task["taskId"] == handle.id, task
        shown = await handle.get()
        assert task["result"] == shown["result"], (task, shown)
