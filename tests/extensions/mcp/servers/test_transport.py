"""HTTP over the outbound client, and child processes."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import httpx2
import mcp_types as types
import pytest
from mcp.shared.message import SessionMessage

from dragoman.extensions.mcp.servers import transport
from dragoman.extensions.mcp.servers.transport import (
    FORBIDDEN_CODE,
    SESSION_LOST_CODE,
    UNAVAILABLE_CODE,
    UNREADABLE_CODE,
    GuardedHttp,
    GuardedReads,
    GuardedWrites,
    OpenRequests,
    StderrLog,
    stdio_streams,
)
from dragoman.extensions.mcp.sources import McpSpec
from dragoman.ports import ConnectFailed, OutboundFailed, OutboundForbidden

JSON = {"content-type": "application/json"}
EVENTS = {"content-type": "Text/Event-Stream ; charset=utf-8"}
RPC_ERROR = b'{"jsonrpc": "2.0", "id": 1, "error": {"code": -32601, "message": "unknown"}}'


@dataclass
class Outbound:
    """Implements `OutboundStreams` with one response, or an error."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=lambda: JSON)
    content: list[bytes | Exception] = field(default_factory=list)
    error: Exception | None = None
    requests: list[tuple[str, str, dict[str, str], bytes | None]] = field(default_factory=list)
    closed: int = 0

    @asynccontextmanager
    async def open(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None = None, *, idle_timeout: float
    ) -> AsyncIterator[Any]:
        self.requests.append((method, url, dict(headers), body))
        if self.error is not None:
            raise self.error
        try:
            yield self
        finally:
            self.closed += 1

    async def chunks(self) -> AsyncIterator[bytes]:
        for chunk in self.content:
            if isinstance(chunk, Exception):
                raise chunk
            yield chunk

    def check_url(self, url: str) -> None:
        raise NotImplementedError

    async def resolve(self, url: str) -> list[str]:
        raise NotImplementedError

    async def close(self) -> None:
        raise NotImplementedError


async def sent(outbound: Outbound, method: str = "POST", **headers: str) -> httpx2.Response:
    """The response to a request of the SDK's client."""
    http = GuardedHttp(outbound, 10.0, 1000)
    async with httpx2.AsyncClient(transport=http, headers={"X-Key": "k"}) as client:
        response = await client.request(method, "http://x.example/mcp?a=1", content=b"{}", headers=headers)
    assert bool(http.last_failure) == (response.status_code == 503)
    return response


async def test_a_request_goes_through_the_outbound_client() -> None:
    outbound = Outbound(content=[b'{"a"', b": 1}"])
    response = await sent(outbound, **{"Mcp-Method": "ping"})
    assert (response.status_code, response.json()) == (200, {"a": 1})
    ((method, url, headers, body),) = outbound.requests
    assert (method, url, body) == ("POST", "http://x.example/mcp?a=1", b"{}")
    assert {name.lower() for name in headers} == {"accept", "x-key", "mcp-method"}
    assert outbound.closed == 1


@pytest.mark.parametrize(
    ("outbound", "code", "text", "arrived"),
    [
        (Outbound(error=ConnectFailed("x: refused")), UNAVAILABLE_CODE, "x: refused", False),
        (Outbound(error=OutboundFailed("x: silent")), UNAVAILABLE_CODE, "x: silent", True),
        (Outbound(error=OutboundForbidden("x: private")), FORBIDDEN_CODE, "x: private", False),
        (Outbound(content=[OutboundFailed("x: lost")]), UNAVAILABLE_CODE, "x: lost", True),
        (Outbound(content=[b"x" * 1001]), UNAVAILABLE_CODE, "the response is longer than 1000 bytes", True),
        (Outbound(401), FORBIDDEN_CODE, "it rejected the credentials, or requires some (401)", False),
        (Outbound(503), UNAVAILABLE_CODE, "responded with status 503", False),
        (Outbound(502), UNAVAILABLE_CODE, "responded with status 502", True),
    ],
)
async def test_a_request_without_an_answer_is_answered_with_an_error(
    outbound: Outbound, code: int, text: str, arrived: bool
) -> None:
    error = (await sent(outbound)).json()["error"]
    assert error == {"code": code, "message": text, "data": {"arrived": arrived}}


