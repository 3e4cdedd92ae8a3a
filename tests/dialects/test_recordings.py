"""Recorded calls of a2a-rust 0.3 and RabbitHole, replayed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from tests.dialects.dialect_clients import ServerConnections, sse
from tests.dialects.recordings import (
    RABBIT,
    RABBIT_CALLS,
    RUST,
    RUST_CALLS,
    RUST_REST,
    Rpc,
    Variables,
    v01_message,
    v01_task,
)

pytestmark = pytest.mark.long


class ControlledSleep:
    """Lets the playground sleep until a subscriber receives an event, so no subscription comes too late."""

    def __init__(self) -> None:
        self._sleeping: list[asyncio.Event] = []

    async def sleep(self, _: float) -> None:
        self._sleeping.append(wakeup := asyncio.Event())
        await wakeup.wait()

    async def read_all(self, events: AsyncIterator[Any]) -> list[Any]:
        """Returns all events of a stream. Each event ends every sleep."""
        received = []
        async for event in events:
            received.append(event)
            for wakeup in self._sleeping:
                wakeup.set()
        return received


@pytest.fixture
def sleep(monkeypatch: pytest.MonkeyPatch) -> ControlledSleep:
    controlled = ControlledSleep()
    monkeypatch.setattr("dragoman.playground.asyncio", SimpleNamespace(sleep=controlled.sleep))
    return controlled


class HttpCaller:
    """JSON-RPC by POST, streams as server-sent events."""

    def __init__(self, connections: ServerConnections, headers: dict[str, str]) -> None:
        self._connections = connections
        self._headers = headers

    async def responses(self, call: dict[str, Any]) -> AsyncIterator[Any]:
        async with self._connections.http.post("/", data=json.dumps(call), headers=self._headers) as response:
            assert response.status == 200
            if response.content_type == "text/event-stream":
                async for event in sse(response):
                    yield event
            else:
                yield await response.json()


class WebSocketCaller(HttpCaller):
    """JSON-RPC in text frames; streams end with `stream_complete`."""

    async def responses(self, call: dict[str, Any]) -> AsyncIterator[Any]:
        async with self._connections.http.ws_connect("/ws", headers=self._headers) as socket:
            await socket.send_json(call)
            is_stream = "tream" in call["method"] or "ubscribe" in call["method"]
            while True:
                response = await socket.receive_json()
                if response.get("result") == {"status": "stream_complete"}:
                    return
                yield response
                if not is_stream or "error" in response:
                    return


async def replay(caller: HttpCaller, recording: list[Rpc], sleep: ControlledSleep | None = None) -> None:
    variables = Variables()
    for number, step in enumerate(recording):
        call = {"jsonrpc": "2.0", "id": f"req-{number}", "method": step.method, "params": variables.filled(step.params)}
        reader = sleep if sleep and step.results else ControlledSleep()
        responses = await reader.read_all(caller.responses(call))
        assert all((response["jsonrpc"], response["id"]) == ("2.0", call["id"]) for response in responses)
        if step.error:
            (response,) = responses
            assert response["error"]["code"] == step.error, response
        elif step.results:
            variables.check(step.results, [response["result"] for response in responses], f"{step.method} {number}")
        else:
            (response,) = responses
            variables.check(step.result, response["result"], f"{step.method} {number}")


@pytest.mark.parametrize("caller", [HttpCaller, WebSocketCaller])
@pytest.mark.parametrize("name", RUST_CALLS)
async def test_calls_of_a2a_rust_get_the_recorded_responses(
    connections: ServerConnections, sleep: ControlledSleep, caller: type[HttpCaller], name: str
) -> None:
    await replay(caller(connections, RUST), RUST_CALLS[name], sleep)


@pytest.mark.parametrize("caller", [HttpCaller, WebSocketCaller])
@pytest.mark.parametrize("name", RABBIT_CALLS)
async def test_calls_of_rabbithole_get_the_recorded_responses(
    connections: ServerConnections, caller: type[HttpCaller], name: str
) -> None:
    await replay(caller(connections, RABBIT), RABBIT_CALLS[name])


@pytest.mark.parametrize("name", RUST_REST)
async def test_rest_requests_of_a2a_rust_get_the_recorded_responses(
    connections: ServerConnections, sleep: ControlledSleep, name: str
) -> None:
    variables = Variables()
    for number, step in enumerate(RUST_REST[name]):
        data = None if step.body is None else json.dumps(variables.filled(step.body))
        async with connections.http.request(
            step.method, variables.filled(step.path), data=data, headers=RUST
        ) as response:
            step_name = f"{step.method} {step.path} {number}"
            assert response.status == step.status, f"{step_name}: {await response.text()}"
            if step.replies:
                variables.check(step.replies, await sleep.read_all(sse(response)), step_name)
            elif step.reply is not None:
                variables.check(step.reply, await response.json(), step_name)


async def test_rabbithole_can_read_tasks_in_responses_for_0_1_and_0_3(connections: ServerConnections) -> None:
    """`tasks/get` and `tasks/cancel` are methods of 0.1 and 0.3: responses have the fields of both."""
    await replay(HttpCaller(connections, RABBIT), RABBIT_CALLS["a question and its answer"][:1])
    for method, state in (("tasks/get", "input-required"), ("tasks/cancel", "canceled")):
        call = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"id": "run-1", "historyLength": 9}}
        async for response in HttpCaller(connections, RABBIT).responses(call):
            result = response["result"]
            assert (result["id"], result["sessionId"], result["status"]["state"]) == ("run-1", "burrow", state)
            assert [part["type"] for message in result["history"] for part in message["parts"]] in (
                ["text"],
                ["text", "text"],
            )
    # With an explicit 0.1 only the fields of 0.1.
    variables = Variables()
    call = {"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": {"id": "run-1"}}
    async for response in HttpCaller(connections, {**RABBIT, "A2A-Version": "0.1"}).responses(call):
        question = v01_message("what would you like to say?", "agent")
        variables.check(v01_task("canceled", v01_message("ask"), question), response["result"])


@pytest.mark.parametrize("state", ["COMPLETED", "completed", "TASK_STATE_COMPLETED"])
async def test_states_may_be_filtered_in_any_case(connections: ServerConnections, state: str) -> None:
    await replay(HttpCaller(connections, RABBIT), RABBIT_CALLS["a send"])
    async with connections.http.get(f"/tasks?status={state}", headers=RABBIT) as response:
        assert [task["id"] for task in (await response.json())["tasks"]] == ["run-1"]
    async with connections.http.get("/tasks?status=CANCELED", headers=RABBIT) as response:
        assert (await response.json())["tasks"] == []
