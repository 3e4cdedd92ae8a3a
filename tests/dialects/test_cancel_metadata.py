"""The metadata of a cancel request reaches the agent, from every dialect that has a field for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict
from tests.dialects.dialect_clients import AGENT, DIALECT_CLIENTS, JsonRpc, ServerConnections, open_connections

from dragoman import Turn, agent
from dragoman.settings.settings import Address, Settings
from dragoman.wiring.app import open_app
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

pytestmark = pytest.mark.long

METADATA: dict[str, Any] = {"why": "too late", "by": {"name": "Ada", "roles": [1, None]}}


@agent(id="playground", default=True)
async def waits(turn: Turn) -> None:
    """Waits until canceled; what the request said is then metadata of the task."""
    assert turn.cancel_metadata == {}
    turn.status("waiting")
    try:
        await asyncio.Event().wait()
    finally:
        turn.metadata["canceled"] = turn.cancel_metadata
        turn.status("stopping")


@pytest.fixture
async def connections(tmp_path: Path) -> AsyncIterator[ServerConnections]:
    any_port = Address("127.0.0.1", 0)
    settings = Settings(http=any_port, grpc=any_port, store=f"sqlite:///{tmp_path}/tasks.db")
    async with open_app(settings, [waits]) as app, open_connections(str(app.http), str(app.grpc)) as opened:
        yield opened


def over_jsonrpc(name: str) -> Callable[[ServerConnections, str], Awaitable[Any]]:
    async def cancel(connections: ServerConnections, task: str) -> Any:
        client = DIALECT_CLIENTS[name]
        assert isinstance(client, JsonRpc)
        return await client.call(connections, client.names[3], {"id": task, "metadata": METADATA})

    return cancel


async def over_rest(connections: ServerConnections, task: str) -> None:
    path, headers = f"/{AGENT}/tasks/{task}:cancel", {"A2A-Version": "1.0"}
    async with connections.http.post(path, json={"metadata": METADATA}, headers=headers) as response:
        assert response.status == 200


async def over_grpc(connections: ServerConnections, task: str) -> None:
    await connections.v1.CancelTask(pb.CancelTaskRequest(tenant=AGENT, id=task, metadata=METADATA))


JSONRPC = [name for name, client in DIALECT_CLIENTS.items() if isinstance(client, JsonRpc)]
CANCELS = {**{name: over_jsonrpc(name) for name in JSONRPC}, "1.0 REST": over_rest, "1.0 gRPC": over_grpc}


@pytest.mark.parametrize("dialect", CANCELS)
async def test_the_metadata_of_a_cancel_request_reaches_the_agent(connections: ServerConnections, dialect: str) -> None:
    maker = next(iter(DIALECT_CLIENTS.values()))
    task = await maker.start(connections, "go")
    async for state in maker.follow(connections, task):
        if state == "working":
            break
    await CANCELS[dialect](connections, task)
    shown = await connections.v1.GetTask(pb.GetTaskRequest(tenant=AGENT, id=task))
    assert shown.status.state == pb.TASK_STATE_CANCELED
    assert MessageToDict(shown.metadata) == {"canceled": METADATA}
