"""ASGI exchanges with a host in memory: paths below a mount, bodies in pieces, streams, slow readers, disconnects."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.requests import Request
from starlette.responses import Response
from tests.bindings.fake_service import TASK, FakeService, chunk_event, make_cards, status_event, task_event

from dragoman.bindings.http.asgi import UNSENT_BYTES, request_head, split_path
from dragoman.bindings.http.server import ServeAsgi, serve_asgi
from dragoman.bindings.options import ServerOptions
from dragoman.core.task import states
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

ANSWER = pb.SendMessageResponse(task=TASK)
SEND: dict[str, Any] = {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hello"}]}}


class Host:
    """A host application's server: it sends the messages of one request, and keeps those of the response."""

    def __init__(self, method: str, path: str, *, headers: dict[str, str] | None = None, **scope: Any) -> None:
        self.scope: dict[str, Any] = {
            "type": "http",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "root_path": "",
            "scheme": "http",
            "client": ("192.0.2.7", 4711),
            "headers": [(b"host", b"shop.example"), *((k.encode(), v.encode()) for k, v in (headers or {}).items())],
            **scope,
        }
        self._request: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.sent: list[dict[str, Any]] = []
        self.changed = asyncio.Event()
        self.reads = asyncio.Event()
        """Cleared: the client does not read."""
        self.reads.set()

    def body(self, *parts: bytes, complete: bool = True) -> None:
        for number, part in enumerate(parts, 1):
            more = not complete or number < len(parts)
            self._request.put_nowait({"type": "http.request", "body": part, "more_body": more})

    def disconnect(self) -> None:
        self._request.put_nowait({"type": "http.disconnect"})

    async def receive(self) -> dict[str, Any]:
        return await self._request.get()

    async def send(self, message: Any) -> None:
        self.sent.append(message)
        self.changed.set()
        await self.reads.wait()

    async def response(self, serve: ServeAsgi) -> tuple[int, dict[str, str], bytes]:
        """Serves the exchange to its end: status, headers, body."""
        await serve(self.scope, self.receive, self.send)
        return self.status, self.headers, self.content

    async def until(self, text: bytes) -> None:
        while text not in self.content:
            self.changed.clear()
            await self.changed.wait()

    @property
    def status(self) -> int:
        return int(self.sent[0]["status"])

    @property
    def headers(self) -> dict[str, str]:
        return {name.decode(): value.decode() for name, value in self.sent[0]["headers"]}

    @property
    def content(self) -> bytes:
        return b"".join(message["body"] for message in self.sent[1:])

    @property
    def is_complete(self) -> bool:
        return bool(self.sent) and self.sent[-1].get("more_body") is False


@asynccontextmanager
async def mounted(service: FakeService, **options: Any) -> AsyncIterator[ServeAsgi]:
    async with serve_asgi(service.operations, make_cards(), ServerOptions(host="0.0.0.0", **options)) as serve:
        yield serve


async def test_a_call_is_served_and_its_response_has_no_header_of_a_connection() -> None:
    service, host = FakeService(ANSWER), Host("POST", "/message:send", headers={"content-type": "application/json"})
    host.body(json.dumps(SEND).encode())
    async with mounted(service) as serve:
        status, headers, body = await host.response(serve)
    assert (status, headers["content-type"], json.loads(body)["task"]["id"]) == (200, "application/json", "t1")
    assert not headers.keys() & {"connection", "date", "server", "transfer-encoding", "keep-alive"}
    assert host.is_complete
    assert service.received[0][2].message.parts[0].text == "hello"


@pytest.mark.parametrize("size", [1, 1000, 200_000])
async def test_a_body_may_come_in_pieces_of_any_size(size: int) -> None:
    text = "x" * 500_000 if size > 1000 else "some text"
    data = json.dumps({"message": {**SEND["message"], "parts": [{"text": text}]}}).encode()
    service, host = FakeService(ANSWER), Host("POST", "/message:send")
    host.body(*(data[at : at + size] for at in range(0, len(data), size)))
    async with mounted(service) as serve:
        assert (await host.response(serve))[0] == 200
    assert service.received[0][2].message.parts[0].text == text


