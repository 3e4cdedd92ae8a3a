"""Checks of MCP clients against agents of every kind, with the commands of the playground.

A client is given as its `Connect`; uses only the standard library.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import re
import urllib.request
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from checks import Checks, Server, started
from mcp_client import Connect, Json, Result, RpcError, Session, accept, refuse

DATA = {"hello": "world", "numbers": [1, 2, 3], "nested": {"true": True, "nothing": None}}
TASK_TOOLS = ("get_task", "answer_task", "cancel_task")
INVALID_PARAMS = -32602
KINDS = {"playground": "function", "worker": "worker", "words": "executor", "upstream": "upstream"}
"""Agents of every kind that have the commands of the playground."""


@dataclass(frozen=True)
class Place:
    """An agent, and an endpoint with its tools. `http`: of its server."""

    http: str
    agent: str
    endpoint: str
    tools: frozenset[str]

    def tool(self, skill: str) -> str:
        """Its tool for a skill: an agent without skills is one tool."""
        name = f"{self.agent}_{skill}"
        return name if name in self.tools else self.agent


def say(text: str, **more: Any) -> Json:
    return {"message": text, **more}


async def tasks_of(place: Place, context: str) -> list[Json]:
    """The tasks of a conversation, as A2A lists them."""
    url = f"{place.http}/{place.agent}/tasks?contextId={context}"
    return json.loads(await asyncio.to_thread(_get, url))["tasks"]


def _get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=30) as response:
        return response.read()


async def until(look: Callable[[], Awaitable[Any]]) -> Any:
    """Repeats `look` until it returns something; the timeout of the check limits the wait."""
    while not (found := await look()):
        await asyncio.sleep(0.05)
    return found


def handle_in(result: Result) -> str:
    """The task that a result names, which its text has to name as well."""
    handle = result.meta["dragoman/task"]
    assert handle in result.text, (handle, result)
    return handle


every = Checks()
"""Given a `Connect` and a `Place`."""
tasks = Checks()
"""Of clients with the extension for tasks. Given as `every`."""
gives_up = Checks()
"""Of clients that tell the server when they give a call up. Given as `every`."""
whole = Checks()
"""Given a `Connect`, the server's URL and the ids of its agents."""
unfinished = Checks()
"""Given a `Connect` and a `Server` that waits a second for a task."""
restarts = Checks()
"""Given a `Connect` and a `Server`."""
resumes = Checks()
"""Of clients of the versions with a handshake, which resume streams. Given as `restarts`."""
repeats = Checks()
"""Of clients of 2026-07-28. Given as `restarts`."""
task_restarts = Checks()
"""Of clients with the extension for tasks. Given as `restarts`."""


# Every agent ---------------------------------------------------------------------------------------------------


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
    asked: list[Json] = []

    async def answer(question: Json) -> Json:
        asked.append(question)
        return {"action": "accept", "content": {"answer": "blue"}}

    async with connect(place.endpoint, answer) as session:
        result = await session.call(place.tool("ends"), say("ask"))
    assert (result.texts, result.is_error) == (("you said: blue",), False), result
    (question,) = asked
    assert question["message"] == "what would you like to say?", question
    assert question["requestedSchema"]["properties"]["answer"]["type"] == "string", question


@every.of("input")
async def a_declined_question_goes_on(connect: Connect, place: Place) -> None:
    for action, told in (("decline", "declined"), ("cancel", "dismissed")):
        async with connect(place.endpoint, refuse(action)) as session:
            result = await session.call(place.tool("ends"), say("ask"))
        assert result.text.startswith("you said: "), result
        assert told in result.text, result


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


async def state_of(place: Place, handle: str) -> str:
    task = json.loads(await asyncio.to_thread(_get, f"{place.http}/{place.agent}/tasks/{handle.rpartition('/')[2]}"))
    return task["status"]["state"]


async def error_of(call: Awaitable[Any]) -> RpcError:
    """The error of a call, which has to have one."""
    try:
        result = await call
    except RpcError as error:
        return error
    raise AssertionError(f"no error, but {result}")


async def check_unknown(session: Session, tool: str) -> None:
    error = await error_of(session.call(tool, {}))
    assert error.code == INVALID_PARAMS, error
    assert tool in str(error), error


# Clients with the extension for tasks --------------------------------------------------------------------------


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


async def until_status(handle: Any, status: str) -> Json:
    async def look() -> Json | None:
        task = await handle.get()
        return task if task["status"] == status else None

    return await until(look)