async def test_a_lost_session_and_other_errors_of_servers_are_told_apart() -> None:
    session = {"mcp-session-id": "s"}
    assert (await sent(Outbound(404), **session)).json()["error"]["code"] == SESSION_LOST_CODE
    assert (await sent(Outbound(404, content=[RPC_ERROR]), **session)).json()["error"]["code"] == SESSION_LOST_CODE
    assert (await sent(Outbound(404, content=[RPC_ERROR]))).json()["error"]["code"] == -32601
    assert (await sent(Outbound(404))).status_code == 404  # what servers without a method answer
    assert (await sent(Outbound(400, content=[b"no json"]))).status_code == 400


async def test_an_event_stream_is_read_as_it_comes_and_closed() -> None:
    outbound = Outbound(headers=EVENTS, content=[b"data: 1\n\n", b"data: 2\n\n"])
    assert (await sent(outbound)).text == "data: 1\n\ndata: 2\n\n"
    assert outbound.closed == 1


async def test_a_broken_event_stream_fails_a_call_and_ends_a_subscription() -> None:
    content: list[bytes | Exception] = [b"data: 1\n\n", ConnectionResetError()]
    with pytest.raises(httpx2.ReadError):
        await sent(Outbound(headers=EVENTS, content=content))
    assert (await sent(Outbound(headers=EVENTS, content=content), "GET")).text == "data: 1\n\n"


async def test_the_end_of_a_stream_is_noticed() -> None:
    ended: list[bool] = []
    send, receive = anyio.create_memory_object_stream[Any](2)
    async with GuardedReads(receive, OpenRequests(None, []), lambda: ended.append(True)) as watched:
        error = ValueError()
        await send.send(error)
        assert await watched.receive() is error
        assert watched.last_context is None
        send.close()
        assert [one async for one in watched] == []
    assert ended == [True]


