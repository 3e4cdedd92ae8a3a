"""Plain calls: answered without aiohttp, with the same responses, and given to aiohttp when they are not plain."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.bindings.fake_service import TASK, FakeService, chunk_event, make_cards, status_event, task_event
from tests.bindings.raw_client import RawClient

from dragoman.bindings.http import connections as plain
from dragoman.bindings.http import server as http
from dragoman.bindings.http.connections import MAX_PLAIN_BYTES, HandOver, Response, encode_response, parse_plain
from dragoman.bindings.options import BoundAddress, HttpTimeouts, ServerOptions
from dragoman.core.task import states
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

SEND = {"message": {"messageId": "1", "role": "ROLE_USER", "parts": [{"text": "hello"}]}}


@asynccontextmanager
async def serving(service: FakeService | None = None, **options: Any) -> AsyncIterator[BoundAddress]:
    service = service or FakeService(pb.SendMessageResponse(task=TASK))
    async with http.serve_http(service.operations, make_cards(), ServerOptions(**options)) as at:
        yield at


def request(method: str, target: str, body: object = None, **headers: str) -> bytes:
    content = b"" if body is None else json.dumps(body).encode()
    lines = [f"{method} {target} HTTP/1.1", "Host: localhost", "A2A-Version: 1.0"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    if content:
        lines += ["Content-Type: application/json", f"Content-Length: {len(content)}"]
    return "\r\n".join([*lines, "", ""]).encode() + content


def rpc(method: str, params: object, id: int = 1) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


async def exchange(bound: BoundAddress, *requests: bytes) -> list[tuple[int, dict[str, str], bytes]]:
    """Sends each request on one connection, after the response to the one before."""
    async with RawClient.connect(bound) as client:
        responses = []
        for sent in requests:
            await client.send(sent)
            responses.append(await read_response(client))
        return responses


async def read_response(client: RawClient) -> tuple[int, dict[str, str], bytes]:
    """Returns status, headers and body of a response with a Content-Length."""
    head = (await client.reader.readuntil(b"\r\n\r\n")).decode()
    status, *lines = head.strip().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines)
    return int(status.split()[1]), headers, await client.reader.readexactly(int(headers["Content-Length"]))


CALLS = [
    request("POST", "/", rpc("SendMessage", SEND)),
    request("POST", "/other/", rpc("message/send", {"message": {"role": "user", "kind": "message", "messageId": "1",
                                                                "parts": [{"kind": "text", "text": "x"}]}})),
    request("POST", "/", rpc("GetTask", {"id": "t1"})),
    request("POST", "/", rpc("NoSuchMethod", {})),
    request("POST", "/", {"jsonrpc": "1.0"}),
    request("POST", "/", rpc("SendMessage", {"message": {"role": 7}})),
    request("POST", "/message:send", SEND),
    request("POST", "/nowhere/message:send", SEND),
    request("GET", "/tasks/t1?historyLength=2"),
    request("GET", "/tasks/t1?historyLength=x"),
    request("DELETE", "/tasks/t1/pushNotificationConfigs/c1"),
    request("GET", "/no/such/path"),
]  # fmt: skip


@pytest.mark.parametrize("sent", CALLS, ids=lambda sent: sent.split(b"\r\n")[0].decode())
async def test_a_plain_call_gets_the_response_that_aiohttp_would_send(sent: bytes) -> None:
    full = sent.replace(b"\r\nHost", b"\r\nX-Request-ID: r1\r\nHost")
    async with serving() as bound:
        [(status, headers, body)] = await exchange(bound, sent)
        [(full_status, full_headers, full_body)] = await exchange(bound, full)
    assert (status, body) == (full_status, full_body)
    for name in ("Server", "Date", "X-Request-ID"):
        headers.pop(name, None)
        full_headers.pop(name, None)
    assert headers == full_headers


async def test_a_connection_serves_one_plain_call_after_the_other() -> None:
    async with serving() as bound:
        responses = await exchange(bound, *CALLS[:3], *CALLS[:3])
    assert [status for status, _, _ in responses] == [200] * 6
    assert [body for _, _, body in responses[:3]] == [body for _, _, body in responses[3:]]


async def test_the_bytes_of_a_call_may_arrive_one_at_a_time() -> None:
    async with serving() as bound, RawClient.connect(bound) as client:
        for position in range(len(CALLS[0])):
            await client.send(CALLS[0][position : position + 1])
            await asyncio.sleep(0)
        assert (await read_response(client))[0] == 200


async def test_calls_that_do_not_wait_for_responses_are_answered_in_order() -> None:
    async with serving() as bound, RawClient.connect(bound) as client:
        await client.send(b"".join(request("POST", "/", rpc("GetTask", {"id": "t1"}, id)) for id in range(1, 20)))
        answers = [json.loads((await read_response(client))[2])["id"] for _ in range(1, 20)]
    assert answers == list(range(1, 20))


async def test_a_call_sent_during_another_is_answered_after_it() -> None:
    answer = asyncio.Event()
    service = FakeService(answer)
    async with serving(service) as bound, RawClient.connect(bound) as client:
        await client.send(request("POST", "/", rpc("GetTask", {"id": "t1"}, 1)))
        await service.waiting.wait()
        await client.send(request("POST", "/", rpc("GetTask", {"id": "t1"}, 2)))
        await client.send(request("GET", "/healthz"))
        answer.set()
        assert [json.loads((await read_response(client))[2]).get("id") for _ in range(3)] == [1, 2, None]


STREAMS = [
    request("POST", "/", rpc("SendStreamingMessage", SEND)),
    request("POST", "/message:stream", SEND),
    request("GET", "/tasks/t1:subscribe"),
]


@pytest.mark.parametrize("number", range(3))
async def test_a_stream_follows_a_plain_call_on_its_connection(number: int) -> None:
    service = FakeService(TASK, [task_event(), chunk_event(2), status_event(3, states.COMPLETED, ends=True)])
    async with serving(service) as bound, RawClient.connect(bound) as client:
        await client.send(CALLS[2])
        assert (await read_response(client))[0] == 200
        await client.send(STREAMS[number])
        head = await client.reader.readuntil(b"\r\n\r\n")
        assert b"text/event-stream" in head
        rest = await client.reader.readuntil(b"0\r\n\r\n")
        assert rest.count(b"data: ") == 3
        await client.send(CALLS[2])
        assert (await read_response(client))[0] == 200


async def test_a_streaming_method_in_disguise_is_found_when_it_is_decoded() -> None:
    body = json.dumps(rpc("SendStreamingMessage", SEND)).replace("Streaming", "S\\u0074reaming").encode()
    sent = b"POST / HTTP/1.1\r\nHost: localhost\r\nA2A-Version: 1.0\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    service = FakeService(TASK, [task_event(), status_event(2, states.COMPLETED, ends=True)])
    async with serving(service) as bound, RawClient.connect(bound) as client:
        await client.send(sent)
        assert b"text/event-stream" in await client.reader.readuntil(b"\r\n\r\n")
        assert (await client.reader.readuntil(b"0\r\n\r\n")).count(b"data: ") == 2
    assert [name for name, _, _ in service.received] == ["send_streaming_message"]


@pytest.mark.parametrize(
    "sent",
    [
        request("GET", "/tasks/t1"),  # a plain call
        request("GET", "/healthz"),
        request("GET", "/nothing-here"),
        request("GET", "/.well-known/agent-card.json"),
        request("GET", "/tasks/t1:subscribe"),  # a stream
        b"GET /tasks/t1 HTTP/1.1\r\nHost: localhost\r\nX: \0\r\n\r\n",  # no valid HTTP
        b"GET /ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n",
    ],
)
async def test_no_response_is_sniffed_or_names_versions(sent: bytes) -> None:
    async with serving(FakeService(TASK, [task_event()])) as bound, RawClient.connect(bound) as client:
        await client.send(sent)
        head = (await client.reader.readuntil(b"\r\n\r\n")).decode()
    assert head.count("X-Content-Type-Options: nosniff\r\n") == 1
    assert "Server: " not in head.replace("Server: dragoman\r\n", "")
    assert "aiohttp" not in head


async def test_a_card_over_json_rpc_is_served_by_aiohttp() -> None:
    async with serving() as bound:
        [(_, headers, _)] = await exchange(bound, request("POST", "/", rpc("GetExtendedAgentCard", {})))
    assert "Server" in headers


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"GET /healthz HTTP/1.0\r\nHost: localhost\r\n\r\n", 200),
        (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 200),
        (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: \xff\r\n\r\n", 200),
        (b"HEAD /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", 200),
        (b"GET //healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", 200),
        (b"GET /tasks/" + b"x" * 3000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", 200),
        (b"GET /tasks/t1 HTTP/1.1\r\n" + b"X: y\r\n" * 80 + b"Host: localhost\r\n\r\n", 200),
        (b"GET /tasks/t1 HTTP/1.1\r\n" + b"X: y\r\n" * 120 + b"Host: localhost\r\n\r\n", 431),
        (b"BREW /tasks/t1 HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"GET /tasks/t1 HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{} ", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    ],
)
async def test_what_is_not_plain_is_served_or_rejected_by_aiohttp(sent: bytes, status: int) -> None:
    async with serving() as bound, RawClient.connect(bound) as client:
        await client.send(sent)
        head = await client.reader.readuntil(b"\r\n\r\n")
    assert int(head.split()[1]) == status
    assert b"Server: dragoman" in head  # plain responses have none


@pytest.mark.parametrize("version", [b"1.0", b"1.1"])
@pytest.mark.parametrize(
    ("head", "rule"),
    [
        (b"GET / HTTP/%b\r\nHost: secret\r\nHost: secret\r\n", "Host: must be given once"),
        (b"GET / HTTP/%b\r\nHost: a\r\nUser-Agent: a\r\nUser-Agent: secret\r\n", "User-Agent: must be given once"),
        (b"GET / HTTP/%b\r\nHost: a\r\nContent-Length: secret\r\n", "Invalid character in Content-Length"),
        (b"GET / HTTP/%b\r\nHost: a\r\nse cret: 1\r\n", "Invalid header token"),
        (b"GET / HTTP/%b secret\r\nHost: a\r\n", "Expected CRLF after version"),
        (b"GET http://[secret HTTP/%b\r\nHost: a\r\n", "its first line or a header has no valid form"),
        (b"\x16\x03\x01secret HTTP/%b\r\nHost: a\r\n", "its first line or a header has no valid form"),
    ],
)
async def test_invalid_http_is_rejected_with_the_rule_but_not_quoted(head: bytes, rule: str, version: bytes) -> None:
    async with serving() as bound, RawClient.connect(bound) as client:
        await client.send(head % version + b"\r\n")
        status, body = await client.read_response()
    message = json.loads(body)["message"]
    assert (status, message.partition(" (")[0]) == (400, f"the request is not valid HTTP/1.1: {rule}")
    assert "secret" not in message


@pytest.mark.parametrize(
    ("head", "status", "rule"),
    [
        (b"GET / HTTP/1.1\r\nHost: a\r\n" + b"X: secret\r\n" * 96, 431, "a request may have at most 96 headers"),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: %b\r\n" % (b"x" * 16385), 431, "a header may have at most 16384 bytes"),
        (b"GET /%b HTTP/1.1\r\nHost: a\r\n" % (b"x" * 8191), 414, "a request line may have at most 8190 bytes"),
    ],
)
async def test_a_head_over_a_limit_is_rejected_and_logged_with_the_limit(
    head: bytes, status: int, rule: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with serving() as bound, RawClient.connect(bound) as client:
        await client.send(head + b"\r\n")
        answered, body = await client.read_response()
    assert (answered, json.loads(body)["message"]) == (status, rule)
    assert f"invalid HTTP request: {rule}" in caplog.messages


async def test_a_large_request_is_served_by_aiohttp() -> None:
    message = {**SEND["message"], "parts": [{"text": "x" * MAX_PLAIN_BYTES}]}
    async with serving() as bound:
        [(status, headers, _)] = await exchange(bound, request("POST", "/", rpc("SendMessage", {"message": message})))
    assert (status, "Server" in headers) == (200, True)


async def test_a_plain_call_is_canceled_when_its_client_disconnects() -> None:
    service = FakeService(asyncio.Event())
    async with serving(service, timeouts=HttpTimeouts(half_closed=0.0, check_interval=0.01)) as bound:
        async with RawClient.connect(bound) as client:
            await client.send(CALLS[2])
            await service.waiting.wait()
        await service.abandoned.wait()


async def test_a_call_in_flight_is_finished_when_the_server_stops() -> None:
    answer = asyncio.Event()
    service = FakeService(answer)
    async with asyncio.timeout(30):
        async with serving(service, grace=20.0) as bound:
            client = await asyncio.open_connection(bound.host, bound.port)
            idle = await asyncio.open_connection(bound.host, bound.port)
            client[1].write(CALLS[2])
            await service.waiting.wait()
            asyncio.get_running_loop().call_later(0.05, answer.set)
        assert (await client[0].read()).startswith(b"HTTP/1.1 200 OK\r\n")
        assert await idle[0].read() == b""
        client[1].close()
        idle[1].close()


async def test_a_call_that_takes_longer_than_the_grace_period_is_canceled() -> None:
    service = FakeService(asyncio.Event())
    async with asyncio.timeout(30):
        async with serving(service, grace=0.05) as bound:
            reader, writer = await asyncio.open_connection(bound.host, bound.port)
            writer.write(CALLS[2])
            await service.waiting.wait()
        await service.abandoned.wait()
        assert b'"reason":"UNAVAILABLE"' in await reader.read()
        writer.close()


def test_the_parser_takes_complete_requests_only() -> None:
    sent = request("POST", "/a?b=c", {"x": 1})
    assert [parse_plain(sent[:size], None) for size in range(len(sent))] == [None] * len(sent)
    taken = parse_plain(sent, None)
    assert taken is not None
    assert (taken.method, taken.path, taken.query_string, taken.body) == ("POST", "/a", "b=c", b'{"x": 1}')
    assert (taken.query["b"], taken.headers["a2a-version"], taken.can_read_body) == ("c", "1.0", True)


@pytest.mark.parametrize(
    "header",
    [
        b"Connection: close",
        b"Connection: keep-alive\r\nConnection: close",
        b"Content-Encoding: gzip",
        b"Expect: 100-continue",
        b"Origin: http://x",
        b"X-Request-ID: 1",
        b"Transfer-Encoding: chunked",
        b"Host: y",
        b"Content-Length: 0\r\nContent-Length: 0",
        b"Content-Length: +0",
        b"Content-Length: 20000",
        b"Content-Length: " + b"1" * 5000,
        b"X: 1\r\n 2",
        b"X : 1",
        b"X: \0",
        b"X: 1\n",
    ],
)
def test_a_request_with_a_special_or_ambiguous_header_is_not_plain(header: bytes) -> None:
    with pytest.raises(HandOver):
        parse_plain(b"GET / HTTP/1.1\r\nHost: x\r\n%b\r\n\r\n" % header, None)


def test_a_second_request_in_the_same_bytes_is_not_plain() -> None:
    sent = request("POST", "/a?b=c", {"x": 1})
    with pytest.raises(HandOver):
        parse_plain(sent + sent[:1], None)


def test_lines_that_end_without_a_carriage_return_are_not_plain() -> None:
    with pytest.raises(HandOver):
        parse_plain(b"GET / HTTP/1.1\nHost: x\n\n", None)


def test_keep_alive_is_no_special_header() -> None:
    assert parse_plain(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Keep-Alive\r\n\r\n", None) is not None


def test_a_response_has_its_headers_length_and_date() -> None:
    encoded = encode_response(Response(404, {"A": "b"}, b"body"))
    assert re.fullmatch(
        rb"HTTP/1.1 404 Not Found\r\nA: b\r\nX-Content-Type-Options: nosniff\r\nContent-Length: 4\r\n"
        rb"Date: \w{3}, [^\r]* GMT\r\n\r\nbody",
        encoded,
    )


def test_a_header_with_a_line_break_is_not_sent() -> None:
    with pytest.raises(ValueError, match="line break"):
        encode_response(Response(200, {"A": "b\r\nSet-Cookie: c"}, b""))


def test_the_limits_of_plain_requests_are_below_those_of_all_requests() -> None:
    assert plain.MAX_PLAIN_TARGET_BYTES < plain.MAX_REQUEST_LINE_BYTES
    assert plain.MAX_PLAIN_HEADERS < plain.MAX_HEADERS
    assert plain.MAX_PLAIN_BYTES <= plain.MAX_HEADER_BYTES
