"""`--blocking-default`: what sends do that leave it open whether they wait, in every dialect."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.dialects.dialect_clients import ServerConnections, open_connections, state_of

from dragoman import Turn, agent
from dragoman.settings.settings import Address, load_settings
from dragoman.wiring.app import open_app
from dragoman_pb.a2a.v1 import a2a_pb2 as v03_pb

pytestmark = pytest.mark.long

V01 = {"role": "user", "parts": [{"type": "text", "text": "go"}]}
V03 = {"kind": "message", "messageId": "m", "role": "user", "parts": [{"kind": "text", "text": "go"}]}
FLAT = {"messageId": "m", "role": "user", "parts": [{"text": "go"}]}
RUST = {"messageId": "m", "role": "user", "parts": [{"type": "text", "text": "go"}]}
V1 = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "go"}]}
PROTO = {"messageId": "m", "role": "ROLE_USER", "content": [{"text": "go"}]}
MODES = {"acceptedOutputModes": ["text/plain"]}
BLOCKING = {"blocking": True}

Send = tuple[str, dict[str, Any]]
"""A JSON-RPC method with its params, a REST path with its body, or `grpc` with the fields of the request."""

LEFT_OPEN: dict[str, Send] = {
    "0.1": ("tasks/send", {"message": V01}),
    "0.3": ("message/send", {"message": V03}),
    "0.3 with other configuration": ("message/send", {"message": V03, "configuration": MODES}),
    "0.3 with null": ("message/send", {"message": V03, "configuration": {"blocking": None}}),
    "fasta2a 2": ("message/send", {"message": FLAT, "configuration": MODES}),
    "0.3 REST": ("/{agent}/v1/message:send", {"message": PROTO}),
    "0.3 gRPC": ("grpc", {}),
}
DECIDED: dict[str, Send] = {
    "0.3": ("message/send", {"message": V03, "configuration": BLOCKING}),
    "fasta2a 2": ("message/send", {"message": FLAT, "configuration": BLOCKING}),
    "0.3 REST": ("/{agent}/v1/message:send", {"message": PROTO, "configuration": BLOCKING}),
    "0.3 gRPC": ("grpc", {"configuration": v03_pb.SendMessageConfiguration(blocking=True)}),
    "1.0": ("SendMessage", {"message": V1, "configuration": MODES}),
    "1.0 REST": ("/{agent}/message:send", {"message": V1}),
    "a2a-rust": ("SendMessage", {"message": RUST}),
    "a2a-rust's names": ("message/send", {"message": RUST}),
}


class Opened(NamedTuple):
    """A server with connections to it, and a turn that ends when `go_on` is set."""

    connections: ServerConnections
    started: asyncio.Event
    go_on: asyncio.Event


@pytest.fixture
async def opened(tmp_path: Path) -> AsyncIterator[Opened]:
    started, go_on = asyncio.Event(), asyncio.Event()

    async def held(turn: Turn) -> str:
        """Ends when the test says so."""
        started.set()
        await go_on.wait()
        return turn.text

    agents = [agent(id="quick", default=True)(held), agent(id="patient")(held)]
    any_port = Address("127.0.0.1", 0)
    settings = load_settings(
        {
            "http": any_port,
            "grpc": any_port,
            "store": f"sqlite:///{tmp_path}/tasks.db",
            "blocking_default": "return,patient=wait",
        }
    )
    async with open_app(settings, agents) as app:
        async with open_connections(str(app.http), str(app.grpc)) as connections:
            yield Opened(connections, started, go_on)
        go_on.set()


async def send(connections: ServerConnections, call: Send, agent_id: str) -> str:
    """Sends a message, and returns the state of the task in the response."""
    name, params = call
    if name == "grpc":
        message = v03_pb.Message(message_id="m", role=v03_pb.ROLE_USER, content=[v03_pb.Part(text="go")])
        request = v03_pb.SendMessageRequest(tenant=agent_id, request=message, **params)
        response = await connections.v03.SendMessage(request)
        return state_of(v03_pb.TaskState.Name(response.task.status.state))
    if name == "tasks/send":
        params = {"id": str(uuid.uuid4()), **params}
    is_rest = name.startswith("/")
    path = name.format(agent=agent_id) if is_rest else f"/{agent_id}"
    body = params if is_rest else {"jsonrpc": "2.0", "id": 1, "method": name, "params": params}
    async with connections.http.post(path, json=body) as response:
        value = await response.json()
    result = value if is_rest else value["result"]
    return state_of(result.get("task", result)["status"]["state"])


@pytest.mark.parametrize("dialect", LEFT_OPEN)
async def test_a_send_that_leaves_it_open_returns_at_once(opened: Opened, dialect: str) -> None:
    assert await send(opened.connections, LEFT_OPEN[dialect], "quick") in ("submitted", "working")


async def finish(opened: Opened, call: Send, agent_id: str) -> str:
    """Sends, lets the turn go on once it has begun, and returns the state of the response."""
    async with asyncio.TaskGroup() as group:
        sending = group.create_task(send(opened.connections, call, agent_id))
        await opened.started.wait()
        opened.go_on.set()
    return sending.result()


@pytest.mark.parametrize("dialect", DECIDED)
async def test_a_send_that_says_that_it_waits_does(opened: Opened, dialect: str) -> None:
    assert await finish(opened, DECIDED[dialect], "quick") == "completed"


@pytest.mark.parametrize("dialect", LEFT_OPEN)
async def test_a_single_agent_can_have_another_default(opened: Opened, dialect: str) -> None:
    assert await finish(opened, LEFT_OPEN[dialect], "patient") == "completed"
