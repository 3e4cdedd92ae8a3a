"""CORS and request ids: what every answer over HTTP carries besides its own."""

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
ANSWERS: list[Request] = [
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
EVERY = [*ANSWERS, *STREAMS]


def service() -> FakeService:
    return FakeService(TASK, [task_event(), chunk_event(2), status_event(3, states.COMPLETED, ends=True)])


# CORS ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("method", "path", "body", "status"), EVERY)
async def test_a_page_of_a_named_origin_may_read_every_answer(method: str, path: str, body: Any, status: int) -> None:
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
@pytest.mark.parametrize(("method", "path", "body", "status"), [ANSWERS[0], ANSWERS[1], STREAMS[0]])
async def test_any_other_may_not(method: str, path: str, body: Any, status: int, origin: str | None) -> None:
    headers = {} if origin is None else {"Origin": origin}
    async with (
        over_http(service(), cors=(APP,)) as client,
        client.request(method, path, json=body, headers=headers) as answer,
    ):
        assert answer.status == (403 if origin else status), "who is no browser is not kept out by this"
        assert ALLOW not in answer.headers
        assert "Origin" in answer.headers["Vary"], "or a cache would give this answer to the page that may"


@pytest.mark.parametrize(("method", "path", "body", "status"), EVERY)
async def test_without_configured_origins_nothing_is_said(method: str, path: str, body: Any, status: int) -> None:
    async with (
        over_http(service()) as client,
        client.request(method, path, json=body, headers={"Origin": APP}) as answer,
    ):
        assert answer.status == (status if path == "/healthz" else 403)
        assert not [name for name in answer.headers if name.startswith("Access-Control-")]
        assert "Origin" not in answer.headers.get("Vary", "")


@pytest.mark.parametrize("origin", [APP, OTHER, "null"])
async def test_a_star_lets_all_pages_call(origin: str) -> None:
    async with over_http(service(), cors=("*",)) as client:
        for method, path, body, _ in (ANSWERS[0], ANSWERS[1], STREAMS[0]):
            async with client.request(method, path, json=body, headers={"Origin": origin}) as answer:
                assert answer.headers[ALLOW] == "*"
                assert "Origin" not in answer.headers.get("Vary", "")


@pytest.mark.parametrize("path", ["/", "/message:send", "/tasks/t1", "/other", "/v1/message:stream", "/no/such/path"])
async def test_a_browser_may_ask_first(path: str) -> None:
    fake = service()
    asks = {"Origin": APP, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
    async with over_http(fake, cors=(APP,)) as client:
        async with client.options(path, headers=asks) as answer:
            assert (answer.status, await answer.read()) == (204, b"")
            assert answer.headers[ALLOW] == APP
            assert {"GET", "POST", "DELETE"} <= set(answer.headers["Access-Control-Allow-Methods"].split(", "))
            allowed = {name.lower() for name in answer.headers["Access-Control-Allow-Headers"].split(", ")}
            assert int(answer.headers["Access-Control-Max-Age"]) > 0
        async with client.options(path, headers={**asks, "Origin": OTHER}) as answer:
            assert answer.status == 403
            assert ALLOW not in answer.headers
            assert "--cors" in await answer.text()
    assert allowed >= {
        "accept", "authorization", "content-type", "a2a-version", "a2a-extensions", "x-a2a-extensions", "last-event-id",
        "x-request-id",
    }  # fmt: skip
    assert fake.received == []


async def test_options_that_are_no_preflight_are_a_method_like_any_other() -> None:
    async with (
        over_http(service(), cors=(APP,)) as client,
        client.options("/tasks/t1", headers={"Origin": APP}) as answer,
    ):
        assert (answer.status, answer.headers[ALLOW]) == (405, APP)
        assert "GET" in answer.headers["Allow"]


async def test_what_breaks_before_its_first_event_is_readable_too() -> None:
    async with (
        over_http(FakeService(events=[TaskNotFound()]), cors=(APP,)) as client,
        client.get("/tasks/t1:subscribe", headers={"Origin": APP, "X-Request-ID": "r-1"}) as answer,
    ):
        assert (answer.status, answer.headers[ALLOW], answer.headers["X-Request-ID"]) == (404, APP, "r-1")


async def test_the_opening_of_a_websocket_carries_them() -> None:
    headers = {"Origin": APP, "X-Request-ID": "ws-1"}
    async with over_http(service(), cors=(APP,)) as client, client.ws_connect("/ws", headers=headers) as socket:
        opened = socket._response.headers
        assert (opened[ALLOW], opened["X-Request-ID"]) == (APP, "ws-1")


# Request ids -----------------------------------------------------------------------------------------------


def lines(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    """The lines of the access log, their fields."""
    return [vars(record) for record in caplog.records if record.name == "dragoman.access"]


@pytest.mark.parametrize("id", ["r-1", "0b0e2c1c-6c0f-4c7e-9b6e-7f1f6d2a3b4c", "~!@#$%^&*()_+", "x" * 128])
@pytest.mark.parametrize(("method", "path", "body", "status"), EVERY)
async def test_an_id_comes_back_and_is_in_the_log(
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
@pytest.mark.parametrize(("method", "path", "body", "status"), [ANSWERS[1], ANSWERS[3], ANSWERS[8], STREAMS[0]])
async def test_an_id_that_cannot_be_repeated_is_not(
    caplog: pytest.LogCaptureFixture, method: str, path: str, body: Any, status: int, id: str | None
) -> None:
    caplog.set_level(logging.INFO, "dragoman.access")
    headers = {} if id is None else {"X-Request-ID": id}
    async with over_http(service()) as client, client.request(method, path, json=body, headers=headers) as answer:
        assert answer.status in (status, 400)  # aiohttp refuses what no header may hold
        assert "X-Request-ID" not in answer.headers
        await answer.read()
    assert not [line for line in lines(caplog) if "request" in line]


@pytest.mark.parametrize(
    "id", [b"a\rSet-Cookie: x=1", b"a\x00b", b"a\r\n Set-Cookie: x=1", b"\xff\xfe", b"\x1b[31mred", b"\x7f"]
)
async def test_an_id_cannot_write_headers_or_terminals(caplog: pytest.LogCaptureFixture, id: bytes) -> None:
    caplog.set_level(logging.INFO, "dragoman.access")
    async with over_http(service()) as client:
        assert client._base_url is not None
        host, port = client._base_url.host, client._base_url.port
        reader, writer = await asyncio.open_connection(host, port, family=socket.AF_INET)
        writer.write(b"GET /tasks/t1 HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-Request-ID: " + id + b"\r\n\r\n")
        answer = await reader.read()
        writer.close()
        await writer.wait_closed()
    head = answer.partition(b"\r\n\r\n")[0].lower()
    assert b"set-cookie" not in head
    assert b"x-request-id" not in head
    assert not [line for line in lines(caplog) if "request" in line]


async def test_each_call_of_a_websocket_is_logged_under_the_id_that_opened_it(caplog: pytest.LogCaptureFixture) -> None:
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


async def test_the_log_says_what_was_asked_and_how_it_went(caplog: pytest.LogCaptureFixture) -> None:
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


async def test_ids_are_as_long_lived_as_their_requests() -> None:
    async with over_http(service()) as client:
        async with client.get("/tasks/t1", headers={"X-Request-ID": "one"}) as answer:
            assert answer.headers["X-Request-ID"] == "one"
        async with client.get("/tasks/t1") as answer:
            assert "X-Request-ID" not in answer.headers
