"""CORS headers and request ids of HTTP responses."""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import Any

import pytest
from tests.bindings.fake_service import TASK, FakeService, chunk_event, make_cards, over_http, status_event, task_event

from dragoman.core.errors import TaskNotFound
from dragoman.core.task import states
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

APP, OTHER = "https://app.example", "https://app.example.evil.example"
ALLOW, EXPOSE = "Access-Control-Allow-Origin", "Access-Control-Expose-Headers"
MESSAGE = {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]}}
CALL = {"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": "t1"}}
STREAM = {"jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage", "params": MESSAGE}

Request = tuple[str, str, Any, int]
REQUESTS: list[Request] = [
    ("GET", "/.well-known/agent-card.json", None, 200),
    ("GET", "/tasks/t1", None, 200),
    ("GET", "/v1/tasks/t1", None, 200),
    ("POST", "/", CALL, 200),
    ("POST", "/", {"jsonrpc": "2.0", "id": 1, "method": "Nope"}, 200),
    ("GET", "/healthz", None, 200),
    ("GET", "/", None, 200),
    ("GET", "/openapi.json", None, 200),
    ("GET", "/nothing/here", None, 404),
    ("PUT", "/tasks/t1", None, 405),
    ("POST", "/message:send", {"message": []}, 400),
]  # fmt: skip
STREAMS: list[Request] = [
    ("POST", "/message:stream", MESSAGE, 200),
    ("GET", "/tasks/t1:subscribe", None, 200),
    ("GET", "/v1/tasks/t1:subscribe", None, 200),
    ("POST", "/", STREAM, 200),
]
ALL_REQUESTS = [*REQUESTS, *STREAMS]


def service() -> FakeService:
    return FakeService(TASK, [task_event(), chunk_event(2), status_event(3, states.COMPLETED, ends=True)])


# CORS ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("method", "path", "body", "status"), ALL_REQUESTS)
async def test_pages_of_allowed_origins_may_read_every_response(method: str, path: str, body: Any, status: int) -> None:
    async with (
        over_http(service(), cors=(APP, "http://localhost:3000")) as client,
        client.request(method, path, json=body, headers={"Origin": APP}) as answer,
    ):
        assert answer.status == status
        assert answer.headers[ALLOW] == APP
        assert {"A2A-Extensions", "ETag", "X-Request-ID", "WWW-Authenticate"} <= set(answer.headers[EXPOSE].split(", "))
        assert "Origin" in answer.headers["Vary"]
        assert "Access-Control-Allow-Credentials" not in answer.headers


@pytest.mark.parametrize("origin", [OTHER, "http://app.example", "https://app.example:8443", "null", "", None])
@pytest.mark.parametrize(("method", "path", "body", "status"), [REQUESTS[0], REQUESTS[1], STREAMS[0]])
async def test_pages_of_other_origins_may_not_read_responses(
    method: str, path: str, body: Any, status: int, origin: str | None
) -> None:
    headers = {} if origin is None else {"Origin": origin}
    async with (
        over_http(service(), cors=(APP,)) as client,
        client.request(method, path, json=body, headers=headers) as answer,
    ):
        assert answer.status == (403 if origin else status), "clients without Origin are not rejected"
        assert ALLOW not in answer.headers
        assert "Origin" in answer.headers["Vary"], "else a cache would return this response to an allowed page"


@pytest.mark.parametrize(("method", "path", "body", "status"), ALL_REQUESTS)
async def test_without_allowed_origins_responses_have_no_cors_headers(
    method: str, path: str, body: Any, status: int
) -> None:
    async with (
        over_http(service()) as client,
        client.request(method, path, json=body, headers={"Origin": APP}) as answer,
    ):
        assert answer.status == (status if path == "/healthz" else 403)
        assert not [name for name in answer.headers if name.startswith("Access-Control-")]
        assert "Origin" not in answer.headers.get("Vary", "")