async def test_a_length_that_the_host_got_wrong_begins_no_second_request() -> None:
    hidden = b"GET /tasks/t1 HTTP/1.1\r\nHost: x\r\n\r\n"
    service, host = FakeService(ANSWER), Host("POST", "/message:send", headers={"content-length": "2"})
    host.body(b"{}" + hidden)
    async with mounted(service) as serve:
        assert (await host.response(serve))[0] == 400
    assert service.received == []


async def test_a_body_over_the_limit_is_rejected_before_its_end() -> None:
    host = Host("POST", "/message:send")
    host.body(*[b" " * 100_000] * 30, complete=False)
    async with mounted(FakeService(ANSWER), message_bytes=1000) as serve:
        task = asyncio.create_task(host.response(serve))
        await host.until(b"bytes are accepted")
        host.disconnect()
        assert (await task)[0] == 413


async def test_a_stream_sends_each_event_when_it_is_there() -> None:
    gate = asyncio.Event()
    events = [task_event(), gate, status_event(2, states.COMPLETED, ends=True)]
    host = Host("GET", "/tasks/t1:subscribe")
    host.body(b"")
    async with mounted(FakeService(events=events)) as serve:
        task = asyncio.create_task(host.response(serve))
        await host.until(b"TASK_STATE_SUBMITTED")
        assert not host.is_complete
        gate.set()
        status, headers, body = await task
    assert (status, headers["content-type"], host.is_complete) == (200, "text/event-stream", True)
    assert body.count(b"data: ") == 2


async def test_a_stream_waits_for_a_client_that_does_not_read() -> None:
    taken = 0

    def events() -> Iterator[Any]:
        nonlocal taken
        ready = asyncio.Event()
        ready.set()
        yield task_event()
        for number in range(2, 200):
            taken = number
            yield from (ready, chunk_event(number, "x" * 10_000))  # an event of its own, not one of a batch
        yield from (ready, status_event(200, states.COMPLETED, ends=True))

    host = Host("GET", "/tasks/t1:subscribe")
    host.body(b"")
    host.reads.clear()
    async with mounted(FakeService(events=events())) as serve:  # type: ignore[arg-type]  # a lazy sequence
        task = asyncio.create_task(host.response(serve))
        before = -1
        while taken != before:  # nothing more is taken in 50 turns of the loop
            before = taken
            for _ in range(50):
                await asyncio.sleep(0)
        assert 0 < taken < 5 * UNSENT_BYTES // 10_000
        host.reads.set()
        assert (await task)[2].count(b"data: ") == 200


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_disconnect_cancels_a_stream_and_a_call(method: str) -> None:
    path = "/tasks/t1:subscribe" if method == "GET" else "/message:send"
    service = FakeService(asyncio.Event(), events=[task_event(), asyncio.Event()])
    host = Host(method, path)
    host.body(json.dumps(SEND).encode() if method == "POST" else b"")
    async with mounted(service) as serve:
        task = asyncio.create_task(serve(host.scope, host.receive, host.send))
        await service.waiting.wait()
        host.disconnect()
        await task
        await service.abandoned.wait()
    assert host.is_complete is (method == "POST")  # the host's middleware wants a response, which nobody reads
    assert host.status == (499 if method == "POST" else 200)


async def test_a_client_that_leaves_before_the_response_is_no_fault_for_middleware_of_starlette() -> None:
    service, host = FakeService(asyncio.Event()), Host("POST", "/message:send")
    host.body(json.dumps(SEND).encode())

    async def passes(request: Request, call_next: RequestResponseEndpoint) -> Response:
        return await call_next(request)

    async with mounted(service) as serve:
        middleware = BaseHTTPMiddleware(serve, passes)
        task = asyncio.create_task(middleware(host.scope, host.receive, host.send))
        await service.waiting.wait()
        host.disconnect()
        await task
        await service.abandoned.wait()


