"""Streams of notifications about tasks and tools."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import aiohttp
import pytest
from tests.callers import named
from tests.eventually import eventually
from tests.extensions.mcp.endpoint.mcp_client import TASKS, McpCaller, asker, calling, echo, serving

from dragoman import Turn, agent
from dragoman.wire.http.sse import SseEvent
from dragoman.worker import Worker


async def next_message(events: AsyncIterator[SseEvent]) -> dict[str, Any]:
    return dict(json.loads((await anext(events)).data))


async def test_a_followed_task_is_sent_at_each_change_of_its_status() -> None:
    opened = asyncio.Event()

    @agent(id="gated", default=True)
    async def gated(turn: Turn) -> str:
        """Waits."""
        await opened.wait()
        return "through"

    async with calling(gated, capabilities=TASKS) as caller:
        handle = (await caller.call("gated", message="x")).result["taskId"]
        wanted = {"notifications": {"taskIds": [handle, "gated/unknown"], "promptsListChanged": True}}
        async with caller.stream("subscriptions/listen", wanted) as events:
            acknowledged = await next_message(events)
            statuses = [(await next_message(events))["params"]["status"]]
            opened.set()
            while statuses[-1] == "working":
                last = await next_message(events)
                statuses.append(last["params"]["status"])
    assert acknowledged["method"] == "notifications/subscriptions/acknowledged"
    assert acknowledged["params"]["notifications"] == {"taskIds": [handle]}
    assert acknowledged["params"]["_meta"] == {"io.modelcontextprotocol/subscriptionId": 2}
    assert (statuses[0], statuses[-1]) == ("working", "completed")
    assert last["method"] == "notifications/tasks"
    assert last["params"]["result"]["content"] == [{"type": "text", "text": "through"}]
    assert last["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"] == 2


async def test_the_tasks_of_others_are_not_followed() -> None:
    async with serving(api_keys=True) as app, aiohttp.ClientSession() as session:
        url = f"{app.http.url}/mcp"
        alice = McpCaller(session, url, headers=named("alice"), capabilities=TASKS)
        mallory = McpCaller(session, url, headers=named("mallory"), capabilities=TASKS)
        handle = (await alice.call("asker", message="x")).result["taskId"]
        async with mallory.stream("subscriptions/listen", {"notifications": {"taskIds": [handle]}}) as events:
            acknowledged = await next_message(events)
    assert acknowledged["params"]["notifications"] == {"taskIds": []}


async def test_a_change_of_the_tools_is_told() -> None:
    async with serving(echo) as app, aiohttp.ClientSession() as session:
        caller = McpCaller(session, f"{app.http.url}/mcp")
        worker = Worker([asker], str(app.grpc))
        async with caller.stream("subscriptions/listen", {"notifications": {"toolsListChanged": True}}) as events:
            await next_message(events)
            run = asyncio.create_task(worker.run())
            changed = await next_message(events)
        tools = [tool["name"] for tool in (await caller.request("tools/list")).result["tools"]]
        await worker.drain(1)
        await run
    assert changed["method"] == "notifications/tools/list_changed"
    assert tools[:2] == ["echo", "asker"]


@pytest.mark.parametrize(
    ("wanted", "capabilities", "code"),
    [
        ({}, TASKS, -32602),
        ({"notifications": {"taskIds": "echo/1"}}, TASKS, -32602),
        ({"notifications": {"taskIds": ["echo/1"] * 101}}, TASKS, -32602),
        ({"notifications": {"taskIds": ["echo/1"]}}, {}, -32021),
    ],
)
async def test_an_invalid_filter_is_rejected(wanted: dict[str, Any], capabilities: dict[str, Any], code: int) -> None:
    async with calling(capabilities=capabilities) as caller:
        answer = await caller.request("subscriptions/listen", wanted)
    assert answer.error["code"] == code


async def test_streams_are_counted_against_the_limit_of_the_caller() -> None:
    async with serving(api_keys=True, open_streams=1) as app, aiohttp.ClientSession() as session:
        caller = McpCaller(session, f"{app.http.url}/mcp", headers=named("alice"), capabilities=TASKS)
        handle = (await caller.call("asker", message="x")).result["taskId"]
        async with caller.stream("subscriptions/listen", {"notifications": {"taskIds": [handle]}}) as events:
            messages = [json.loads(event.data) async for event in events]
        async with caller.stream("subscriptions/listen", {"notifications": {}}) as events:
            await next_message(events)
            second = await caller.request("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
        await eventually(lambda: not app.runtime.operations.admission.open_streams, 5)
    assert messages[-1]["error"]["data"]["reason"] == "RATE_LIMITED"
    assert second.error["data"]["reason"] == "RATE_LIMITED"
    assert second.headers["Retry-After"]


async def test_a_server_that_stops_ends_its_streams_in_order() -> None:
    begun = asyncio.Event()

    @agent(id="gated", default=True)
    async def gated(turn: Turn) -> None:
        """Waits for ever."""
        turn.status("waiting")
        begun.set()
        await asyncio.Event().wait()

    async with aiohttp.ClientSession() as session, AsyncExitStack() as stack:
        app = await stack.enter_async_context(serving(gated))
        caller = McpCaller(session, f"{app.http.url}/mcp")
        wanted = {"notifications": {"toolsListChanged": True}}
        call = {"name": "gated", "arguments": {"message": "x"}}
        async with (
            caller.stream("subscriptions/listen", wanted) as notifications,
            caller.stream("tools/call", call, {"progressToken": 1}) as progress,
        ):
            await next_message(notifications)
            await begun.wait()
            closing = asyncio.create_task(stack.aclose())
            listened = [json.loads(event.data) async for event in notifications][-1]
            called = [json.loads(event.data) async for event in progress][-1]
            await closing
    assert listened["result"] == {
        "resultType": "complete",
        "_meta": {"io.modelcontextprotocol/subscriptionId": listened["id"]},
    }
    assert "is not finished yet" in called["result"]["content"][0]["text"]