@pytest.mark.parametrize("origin", [APP, OTHER, "null"])
async def test_a_star_allows_all_origins(origin: str) -> None:
    async with over_http(service(), cors=("*",)) as client:
        for method, path, body, _ in (REQUESTS[0], REQUESTS[1], STREAMS[0]):
            async with client.request(method, path, json=body, headers={"Origin": origin}) as answer:
                assert answer.headers[ALLOW] == "*"
                assert "Origin" not in answer.headers.get("Vary", "")


@pytest.mark.parametrize("path", ["/", "/message:send", "/tasks/t1", "/other", "/v1/message:stream", "/no/such/path"])
async def test_preflights_are_answered_by_origin(path: str) -> None:
    fake = service()
    preflight = {
        "Origin": APP,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization",
    }
    async with over_http(fake, cors=(APP,)) as client:
        async with client.options(path, headers=preflight) as answer:
            assert (answer.status, await answer.read()) == (204, b"")
            assert answer.headers[ALLOW] == APP
            assert {"GET", "POST", "DELETE"} <= set(answer.headers["Access-Control-Allow-Methods"].split(", "))
            allowed = {name.lower() for name in answer.headers["Access-Control-Allow-Headers"].split(", ")}
            assert int(answer.headers["Access-Control-Max-Age"]) > 0
        async with client.options(path, headers={**preflight, "Origin": OTHER}) as answer:
            assert answer.status == 403
            assert ALLOW not in answer.headers
            assert "--cors" in await answer.text()
    assert allowed >= {
        "accept", "authorization", "content-type", "a2a-version", "a2a-extensions", "x-a2a-extensions", "last-event-id",
        "x-request-id",
    }  # fmt: skip
    assert fake.received == []


async def test_options_without_a_preflight_is_an_ordinary_method() -> None:
    async with (
        over_http(service(), cors=(APP,)) as client,
        client.options("/tasks/t1", headers={"Origin": APP}) as answer,
    ):
        assert (answer.status, answer.headers[ALLOW]) == (204, APP)
        assert "GET" in answer.headers["Allow"]


async def test_errors_before_the_first_event_have_cors_headers() -> None:
    async with (
        over_http(FakeService(events=[TaskNotFound()]), cors=(APP,)) as client,
        client.get("/tasks/t1:subscribe", headers={"Origin": APP, "X-Request-ID": "r-1"}) as answer,
    ):
        assert (answer.status, answer.headers[ALLOW], answer.headers["X-Request-ID"]) == (404, APP, "r-1")


async def test_a_websocket_upgrade_has_cors_headers_and_request_id() -> None:
    headers = {"Origin": APP, "X-Request-ID": "ws-1"}
    async with over_http(service(), cors=(APP,)) as client, client.ws_connect("/ws", headers=headers) as socket:
        received = socket._response.headers
        assert (received[ALLOW], received["X-Request-ID"]) == (APP, "ws-1")


# Request ids -----------------------------------------------------------------------------------------------