async def test_a_host_that_reports_the_disconnect_when_it_sends_cancels_too() -> None:
    service, host = FakeService(events=[task_event(), asyncio.Event()]), Host("GET", "/tasks/t1:subscribe")
    host.body(b"")

    async def fails(message: Any) -> None:
        raise OSError("the client has gone")

    async with mounted(service) as serve:
        await serve(host.scope, host.receive, fails)
        await service.abandoned.wait()


async def test_a_canceled_host_cancels_the_call() -> None:
    service, host = FakeService(asyncio.Event()), Host("GET", "/tasks/t1")
    host.body(b"")
    async with mounted(service) as serve:
        task = asyncio.create_task(serve(host.scope, host.receive, host.send))
        await service.waiting.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await service.abandoned.wait()


async def test_a_host_that_cancels_until_the_exchange_has_ended_cancels_the_call() -> None:
    """As anyio's cancel scopes do, in which Starlette's middleware calls the application."""
    service, host = FakeService(asyncio.Event()), Host("GET", "/tasks/t1")
    host.body(b"")
    async with mounted(service) as serve:
        task = asyncio.create_task(serve(host.scope, host.receive, host.send))
        await service.waiting.wait()
        while not task.done():
            task.cancel()
            await asyncio.sleep(0)
        await service.abandoned.wait()


@pytest.mark.parametrize("fault", ["receive", "headers"])
async def test_a_fault_of_the_host_is_raised_to_it(fault: str) -> None:
    host = Host("GET", "/tasks/t1", headers={"x": "1\r\nhost: other"} if fault == "headers" else None)
    host.body(b"")

    async def fails() -> dict[str, Any]:
        raise RuntimeError("the request was read already")

    async with mounted(FakeService()) as serve:
        with pytest.raises((RuntimeError, ValueError), match=r"read already|line break"):
            await serve(host.scope, fails if fault == "receive" else host.receive, host.send)
    assert host.sent == []


async def test_streams_end_when_the_server_stops() -> None:
    service, host = FakeService(events=[task_event(), asyncio.Event()]), Host("GET", "/tasks/t1:subscribe")
    host.body(b"")
    async with mounted(service) as serve:
        task = asyncio.create_task(host.response(serve))
        await host.until(b"TASK_STATE_SUBMITTED")
    assert (await task)[0] == 200
    assert host.is_complete


async def test_the_response_to_head_has_the_length_and_no_body() -> None:
    host = Host("HEAD", "/.well-known/agent-card.json")
    host.body(b"")
    async with mounted(FakeService()) as serve:
        status, headers, body = await host.response(serve)
    assert (status, body, host.is_complete) == (200, b"", True)
    assert int(headers["content-length"]) > 100


async def test_a_card_names_the_mount_and_the_scheme_of_the_host() -> None:
    mount = {"raw_path": b"/team%20a/agents/.well-known/agent-card.json", "root_path": "/team a/agents"}
    path = "/team a/agents/.well-known/agent-card.json"
    host = Host("GET", path, headers={"a2a-version": "1.0"}, scheme="https", **mount)
    host.body(b"")
    async with mounted(FakeService()) as serve:
        card = json.loads((await host.response(serve))[2])
    base = "https://shop.example/team%20a/agents"
    urls = {
        one["protocolBinding"]: one["url"] for one in card["supportedInterfaces"] if one["protocolVersion"] == "1.0"
    }
    # A POST to the mount itself, without a slash, is redirected by Starlette.
    assert urls == {"JSONRPC": f"{base}/", "HTTP+JSON": base}


