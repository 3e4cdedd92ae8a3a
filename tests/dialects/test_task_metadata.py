"""`Task.metadata` and metadata of events in every dialect."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from tests.dialects.dialect_clients import DIALECT_CLIENTS, JsonRpc, ServerConnections, open_connections

from dragoman import Turn, agent
from dragoman.settings.settings import Address, Settings
from dragoman.wiring.app import open_app

pytestmark = pytest.mark.long

METADATA = {"model": {"name": "small", "list": [1, None, "x"]}, "done": True}


@agent(id="playground", default=True)
async def labels(turn: Turn) -> None:
    """Sets metadata of its task and of its events."""
    turn.metadata.update(METADATA)
    turn.status("reading", metadata={"percent": 50})
    turn.chunk("text", metadata={"line": 1})


@pytest.fixture
async def connections(tmp_path: Path) -> AsyncIterator[ServerConnections]:
    any_port = Address("127.0.0.1", 0)
    settings = Settings(http=any_port, grpc=any_port, store=f"sqlite:///{tmp_path}/tasks.db")
    async with open_app(settings, [labels]) as app, open_connections(str(app.http), str(app.grpc)) as opened:
        yield opened


@pytest.mark.parametrize("dialect", DIALECT_CLIENTS)
async def test_the_metadata_of_a_task_is_in_the_answer_and_when_it_is_read(
    connections: ServerConnections, dialect: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client: Any = DIALECT_CLIENTS[dialect]
    tasks: list[Any] = []
    read = client.task

    def record(task: Any) -> Any:
        tasks.append(MessageToDict(task) if isinstance(task, Message) else task)
        return read(task)

    monkeypatch.setattr(client, "task", record)
    sent = await client.send(connections, "go")
    await client.get(connections, sent.id)
    assert [task["metadata"] for task in tasks] == [METADATA, METADATA]


STREAMING = [name for name, client in DIALECT_CLIENTS.items() if isinstance(client, JsonRpc)]


@pytest.mark.parametrize("dialect", STREAMING)
async def test_events_of_a_stream_have_their_metadata(connections: ServerConnections, dialect: str) -> None:
    client: Any = DIALECT_CLIENTS[dialect]
    stream = client.stream(connections, client.names[1], client.params("go", "", wait=True))
    found = []
    async for event in stream:
        update = event if "status" in event or "artifact" in event else next(iter(event.values()))
        if "metadata" in update:
            found.append(update["metadata"])
    assert found == [{"percent": 50}, {"line": 1}, METADATA]