def lines(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    """Returns the fields of each line in the access log."""
    return [vars(record) for record in caplog.records if record.name == "dragoman.access"]


@pytest.mark.parametrize("id", ["r-1", "0b0e2c1c-6c0f-4c7e-9b6e-7f1f6d2a3b4c", "~!@#$%^&*()_+", "x" * 128])
@pytest.mark.parametrize(("method", "path", "body", "status"), ALL_REQUESTS)
async def test_a_request_id_is_returned_and_logged(
    caplog: pytest.LogCaptureFixture, method: str, path: str, body: Any, status: int, id: str
) -> None:
    caplog.set_level(logging.INFO, "dragoman.access")
    async with (
        over_http(service()) as client,
        client.request(method, path, json=body, headers={"X-Request-ID": id}) as answer,
    ):
        assert (answer.status, answer.headers["X-Request-ID"]) == (status, id)
        await answer.read()
    (line,) = lines(caplog)
    assert line["request"] == id


@pytest.mark.parametrize("id", [None, "", " ", "a b", "x" * 129, "ü", "\N{ZERO WIDTH SPACE}", "a\tb"])
@pytest.mark.parametrize(("method", "path", "body", "status"), [REQUESTS[1], REQUESTS[3], REQUESTS[8], STREAMS[0]])
async def test_an_invalid_request_id_is_not_returned(
    caplog: pytest.LogCaptureFixture, method: str, path: str, body: Any, status: int, id: str | None
) -> None:
    caplog.set_level(logging.INFO, "dragoman.access")
    headers = {} if id is None else {"X-Request-ID": id}
    async with over_http(service()) as client, client.request(method, path, json=body, headers=headers) as answer:
        assert answer.status in (status, 400)  # aiohttp rejects invalid header characters
        assert "X-Request-ID" not in answer.headers
        await answer.read()
    assert not [line for line in lines(caplog) if "request" in line]


@pytest.mark.parametrize(
    "id", [b"a\rSet-Cookie: x=1", b"a\x00b", b"a\r\n Set-Cookie: x=1", b"\xff\xfe", b"\x1b[31mred", b"\x7f"]
)
async def test_a_request_id_cannot_inject_headers_or_terminal_codes(
    caplog: pytest.LogCaptureFixture, id: bytes
) -> None:
    caplog.set_level(logging.INFO, "dragoman.access")
    async with over_http(service()) as client:
        assert client._base_url is not None
        host, port = client._base_url.host, client._base_url.port
        reader, writer = await asyncio.open_connection(host, port, family=socket.AF_INET)
        writer.write(
            b"GET /tasks/t1 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nX-Request-ID: " + id + b"\r\n\r\n"
        )
        answer = await reader.read()
        writer.close()
        await writer.wait_closed()
    head = answer.partition(b"\r\n\r\n")[0].lower()
    assert b"set-cookie" not in head
    assert b"x-request-id" not in head
    assert not [line for line in lines(caplog) if "request" in line]


async def test_websocket_calls_are_logged_with_the_request_id_of_the_upgrade(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "dragoman.access")
    async with over_http(service()) as client, client.ws_connect("/ws", headers={"X-Request-ID": "ws-1"}) as socket:
        for _ in range(2):
            await socket.send_json(CALL)
            assert (await socket.receive_json())["result"]["id"] == "t1"
    assert [(line["method"], line["request"], line["status"]) for line in lines(caplog)] == [
        ("GetTask", "ws-1", "OK"),
        ("GetTask", "ws-1", "OK"),
        ("GET /ws", "ws-1", "101"),
    ]


async def test_the_access_log_has_method_agent_and_status(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "dragoman.access")
    answer = pb.SendMessageResponse(task=TASK)
    async with over_http(FakeService(answer=answer), make_cards()) as client:
        async with client.post("/other/message:send", json=MESSAGE, headers={"X-Request-ID": "r-1"}) as sent:
            assert sent.status == 200
        body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {**MESSAGE, "tenant": "other"}}
        async with client.post("/", json=body, headers={"X-Request-ID": "r-2"}) as sent:
            assert sent.status == 200
    rest, rpc = lines(caplog)
    for line, method, status, id in (
        (rest, "POST /{tenant}/message:send", "200", "r-1"),
        (rpc, "SendMessage", "OK", "r-2"),
    ):
        assert (line["method"], line["status"], line["request"], line["agent"]) == (method, status, id, "other")
        assert line["ms"] >= 0


async def test_a_request_id_is_not_reused_for_the_next_request() -> None:
    async with over_http(service()) as client:
        async with client.get("/tasks/t1", headers={"X-Request-ID": "one"}) as answer:
            assert answer.headers["X-Request-ID"] == "one"
        async with client.get("/tasks/t1") as answer:
            assert "X-Request-ID" not in answer.headers
