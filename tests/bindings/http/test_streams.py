"""HTTP streams: framing, errors, keep-alives, disconnects, and server shutdown."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from typing import Any

import aiohttp
import pytest
from tests.bindings.fake_service import (
    RESOURCE,
    TASK,
    FakeService,
    chunk_event,
    make_cards,
    over_http,
    status_event,
    task_event,
)

from dragoman.bindings.http.server import serve_http
from dragoman.bindings.options import ServerOptions
from dragoman.core.errors import TaskNotFound
from dragoman.core.task import states

SUBSCRIBE = ["/tasks/t1:subscribe", "/v1/tasks/t1:subscribe", f"/{RESOURCE}/tasks/t1:subscribe?alt=sse"]
ARRAY = f"/{RESOURCE}/tasks/t1:subscribe?alt=json"


def events() -> list[Any]:
    return [task_event(), chunk_event(2), status_event(3, states.COMPLETED, ends=True)]


def data_lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line.removeprefix("data: ")) for line in text.splitlines() if line.startswith("data: ")]


@pytest.mark.parametrize("path", SUBSCRIBE)
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_stream_is_server_sent_events(path: str, method: str) -> None:
    async with over_http(FakeService(events=events())) as client, client.request(method, path) as answer:
        assert (answer.status, answer.headers["Content-Type"]) == (200, "text/event-stream")
        assert (answer.headers["Cache-Control"], answer.headers["X-Accel-Buffering"]) == ("no-cache", "no")
        text = await answer.text()
    assert [next(iter(event)) for event in data_lines(text)] == ["task", "artifactUpdate", "statusUpdate"]
    assert text.count("\n\n") == 3


@pytest.mark.parametrize(
    ("method", "path", "status", "body"),
    [
        *(("GET", path, 204, b"") for path in SUBSCRIBE),
        *(("POST", path, 200, b"") for path in SUBSCRIBE),
        ("GET", ARRAY, 200, b"[]"),
    ],
)
async def test_a_stream_without_events_ends_the_reconnects_of_an_event_source(
    method: str, path: str, status: int, body: bytes
) -> None:
    async with over_http(FakeService()) as client, client.request(method, path) as answer:
        assert (answer.status, (await answer.read()).replace(b"\n", b"")) == (status, body)


@pytest.mark.parametrize(
    ("query", "accept", "is_array"),
    [
        ("?alt=json", "*/*", True),
        ("?%24alt=json;enum-encoding=int", "text/event-stream", True),
        ("", "application/json", True),
        ("", "*/*", True),
        ("?alt=sse", "application/json", False),
        ("", "text/event-stream, application/json", False),
        ("", "Text/Event-Stream; q=1", False),
        ("", "application/json, text/event-stream;q=0", True),
    ],
)
async def test_google_clients_get_an_array_unless_they_ask_for_events(query: str, accept: str, is_array: bool) -> None:
    async with over_http(FakeService(events=events())) as client:
        path = f"/{RESOURCE}/tasks/t1:subscribe{query}"
        async with client.get(path, headers={"Accept": accept}) as answer:
            text = await answer.text()
            expected = "application/json" if is_array else "text/event-stream"
            assert answer.headers["Content-Type"] == expected
    elements = json.loads(text) if is_array else data_lines(text)
    assert len(elements) == 3


@pytest.mark.parametrize("path", ["/tasks/t1:subscribe?alt=json", "/v1/tasks/t1:subscribe?alt=json"])
async def test_other_paths_ignore_alt(path: str) -> None:
    async with (
        over_http(FakeService(events=events())) as client,
        client.get(path, headers={"Accept": "application/json"}) as answer,
    ):
        assert answer.headers["Content-Type"] == "text/event-stream"


@pytest.mark.parametrize("path", [*SUBSCRIBE, ARRAY])
async def test_an_error_before_the_first_event_has_a_status_and_a_body(path: str) -> None:
    async with over_http(FakeService(events=[TaskNotFound()])) as client, client.get(path) as answer:
        assert (answer.status, answer.headers["Content-Type"]) == (404, "application/json")
        assert (await answer.json())["error"]["details"][0]["reason"] == "TASK_NOT_FOUND"


@pytest.mark.parametrize("path", SUBSCRIBE)
async def test_an_error_during_a_stream_is_its_last_event(path: str) -> None:
    async with over_http(FakeService(events=[task_event(), TaskNotFound()])) as client, client.get(path) as answer:
        assert answer.status == 200
        text = await answer.text()
    assert "event: error\ndata: {" in text
    last = data_lines(text)[-1]
    assert last["error"]["status"] == "NOT_FOUND"
    assert ("code" in last) == path.startswith("/v1")


async def test_an_error_during_an_array_is_its_last_element() -> None:
    async with (
        over_http(FakeService(events=[task_event(), RuntimeError("secret")])) as client,
        client.get(ARRAY) as answer,
    ):
        text = await answer.text()
    assert json.loads(text)[-1]["error"]["code"] == 500
    assert "secret" not in text


async def test_elements_are_sent_immediately() -> None:
    gate = asyncio.Event()
    async with (
        over_http(FakeService(events=[task_event(), gate, chunk_event(2)])) as client,
        client.get(ARRAY) as answer,
    ):
        first = await answer.content.readany()
        assert json.loads(first.lstrip(b"["))["task"]["id"] == "t1"
        gate.set()
        assert len(json.loads(first + await answer.read())) == 2


@pytest.mark.parametrize(("path", "keep_alive"), [("/tasks/t1:subscribe", b": keep-alive\n"), (ARRAY, b"\n")])
async def test_an_idle_stream_sends_keep_alives(path: str, keep_alive: bytes) -> None:
    gate = asyncio.Event()
    async with (
        over_http(FakeService(events=[task_event(), gate, chunk_event(2)]), keepalive=0.01) as client,
        client.get(path) as answer,
    ):
        text = await answer.content.readuntil(b"}}")
        text += await answer.content.readuntil(keep_alive)
        text += await answer.content.readuntil(keep_alive)
        gate.set()
        text += await answer.read()
    decoded = text.decode()
    assert len(json.loads(decoded) if path is ARRAY else data_lines(decoded)) == 2


@pytest.mark.parametrize(("path", "keep_alive"), [*((path, b": keep-alive\n") for path in SUBSCRIBE), (ARRAY, b"\n")])
async def test_a_stream_that_waits_for_its_first_event_sends_keep_alives(path: str, keep_alive: bytes) -> None:
    gate = asyncio.Event()
    async with (
        over_http(FakeService(events=[gate, chunk_event(2)]), keepalive=0.01) as client,
        client.get(path) as answer,
    ):
        text = await answer.content.readuntil(keep_alive)
        gate.set()
        text += await answer.read()
    decoded = text.decode()
    assert len(json.loads(decoded) if path is ARRAY else data_lines(decoded)) == 1


@pytest.mark.parametrize(("last", "end"), [([], []), ([TaskNotFound()], ["event: error"])], ids=["the end", "an error"])
async def test_after_a_keep_alive_a_stream_without_events_ends_as_a_stream(last: list[Any], end: list[str]) -> None:
    gate = asyncio.Event()
    async with (
        over_http(FakeService(events=[gate, *last]), keepalive=0.01) as client,
        client.get("/tasks/t1:subscribe") as answer,
    ):
        await answer.content.readuntil(b": keep-alive\n")
        gate.set()
        text = (await answer.read()).decode()
    assert answer.status == 200
    assert [line for line in text.splitlines() if line.startswith("event:")] == end


async def test_a_slow_client_delays_only_its_own_stream() -> None:
    big = "x" * 1_000_000
    slow = FakeService(TASK, events=[task_event(), *(chunk_event(n, big) for n in range(2, 60))])
    async with over_http(slow) as client:
        async with client.get("/tasks/t1:subscribe"):  # a client that never reads
            async with client.get("/tasks/t1") as other:
                assert other.status == 200
            async with client.get("/tasks/t1:subscribe") as reader:
                assert len(data_lines(await reader.text())) == 59
            assert not slow.abandoned.is_set()
        await slow.abandoned.wait()


@pytest.mark.parametrize("path", ["/tasks/t1:subscribe", ARRAY])
async def test_server_shutdown_ends_streams_in_valid_framing(path: str) -> None:
    service = FakeService(events=[task_event(), asyncio.Event()])
    server = AsyncExitStack()
    bound = await server.enter_async_context(serve_http(service.operations, make_cards(), ServerOptions()))
    async with server, aiohttp.ClientSession(f"http://{bound}") as client, client.get(path) as answer:
        await service.waiting.wait()
        read_task = asyncio.create_task(answer.text())
        await server.aclose()
        text = await read_task
    assert len(json.loads(text) if path is ARRAY else data_lines(text)) == 1


async def test_a_stream_without_events_at_shutdown_is_unavailable() -> None:
    service = FakeService(events=[asyncio.Event()])
    server = AsyncExitStack()
    bound = await server.enter_async_context(serve_http(service.operations, make_cards(), ServerOptions()))
    async with server, aiohttp.ClientSession(f"http://{bound}") as client:
        request_task = asyncio.create_task(client.get("/tasks/t1:subscribe"))
        await service.waiting.wait()
        await server.aclose()
        async with await request_task as answer:
            assert (answer.status, (await answer.json())["error"]["status"]) == (503, "UNAVAILABLE")