async def test_a_child_process_has_its_environment_and_its_stderr_is_logged(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRAGOMAN_TOKEN", "secret")
    caplog.set_level("INFO", "dragoman.mcp")
    script = "import os, sys; print(sorted(os.environ), file=sys.stderr); print('bye', file=sys.stderr)"
    server = McpSpec(command=(sys.executable, "-c", script), env={"API_KEY": "k"})
    stderr, ended = StderrLog("tools"), asyncio.Event()
    async with stdio_streams(server, stderr, 1000, OpenRequests(None, []), ended.set) as (read, _):
        with pytest.raises(anyio.EndOfStream):
            await read.receive()
    assert ended.is_set()
    names = caplog.messages[0]
    assert ("API_KEY" in names, "PATH" in names, "DRAGOMAN" in names) == (True, True, False)
    assert stderr.last_line == "bye"


async def test_a_program_that_does_not_exist_is_an_os_error() -> None:
    open_files = len(os.listdir("/proc/self/fd")) if sys.platform == "linux" else 0
    with pytest.raises(FileNotFoundError):
        async with stdio_streams(
            McpSpec(command=("no-such-program",)), StderrLog("x"), 1000, OpenRequests(None, []), lambda: None
        ):
            raise AssertionError("it was started")
    if sys.platform == "linux":
        assert len(os.listdir("/proc/self/fd")) <= open_files + 1  # the loop may close one later


def request(id: int, method: str = "tools/call") -> types.JSONRPCRequest:
    return types.JSONRPCRequest(jsonrpc="2.0", id=id, method=method)


def progress(token: Any) -> types.JSONRPCNotification:
    params = {"progressToken": token, "progress": 1}
    return types.JSONRPCNotification(jsonrpc="2.0", method="notifications/progress", params=params)


async def test_a_request_is_silent_from_its_last_progress_and_not_while_the_server_asks() -> None:
    requests, expired = OpenRequests(0.1, []), asyncio.Event()
    requests.expire = lambda _: expired.set()
    timers = requests._timers
    requests.sent(request(1))
    requests.sent(request(2, "subscriptions/listen"))
    first = timers[1]
    assert list(timers) == [1]
    requests.received(progress(1))
    assert (first.cancelled(), timers[1] is not first) == (True, True)
    requests.received(request(7, "elicitation/create"))
    assert limited(requests) == []
    requests.received(progress(1))
    assert limited(requests) == []
    requests.sent(types.JSONRPCResponse(jsonrpc="2.0", id=7, result={}))
    await expired.wait()
    assert requests.ids == [1]
    requests.close()
    assert (timers, requests.ids) == ({}, [])


def withdrawal(id: Any) -> types.JSONRPCNotification:
    params = {"requestId": id}
    return types.JSONRPCNotification(jsonrpc="2.0", method="notifications/cancelled", params=params)


def question(id: int | str, method: str = "elicitation/create") -> types.JSONRPCRequest:
    return types.JSONRPCRequest(jsonrpc="2.0", id=id, method=method)


def limited(requests: OpenRequests) -> list[int]:
    """The calls that end when nothing comes."""
    return [id for id, timer in requests._timers.items() if not timer.cancelled()]


@pytest.mark.parametrize(("id", "withdrawn"), [("q", "q"), (7, 7), ("7", 7), (7, "7")])
async def test_a_withdrawn_question_no_longer_suspends_the_limit(id: int | str, withdrawn: int | str) -> None:
    requests, expired = OpenRequests(0.05, []), asyncio.Event()
    requests.expire = lambda _: expired.set()
    requests.sent(request(1))
    requests.received(question(id))
    others: list[Any] = ["other", {}, [], None, True, 1.5]
    for other in others:
        requests.received(withdrawal(other))
    assert limited(requests) == []
    requests.received(withdrawal(withdrawn))
    assert limited(requests) == [1]
    requests.sent(request(2))
    assert limited(requests) == [1, 2]
    await expired.wait()


async def test_a_question_suspends_the_limit_of_the_calls_that_may_ask_it() -> None:
    requests = OpenRequests(60.0, [])
    requests.sent(request(1))
    requests.sent(request(2, "tools/list"))
    requests.received(question("sampling", "sampling/createMessage"))
    assert limited(requests) == [1, 2], "it is answered at once"
    requests.received(question("a"))
    requests.sent(request(3))
    assert limited(requests) == [2, 3], "a later call does not ask it"
    requests.received(question("b"))
    assert limited(requests) == [2]
    requests.sent(types.JSONRPCResponse(jsonrpc="2.0", id="a", result={}))
    assert limited(requests) == [2, 1], "call 3 asks the other question"
    requests.received(types.JSONRPCResponse(jsonrpc="2.0", id=3, result={}))
    requests.sent(types.JSONRPCError(jsonrpc="2.0", id="b", error=types.ErrorData(code=1, message="no")))
    assert limited(requests) == [2, 1]
    requests.close()


async def test_a_question_without_an_answer_suspends_the_limit_for_a_bounded_time() -> None:
    requests, expired = OpenRequests(0.01, [], question_seconds=0.05), asyncio.Event()
    requests.expire = lambda _: expired.set()
    requests.sent(request(1))
    requests.received(question("q"))
    assert limited(requests) == []
    await expired.wait()
    assert requests.received(question("q")) is None, "it has no answer yet"
    requests.close()


async def test_requests_of_a_server_have_ids_of_their_own_and_a_bounded_number(
    caplog: pytest.LogCaptureFixture,
) -> None:
    requests = OpenRequests(60.0, [])
    pings = [question(n, "ping") for n in range(transport.MAX_SERVER_REQUESTS + 5)]
    passed = [one for one in pings if requests.received(one) is not None]
    assert len(passed) == transport.MAX_SERVER_REQUESTS
    requests.sent(types.JSONRPCResponse(jsonrpc="2.0", id=0, result={}))
    assert requests.received(question("1")) is None, "the id is in use"
    assert requests.received(question("q")) is not None
    assert len(caplog.records) == 1, "one line, however many they are"
    requests.close()


async def test_a_request_of_a_server_that_does_not_read_its_answer_stays_open() -> None:
    requests = OpenRequests(60.0, [])
    send, receive = anyio.create_memory_object_stream[Any](0)
    async with GuardedWrites(send, requests) as writes, receive:
        requests.received(question("q", "ping"))
        answer = SessionMessage(types.JSONRPCResponse(jsonrpc="2.0", id="q", result={}))
        writing = asyncio.create_task(writes.send(answer))
        await anyio.wait_all_tasks_blocked()
        assert requests.received(question("q", "ping")) is None
        assert await receive.receive() is answer
        await writing
        assert requests.received(question("q", "ping")) is not None


async def test_an_answer_with_an_id_of_thousands_of_digits_is_not_that_of_a_call() -> None:
    requests = OpenRequests(None, [])
    requests.sent(request(1))
    found = requests.received(types.JSONRPCResponse(jsonrpc="2.0", id="9" * 5000, result={}))
    assert (found.id, found.error.code) == (1, UNREADABLE_CODE)


async def test_answers_are_matched_with_the_open_requests() -> None:
    requests = OpenRequests(None, [])
    for id in (1, 2, 3):
        requests.sent(request(id))
    requests.sent(types.JSONRPCNotification(jsonrpc="2.0", method="notifications/cancelled", params={"requestId": 3}))
    answer = types.JSONRPCResponse(jsonrpc="2.0", id="1", result={})
    assert requests.received(answer) is answer
    assert requests.received(answer) is None, "it was answered already"
    assert requests.received(types.JSONRPCResponse(jsonrpc="2.0", id=3, result={})) is None, "it was canceled"
    unknown = requests.received(types.JSONRPCResponse(jsonrpc="2.0", id=99, result={}))
    assert (unknown.id, unknown.error.code) == (2, UNREADABLE_CODE), "one call is open, so it is that one's answer"
    requests.sent(request(4))
    requests.sent(request(5))
    assert (
        requests.received(types.JSONRPCError(jsonrpc="2.0", id=None, error=types.ErrorData(code=1, message="x")))
        is None
    )
    assert requests.ids == [4, 5]


async def test_the_end_of_a_subscription_is_passed_on_and_fails_no_call() -> None:
    requests = OpenRequests(None, [])
    requests.sent(types.JSONRPCRequest(jsonrpc="2.0", id=1, method="tools/call"))
    requests.sent(types.JSONRPCRequest(jsonrpc="2.0", id="listen-1", method="subscriptions/listen"))
    error = types.ErrorData(code=-32000, message="SSE stream ended without a response")
    end = types.JSONRPCError(jsonrpc="2.0", id="listen-1", error=error)
    assert requests.received(end) is end
    assert requests.ids == [1]
    again = requests.received(end)
    assert again.id == 1
    assert "listen-1, which no call has" in again.error.message


async def test_a_list_of_tools_is_cleaned_and_its_bad_tools_are_kept_with_the_reason() -> None:
    left_out: list[str] = []
    requests = OpenRequests(None, left_out)
    requests.sent(request(1, "tools/list"))
    tools = [{"name": "good", "inputSchema": {"type": "object"}}, {"name": "bad"}]
    found = requests.received(types.JSONRPCResponse(jsonrpc="2.0", id=1, result={"tools": tools}))
    assert found.result == {"tools": tools[:1]}
    assert left_out == ['tool "bad": its inputSchema is missing']
    requests.sent(request(2, "tools/list"))
    found = requests.received(types.JSONRPCResponse(jsonrpc="2.0", id=2, result={}))
    assert (found.id, found.error.message) == (2, "its list of tools has no array `tools`")


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b'{"jsonrpc": "2.0", "id": 1, "result": {}}', ""),
        (b'{"jsonrpc": "2.0", "id": "1", "result": {}}', ""),
        (
            b'{"jsonrpc": "2.0", "id": 2, "result": {}}',
            "the MCP server answered with the id 2, which is not that of the",
        ),
        (b'{"jsonrpc": "2.0", "id": 1}', "the MCP server sent an answer that has neither a result nor an error"),
        (b"[" * 100_000, "the MCP server sent an answer that is not JSON"),
        (b"\xff", "the MCP server sent an answer that is not JSON"),
    ],
)
async def test_a_response_over_http_answers_its_request(content: bytes, problem: str) -> None:
    http = GuardedHttp(Outbound(content=[content]), 10.0, 1_000_000)
    async with httpx2.AsyncClient(transport=http) as client:
        body = b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call"}'
        response = await client.post("http://x.example/mcp", content=body)
    if problem:
        error = response.json()["error"]
        assert (error["code"], error["message"].startswith(problem)) == (UNREADABLE_CODE, True)
    else:
        assert response.status_code == 200


async def test_a_child_process_that_ignores_every_signal_but_kill_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "PROCESS_END_TIMEOUT", 0.2)
    script = (
        "import signal, sys\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('{}', flush=True)\nsignal.pause()"
    )
    server = McpSpec(command=(sys.executable, "-c", script))
    async with (
        asyncio.timeout(60),
        stdio_streams(server, StderrLog("x"), 1000, OpenRequests(None, []), lambda: None) as (read, _),
    ):
        waiting = asyncio.create_task(read.receive())
        await asyncio.sleep(0)
        waiting.cancel()
