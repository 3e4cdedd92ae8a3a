"""G2: a stream can be dropped and picked up, exactly, on every binding; and what is no cursor here is refused."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from typing import Any

import aiohttp
import pytest
from tests.client.test_bindings import PROTOCOLS, Server, server, text_of
from tests.dialects.dialect_clients import ServerConnections

from dragoman.client import message
from dragoman.core.cards.agent_spec import RESUME_EXTENSION
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

__all__ = ["server"]

EVERY = pytest.mark.parametrize(("dialect", "binding"), PROTOCOLS)


def cursor_of(event: pb.StreamResponse) -> str:
    holder: Any = getattr(event, event.WhichOneof("payload") or "")
    return str(holder.metadata.fields[RESUME_EXTENSION.uri].struct_value.fields["cursor"].string_value)


def chunk(event: pb.StreamResponse) -> str:
    return "".join(part.text for part in event.artifact_update.artifact.parts)


@EVERY
async def test_pieces_of_a_stream_are_the_whole_without_a_gap_or_a_duplicate(
    server: Server, dialect: str, binding: str
) -> None:
    async with server.client("1.0", "grpc") as maker:
        now = pb.SendMessageConfiguration(return_immediately=True)
        task = (await maker.send(message("stream 30 5"), configuration=now)).task.id
    cursor, sequences, text = "", [], ""
    async with server.client(dialect, binding) as client:
        over = False
        while not over:
            request = pb.SubscribeToTaskRequest(id=task)
            async with aclosing(client._transport.stream("SubscribeToTask", request, after=cursor)) as events:
                taken = 0
                async for event in events:
                    cursor = cursor_of(event)
                    if event.HasField("artifact_update") and int(cursor.rsplit(".", 1)[1]) not in sequences:
                        text += chunk(event) if event.artifact_update.append or not text else ""
                    elif event.HasField("task"):
                        text = text_of(event.task)
                    sequences.append(int(cursor.rsplit(".", 1)[1]))
                    taken += 1
                    if taken == 4:
                        break
                else:
                    over = True
    first = sequences[0]
    after_snapshot = sequences[sequences.index(first) + sequences.count(first) :]
    assert after_snapshot == list(range(first + 1, first + 1 + len(after_snapshot)))
    assert text == "".join(f"chunk-{number} " for number in range(1, 31))


@EVERY
async def test_a_finished_task_gives_the_rest_and_then_the_end(server: Server, dialect: str, binding: str) -> None:
    async with server.client("1.0", "grpc") as maker:
        task = (await maker.send(message("stream 5"))).task.id
    async with server.client(dialect, binding) as client, asyncio.timeout(60):
        rest = [event async for event in client.subscribe(task, after="2")]
        assert [event.WhichOneof("payload") for event in rest][-1] == "status_update"
        assert not any(event.HasField("task") for event in rest)
        request = pb.SubscribeToTaskRequest(id=task)
        end = client._transport.stream("SubscribeToTask", request, after=str(2 + len(rest)))
        assert [event async for event in end] == []


@pytest.mark.parametrize("words", ["stream 3", "ask which one?"])
@EVERY
async def test_a_send_that_is_repeated_from_its_last_event_ends_at_once(
    server: Server, dialect: str, binding: str, words: str
) -> None:
    request = pb.SendMessageRequest(message=message(words))
    key = f"{dialect} {binding} {words}"
    async with server.client(dialect, binding) as client, asyncio.timeout(60):
        sent = [event async for event in client._transport.stream("SendStreamingMessage", request, key=key)]
        after = cursor_of(sent[-1])
        again = client._transport.stream("SendStreamingMessage", request, after=after, key=key)
        assert [event async for event in again] == []


WRONG = [
    ("x", "must be a cursor"),
    ("-1", "must be a cursor"),
    ("999", "beyond"),
    ("01234567.89abcdef.1", "another store"),
]


@pytest.mark.parametrize(("after", "text"), WRONG)
@pytest.mark.parametrize("path", ["/tasks/{}:subscribe", "/v1/tasks/{}:subscribe"])
async def test_what_is_no_cursor_of_the_task_is_refused_over_rest(
    connections: ServerConnections, path: str, after: str, text: str
) -> None:
    task, _ = await two_tasks(connections)
    async with connections.http.get(path.format(task), headers={"Last-Event-ID": after}) as answer:
        assert answer.status in (400, 422)
        assert text in (await answer.json())["error"]["message"]


async def test_a_cursor_of_another_task_is_refused(connections: ServerConnections) -> None:
    task, other = await two_tasks(connections)
    cursor = (await frames(connections, task))[-1][0]
    async with connections.http.get(f"/tasks/{other}:subscribe", headers={"Last-Event-ID": cursor}) as answer:
        assert answer.status == 400
        assert "another task" in (await answer.json())["error"]["message"]


async def test_every_frame_has_the_cursor_as_its_id_on_rest_and_json_rpc(connections: ServerConnections) -> None:
    task, _ = await two_tasks(connections)
    rest = await frames(connections, task)
    body = {"jsonrpc": "2.0", "id": 1, "method": "SubscribeToTask", "params": {"id": task}}
    async with connections.http.post("/", json=body, headers={"Last-Event-ID": "0"}) as answer:
        rpc = await read(answer)
    assert [cursor for cursor, _ in rpc] == [cursor for cursor, _ in rest]
    assert [int(cursor.rsplit(".", 1)[1]) for cursor, _ in rest] == list(range(1, len(rest) + 1))


async def test_metadata_holds_the_cursor_only_for_those_who_activate_the_extension(
    connections: ServerConnections,
) -> None:
    task, _ = await two_tasks(connections)
    assert all("metadata" not in json.dumps(value) for _, value in await frames(connections, task))
    headers = {"A2A-Extensions": RESUME_EXTENSION.uri, "Last-Event-ID": "0"}
    async with connections.http.get(f"/tasks/{task}:subscribe", headers=headers) as answer:
        assert answer.headers["A2A-Extensions"] == RESUME_EXTENSION.uri
        for cursor, value in await read(answer):
            (member,) = value.values()
            sequence = int(cursor.rsplit(".", 1)[1])
            assert member["metadata"][RESUME_EXTENSION.uri] == {"cursor": cursor, "sequence": sequence}


async def two_tasks(connections: ServerConnections) -> tuple[str, str]:
    found = []
    for text in ("stream 3", "echo hi"):
        body = {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": text}]}}
        async with connections.http.post("/message:send", json=body) as answer:
            found.append((await answer.json())["task"]["id"])
    return found[0], found[1]


async def frames(connections: ServerConnections, task: str) -> list[tuple[str, dict[str, Any]]]:
    async with connections.http.get(f"/tasks/{task}:subscribe", headers={"Last-Event-ID": "0"}) as answer:
        return await read(answer)


async def read(answer: aiohttp.ClientResponse) -> list[tuple[str, dict[str, Any]]]:
    """Id and data of every frame."""
    text = (await answer.read()).decode()
    assert answer.status == 200, text
    found = []
    for frame in text.split("\n\n"):
        lines = dict(line.split(": ", 1) for line in frame.splitlines() if not line.startswith(":"))
        if "data" in lines:
            found.append((lines["id"], json.loads(lines["data"])))
    return found
