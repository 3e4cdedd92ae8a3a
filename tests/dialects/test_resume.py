"""G2: streams resume exactly on every binding, and invalid cursors are rejected."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from typing import Any

import aiohttp
import pytest
from tests.client.test_bindings import PROTOCOLS, Server, server, text_of
from tests.dialects.dialect_clients import ServerConnections

from dragoman.client.calls import message
from dragoman.core.cards.agent_spec import RESUME_EXTENSION
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

pytestmark = pytest.mark.long

__all__ = ["server"]

EVERY_BINDING = pytest.mark.parametrize(("dialect", "binding"), PROTOCOLS)


def cursor_of(event: pb.StreamResponse) -> str:
    holder: Any = getattr(event, event.WhichOneof("payload") or "")
    return str(holder.metadata.fields[RESUME_EXTENSION.uri].struct_value.fields["cursor"].string_value)


def chunk(event: pb.StreamResponse) -> str:
    return "".join(part.text for part in event.artifact_update.artifact.parts)


@EVERY_BINDING
async def test_a_stream_resumed_every_four_events_has_no_gap_or_duplicate(
    server: Server, dialect: str, binding: str
) -> None:
    async with server.client("1.0", "grpc") as creator:
        configuration = pb.SendMessageConfiguration(return_immediately=True)
        task = (await creator.send(message("stream 30 5"), configuration=configuration)).task.id
    cursor, sequences, text = "", [], ""
    async with server.client(dialect, binding) as client:
        ended = False
        while not ended:
            request = pb.SubscribeToTaskRequest(id=task)
            async with aclosing(client._agent.transport.stream("SubscribeToTask", request, after=cursor)) as events:
                received = 0
                async for event in events:
                    cursor = cursor_of(event)
                    if event.HasField("artifact_update") and int(cursor.rsplit(".", 1)[1]) not in sequences:
                        text += chunk(event) if event.artifact_update.append or not text else ""
                    elif event.HasField("task"):
                        text = text_of(event.task)
                    sequences.append(int(cursor.rsplit(".", 1)[1]))
                    received += 1
                    if received == 4:
                        break
                else:
                    ended = True
    first = sequences[0]
    after_snapshot = sequences[sequences.index(first) + sequences.count(first) :]
    assert after_snapshot == list(range(first + 1, first + 1 + len(after_snapshot)))
    assert text == "".join(f"chunk-{number} " for number in range(1, 31))


@EVERY_BINDING
async def test_a_finished_task_returns_the_remaining_events_and_ends(
    server: Server, dialect: str, binding: str
) -> None:
    async with server.client("1.0", "grpc") as creator:
        task = (await creator.send(message("stream 5"))).task.id
    async with server.client(dialect, binding) as client, asyncio.timeout(60):
        remaining = [event async for event in client.subscribe(task, after="2")]
        assert [event.WhichOneof("payload") for event in remaining][-1] == "status_update"
        assert not any(event.HasField("task") for event in remaining)
        request = pb.SubscribeToTaskRequest(id=task)
        events = client._agent.transport.stream("SubscribeToTask", request, after=str(2 + len(remaining)))
        assert [event async for event in events] == []


@pytest.mark.parametrize("text", ["stream 3", "ask which one?"])
@EVERY_BINDING
async def test_a_send_repeated_from_its_last_event_ends_immediately(
    server: Server, dialect: str, binding: str, text: str
) -> None:
    request = pb.SendMessageRequest(message=message(text))
    key = f"{dialect} {binding} {text}"
    async with server.client(dialect, binding) as client, asyncio.timeout(60):
        sent = [event async for event in client._agent.transport.stream("SendStreamingMessage", request, key=key)]
        after = cursor_of(sent[-1])
        repeated = client._agent.transport.stream("SendStreamingMessage", request, after=after, key=key)
        assert [event async for event in repeated] == []


INVALID_CURSORS = [
    ("x", "must be a cursor"),
    ("-1", "must be a cursor"),
    ("999", "beyond"),
    ("01234567.89abcdef.1", "another store"),
]


@pytest.mark.parametrize(("after", "message"), INVALID_CURSORS)
@pytest.mark.parametrize("path", ["/tasks/{}:subscribe", "/v1/tasks/{}:subscribe"])
async def test_invalid_cursors_are_rejected_over_rest(
    connections: ServerConnections, path: str, after: str, message: str
) -> None:
    task, _ = await two_tasks(connections)
    async with connections.http.get(path.format(task), headers={"Last-Event-ID": after}) as response:
        assert response.status in (400, 422)
        assert message in (await response.json())["error"]["message"]


async def test_a_cursor_of_another_task_is_rejected(connections: ServerConnections) -> None:
    task, other = await two_tasks(connections)
    cursor = (await frames(connections, task))[-1][0]
    async with connections.http.get(f"/tasks/{other}:subscribe", headers={"Last-Event-ID": cursor}) as response:
        assert response.status == 400
        assert "another task" in (await response.json())["error"]["message"]


async def test_rest_and_json_rpc_frames_have_the_cursor_as_id(connections: ServerConnections) -> None:
    task, _ = await two_tasks(connections)
    rest = await frames(connections, task)
    body = {"jsonrpc": "2.0", "id": 1, "method": "SubscribeToTask", "params": {"id": task}}
    async with connections.http.post("/", json=body, headers={"Last-Event-ID": "0"}) as response:
        rpc = await read_frames(response)
    assert [cursor for cursor, _ in rpc] == [cursor for cursor, _ in rest]
    assert [int(cursor.rsplit(".", 1)[1]) for cursor, _ in rest] == list(range(1, len(rest) + 1))


async def test_metadata_has_the_cursor_only_with_the_extension_activated(
    connections: ServerConnections,
) -> None:
    task, _ = await two_tasks(connections)
    assert all("metadata" not in json.dumps(event) for _, event in await frames(connections, task))
    headers = {"A2A-Extensions": RESUME_EXTENSION.uri, "Last-Event-ID": "0"}
    async with connections.http.get(f"/tasks/{task}:subscribe", headers=headers) as response:
        assert response.headers["A2A-Extensions"] == RESUME_EXTENSION.uri
        for cursor, event in await read_frames(response):
            (member,) = event.values()
            sequence = int(cursor.rsplit(".", 1)[1])
            assert member["metadata"][RESUME_EXTENSION.uri] == {"cursor": cursor, "sequence": sequence}


async def two_tasks(connections: ServerConnections) -> tuple[str, str]:
    ids = []
    for text in ("stream 3", "echo hi"):
        body = {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": text}]}}
        async with connections.http.post("/message:send", json=body) as response:
            ids.append((await response.json())["task"]["id"])
    return ids[0], ids[1]


async def frames(connections: ServerConnections, task: str) -> list[tuple[str, dict[str, Any]]]:
    async with connections.http.get(f"/tasks/{task}:subscribe", headers={"Last-Event-ID": "0"}) as response:
        return await read_frames(response)


async def read_frames(response: aiohttp.ClientResponse) -> list[tuple[str, dict[str, Any]]]:
    """Returns id and data of every frame."""
    text = (await response.read()).decode()
    assert response.status == 200, text
    received = []
    for frame in text.split("\n\n"):
        lines = dict(line.split(": ", 1) for line in frame.splitlines() if not line.startswith(":"))
        if "data" in lines:
            received.append((lines["id"], json.loads(lines["data"])))
    return received