# The whole server ----------------------------------------------------------------------------------------------


@whole.of("list")
async def one_endpoint_has_the_tools_of_all_agents(connect: Connect, http: str, agents: frozenset[str]) -> None:
    async with connect(f"{http}/mcp") as session:
        tools = set(await session.tools())
        assert {name.partition("_")[0] for name in tools - set(TASK_TOOLS)} == agents
        assert (await session.call("playground_echo", say("echo hello"))).text == "hello"
    async with connect(f"{http}/sum/mcp") as session:
        assert set(await session.tools()) == {"sum", *TASK_TOOLS}
        await check_unknown(session, "playground_echo")


@whole.of("list", "call")
async def declared_schemas_are_those_of_the_tool(connect: Connect, http: str, _: frozenset[str]) -> None:
    async with connect(f"{http}/sum/mcp") as session:
        tool = (await session.tools())["sum"]
        assert set(tool.input["properties"]) == {"a", "b"}, tool
        assert tool.input["required"] == ["a", "b"], tool
        assert tool.output is not None
        assert set(tool.output["properties"]) == {"total"}, tool
        assert tool.annotations["readOnlyHint"] is True, tool
        result = await session.call("sum", {"a": 2, "b": 3})
        assert (result.data, json.loads(result.text)) == ({"total": 5}, {"total": 5}), result


@whole.of("errors")
async def arguments_are_checked_against_the_declared_schema(connect: Connect, http: str, _: frozenset[str]) -> None:
    async with connect(f"{http}/sum/mcp") as session:
        for arguments, named in (({"a": 1}, "b"), ({"a": 1, "b": "x"}, "b"), ({"a": 1, "b": 2, "c": 3}, "c")):
            result = await session.call("sum", arguments)
            assert result.is_error, result
            assert named in result.text, result


@whole.of("list", "call")
async def an_array_is_a_result(connect: Connect, http: str, _: frozenset[str]) -> None:
    async with connect(f"{http}/numbers/mcp") as session:
        assert "numbers" in await session.tools()
        result = await session.call("numbers", {"count": 3})
        assert (json.loads(result.text), result.is_error) == ([0, 1, 2], False), result
        if session.version == "2026-07-28":
            assert result.data == [0, 1, 2], result


@whole.of("input")
async def a_form_has_the_fields_of_the_question(connect: Connect, http: str, _: frozenset[str]) -> None:
    asked: list[Json] = []

    async def answer(question: Json) -> Json:
        asked.append(question)
        return {"action": "accept", "content": {"size": "small", "count": 2}}

    async with connect(f"{http}/order/mcp", answer) as session:
        assert (await session.call("order", say("lunch"))).text == "2 small"
    (question,) = asked
    assert question["requestedSchema"]["properties"]["size"]["enum"] == ["small", "large"], question
    async with connect(f"{http}/order/mcp", refuse("decline")) as session:
        assert (await session.call("order", say("lunch"))).text.startswith("no order")


@whole.of("call")
async def a_large_result_arrives(connect: Connect, http: str, _: frozenset[str]) -> None:
    length = 1_500_000  # more than the Python client reads from one event of a stream
    async with connect(f"{http}/large/mcp") as session:
        for on_progress in (None, lambda *_: None):
            result = await session.call("large", say(str(length)), on_progress=on_progress)
            if len(result.text) != length:
                result = await session.call("get_task", {"task": handle_in(result)})
            assert result.text == "x" * length, result.text[:300]


# A server that is killed ---------------------------------------------------------------------------------------


async def crash(server: Server) -> None:
    """Kills the server and starts it again."""
    await asyncio.to_thread(server.kill)
    await asyncio.to_thread(server.start)


def endpoint(server: Server, agent: str) -> str:
    return f"{server.addresses['http']}/{agent}/mcp"


@unfinished.of("restart", "tools")
async def a_task_that_was_not_finished_is_found_after_a_crash(connect: Connect, server: Server) -> None:
    async with connect(endpoint(server, "steady")) as session:
        waiting = await session.call("steady", say("go"))
        assert "get_task" in waiting.text, waiting
        handle = handle_in(waiting)
        await crash(server)

        async def ended() -> Result | None:
            result = await session.call("get_task", {"task": handle})
            return result if handle not in result.text else None

        assert (await until(ended)).text == "attempt 2"