async def test_the_console_is_there_only_if_it_is_asked_for() -> None:
    found = {}
    for console in (True, False):
        async with mounted(FakeService(), console=console) as serve:
            for path in ("/console", "/console/console.js", "/"):
                host = Host("GET", path, headers={"accept": "text/html"})
                host.body(b"")
                found[path, console] = (await host.response(serve))[0]
    assert found == {
        ("/console", True): 200, ("/console/console.js", True): 200, ("/", True): 302,
        ("/console", False): 404, ("/console/console.js", False): 404, ("/", False): 200,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("path", "raw", "root", "target"),
    [  # the path at which we are mounted is `root`; those that say so nowhere are below
        ("/agents/tasks/a", b"/agents/tasks/a", "/agents", b"/tasks/a"),
        ("/tasks/a", b"/agents/tasks/a", "/agents", b"/tasks/a"),  # the host has taken the mount away
        ("/tasks/a", b"/tasks/a", "/agents", b"/tasks/a"),  # from both
        ("/tasks/a/b", b"/tasks/a%2Fb", "", b"/tasks/a%2Fb"),
        ("/agents/tasks/a/b", b"/agents/tasks/a%2Fb", "/agents/", b"/tasks/a%2Fb"),
        ("/x y/tasks/a b", b"/x%20y/tasks/a%20b", "/x y", b"/tasks/a%20b"),
        ("/x/y/tasks", b"/x%2Fy/tasks", "/x/y", b"/tasks"),
        ("/agents", b"/agents", "/agents", b"/"),
        ("/agentsmith", b"/agentsmith", "/agents", b"/agentsmith"),
        ("/tasks/ü", b"", "", b"/tasks/%C3%BC"),  # a host without raw_path
        ("/a b", b"/a b", "", b"/a%20b"),  # a host whose raw_path is not encoded
        ("/tasks/a", b"/tasks/a?query=1", "", b"/tasks/a"),
    ],
)
def test_the_target_is_the_path_below_the_mount_as_the_client_wrote_it(
    path: str, raw: bytes, root: str, target: bytes
) -> None:
    scope = {"path": path, "raw_path": raw, "root_path": root, "query_string": b""}
    assert split_path(scope) == (root.rstrip("/"), target)
    assert split_path({**scope, "query_string": b"alt=sse"})[1] == target + b"?alt=sse"


@pytest.mark.parametrize(
    ("path", "raw", "mount", "target"),
    [
        ("/tasks/a/", b"/agents/tasks/a", "/agents", b"/tasks/a"),
        ("/tasks/a/b/", b"/agents/tasks/a%2Fb", "/agents", b"/tasks/a%2Fb"),
        ("/tasks/a/", b"/agents/tasks/a/", "/agents", b"/tasks/a/"),
        ("/", b"/agents/", "/agents", b"/"),
        ("/", b"/agents", "/agents", b"/"),
        ("/", b"/", "", b"/"),
    ],
)
def test_a_mount_that_only_the_clients_path_shows_is_found(path: str, raw: bytes, mount: str, target: bytes) -> None:
    assert split_path({"path": path, "raw_path": raw}) == (mount, target)


def test_a_header_with_a_line_break_is_refused() -> None:
    scope = {"method": "GET", "headers": [(b"x", b"1\r\nhost: other")]}
    with pytest.raises(ValueError, match="line break"):
        request_head(scope, b"/", b"")


def test_headers_of_the_hosts_connection_are_left_out() -> None:
    names = (b"connection", b"upgrade", b"expect", b"transfer-encoding", b"content-length", b"te")
    scope = {"method": "GET", "headers": [*((name, b"x") for name in names), (b"x-mine", b"1"), (b"X-Mine", b"2")]}
    assert request_head(scope, b"/", b"").split(b"\r\n") == [
        b"GET / HTTP/1.1", b"connection: close", b"x-mine: 1", b"X-Mine: 2", b"host: localhost", b"", b"",
    ]  # fmt: skip