@restarts.of("restart", "input")
async def a_question_is_answered_after_a_crash(connect: Connect, server: Server) -> None:
    async def answer(_: Json) -> Json:
        await crash(server)
        return {"action": "accept", "content": {"answer": "blue"}}

    async with connect(endpoint(server, "playground"), answer) as session:
        assert (await session.call("playground_ends", say("ask"))).text == "you said: blue"


@resumes.of("restart", "progress")
async def a_stream_goes_on_after_a_crash(connect: Connect, server: Server) -> None:
    begun = asyncio.Event()
    async with connect(endpoint(server, "steady")) as session:
        call = session.call("steady", say("go"), on_progress=lambda *_: begun.set())
        calling = asyncio.ensure_future(call)
        await begun.wait()
        await crash(server)
        assert (await calling).text == "attempt 2"


@repeats.of("restart")
async def a_repeated_call_gets_the_result_after_a_crash(connect: Connect, server: Server) -> None:
    begun = asyncio.Event()
    meta = {"dragoman/idempotencyKey": str(uuid.uuid4())}
    async with connect(endpoint(server, "steady")) as session:
        call = session.call("steady", say("go"), on_progress=lambda *_: begun.set(), meta=meta, limit=10)
        calling = asyncio.ensure_future(call)
        await begun.wait()
        await crash(server)
        await error_of(calling)
        assert (await session.call("steady", say("go"), meta=meta)).text == "attempt 2"


@task_restarts.of("restart", "handle")
async def a_handle_is_good_after_a_crash(connect: Connect, server: Server) -> None:
    async with connect(endpoint(server, "steady"), tasks=True) as session:
        handle = await session.start("steady", say("go"))
        assert (await handle.get())["status"] == "working"
        await crash(server)
        assert (await handle.result()).text == "attempt 2"


@task_restarts.of("restart", "handle", "errors")
async def a_task_that_the_crash_ended_has_failed(connect: Connect, server: Server) -> None:
    async with connect(endpoint(server, "playground"), tasks=True) as session:
        handle = await session.start("playground_sleep", say("sleep 600"))
        await crash(server)
        failed = await until_status(handle, "failed")
        assert failed["error"]["message"].startswith("INTERRUPTED"), failed


@task_restarts.of("restart", "handle", "input")
async def a_task_s_question_is_answered_after_a_crash(connect: Connect, server: Server) -> None:
    async def answer(_: Json) -> Json:
        await crash(server)
        return {"action": "accept", "content": {"answer": "blue"}}

    async with connect(endpoint(server, "playground"), answer, tasks=True) as session:
        handle = await session.start("playground_ends", say("ask"))
        assert (await handle.result()).text == "you said: blue"


# All of them ---------------------------------------------------------------------------------------------------


async def check_client(
    package: str,
    version: str,
    connect: Connect,
    where: argparse.Namespace,
    *,
    has_tasks: bool = False,
    has_plain_calls: bool = True,
    tells_end: bool = True,
) -> bool:
    """Runs the checks of a client that speaks this version of MCP.

    `has_tasks`: it has the extension for tasks. `has_plain_calls`: it can leave that out. `tells_end`: it tells the
    server when it gives a call up.
    """
    row, good = f"MCP {version}", True
    of_agents, of_server = Checks(package), Checks(package)
    if has_plain_calls:
        of_agents.extend(every)
        of_server.extend(restarts, repeats if version == "2026-07-28" else resumes)
        if tells_end:
            of_agents.extend(gives_up)
    if has_tasks:
        of_agents.extend(tasks)
        of_server.extend(task_restarts)
    async with connect(f"{where.http}/mcp") as session:
        assert session.version == version, session.version
        tools = frozenset(await session.tools())
    agents = frozenset(name.partition("_")[0] for name in tools - set(TASK_TOOLS))
    for agent, kind in KINDS.items():
        if agent in agents:
            place = Place(where.http, agent, f"{where.http}/{agent}/mcp", tools)
            good &= await of_agents.run(f"{version}, {kind}", connect, place, row=row)
    app = str(Path(__file__).with_name("mcp_agents.py"))
    with started(where.project, app) as server:
        good &= await of_server.run(version, connect, server, row=row)
    if has_plain_calls:
        good &= await Checks(package).extend(whole).run(version, connect, where.http, agents, row=row)
        with started(where.project, app, "--mcp-wait", "1") as server:
            good &= await Checks(package).extend(unfinished).run(version, connect, server, row=row)
    return good
