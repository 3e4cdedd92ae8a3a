"""HTTP requests: headers, what is read as JSON, the limit, and how the elements of a stream are framed."""

from __future__ import annotations

import asyncio
import gzip
import io
import json
import zlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from multidict import CIMultiDict
from tests.bindings.fake_service import RESOURCE, TASK, FakeService, over_http

from dragoman.bindings.http import request as http_request
from dragoman.bindings.http.connections import HttpConnections, HttpHandler
from dragoman.bindings.options import ServerOptions
from dragoman.bindings.stream_registry import StreamRegistry
from dragoman.core.errors import (
    A2AError,
    ContentTypeNotSupported,
    InvalidRequest,
    ParseError,
    PayloadTooLarge,
    RateLimited,
    TaskNotFound,
)
from dragoman.core.task.log import Event
from dragoman.runtime.feeds import EventStream
from dragoman.wire.errors import ContentCodingNotSupported
from dragoman.wire.json.request import AmbiguousJson
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

SENT = pb.SendMessageResponse(task=TASK)
V1_SEND = {"message": {"messageId": "m1", "role": "ROLE_USER", "parts": [{"text": "hello"}]}}


# Requests ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("content_type", ["text/plain", "application/octet-stream"])
async def test_without_a_body_the_content_type_is_ignored(content_type: str) -> None:
    async with (
        over_http(FakeService(TASK)) as client,
        client.post("/tasks/t1:cancel", headers={"Content-Type": content_type}) as answer,
    ):
        assert answer.status == 200


@pytest.mark.parametrize(
    "content_type", ["application/json", "application/json; charset=utf-8", "application/a2a+json", ""]
)
async def test_every_json_content_type_is_accepted(content_type: str) -> None:
    headers = {"Content-Type": content_type} if content_type else {}
    skip = () if content_type else ("Content-Type",)
    async with over_http(FakeService(SENT)) as client:
        body = b'{"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "x"}]}}'
        async with client.post("/message:send", data=body, headers=headers, skip_auto_headers=skip) as answer:
            assert answer.status == 200


@pytest.mark.parametrize(("path", "status"), [("/message:send", 400), ("/v1/message:send", 415)])
async def test_other_content_types_are_rejected(path: str, status: int) -> None:
    service = FakeService(SENT)
    async with (
        over_http(service) as client,
        client.post(path, data=b"{}", headers={"Content-Type": "text/plain"}) as answer,
    ):
        assert answer.status == status
        assert (await answer.json())["error"]["details"][0]["reason"] == "CONTENT_TYPE_NOT_SUPPORTED"
    assert service.received == []


async def test_the_body_of_a_get_is_ignored() -> None:
    async with (
        over_http(FakeService(TASK)) as client,
        client.get("/tasks/t1", data=b"x", headers={"Content-Type": "text/plain"}) as answer,
    ):
        assert answer.status == 200


async def test_a_body_over_the_limit_is_rejected_before_and_while_it_is_received() -> None:
    async def chunks() -> Any:
        for _ in range(64):
            yield b" " * 65536

    service = FakeService(SENT)
    async with over_http(service, message_bytes=3000) as client:
        for data in (io.BytesIO(b" " * 2_000_000), chunks()):
            headers = {"Content-Type": "application/json"}
            async with client.post("/message:send", data=data, headers=headers) as answer:
                assert answer.status == 413
                error = (await answer.json())["error"]
                assert (error["status"], error["details"][0]["reason"]) == ("RESOURCE_EXHAUSTED", "PAYLOAD_TOO_LARGE")
                assert "at most 1052576 bytes" in error["message"]
    assert service.received == []


async def test_expect_100_continue_is_answered() -> None:
    async with (
        over_http(FakeService(SENT)) as client,
        client.post("/message:send", json=V1_SEND, expect100=True) as answer,
    ):
        assert answer.status == 200


@pytest.mark.parametrize(("message_bytes", "body_bytes"), [(0, 1_048_576), (3000, 1_052_576), (1_048_576, 2_446_677)])
def test_the_limit_of_a_body_has_room_for_base64_and_the_envelope(message_bytes: int, body_bytes: int) -> None:
    assert http_request.max_body_bytes(message_bytes) == body_bytes


async def served(handle: HttpHandler, method: str = "POST", **request: Any) -> bytes:
    """The body of the response to one request, on a connection of our own server."""
    connections = HttpConnections(handle, ServerOptions(connections=1, bodies=2**24))
    listener = await asyncio.get_running_loop().create_server(connections, "127.0.0.1", 0)
    host, port = listener.sockets[0].getsockname()
    try:
        async with (
            aiohttp.ClientSession() as client,
            client.request(method, f"http://{host}:{port}/", **request) as response,
        ):
            return await response.read()
    finally:
        listener.close()
        await connections.shutdown()


async def read(message_bytes: int = 0, **request: Any) -> object:
    """What a request's body is read as: a value, or an error."""
    read: list[object] = []

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        try:
            read.append(await http_request.read_json(request, message_bytes))
        except A2AError as error:
            read.append(error)
        return web.Response()

    await served(handle, **request)
    return read[0]


@pytest.mark.parametrize(
    ("request_", "value"),
    [
        ({"data": b'{"a": [1]}'}, {"a": [1]}),
        ({"data": b"5", "headers": {"Content-Type": "Application/Vnd.Api+JSON ; charset=utf-8"}}, 5),
        ({"data": b""}, None),
        ({"method": "DELETE", "data": b"{}"}, None),
        ({"method": "GET", "data": b"not JSON"}, None),
    ],
)
async def test_a_body_is_read_as_json_and_no_body_as_none(request_: dict[str, Any], value: object) -> None:
    assert await read(**{"headers": {"Content-Type": "application/json"}, **request_}) == value


@pytest.mark.parametrize("content_type", ["text/json", "application/jsonp", "application/x json", "json"])
async def test_an_error_about_the_content_type_names_those_accepted(content_type: str) -> None:
    error = await read(data=b"{}", headers={"Content-Type": content_type})
    assert isinstance(error, ContentTypeNotSupported)
    assert f'"{content_type}" is not supported' in error.message
    assert error.metadata == {"field": "Content-Type", "accepted": "application/json, application/a2a+json"}


@pytest.mark.parametrize(
    ("body", "headers", "error"),
    [
        (b"{", {}, ParseError),
        (b'{"a": 1, "a": 2}', {}, AmbiguousJson),
        (b"not gzip", {"Content-Encoding": "gzip"}, InvalidRequest),
    ],
)
async def test_an_unreadable_body_is_an_error(body: bytes, headers: dict[str, str], error: type[A2AError]) -> None:
    assert type(await read(data=body, headers={"Content-Type": "application/json", **headers})) is error


def raw_deflate(data: bytes) -> bytes:
    compressor = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return compressor.compress(data) + compressor.flush()


def chunked(data: bytes, size: int) -> AsyncIterator[bytes]:
    async def chunks() -> AsyncIterator[bytes]:
        for start in range(0, len(data), size):
            yield data[start : start + size]

    return chunks()


@pytest.mark.parametrize("is_chunked", [False, True])
@pytest.mark.parametrize(
    ("coding", "encode"),
    [
        *(("gzip", gzip.compress), ("X-GZip", gzip.compress), ("gzip, identity", gzip.compress)),
        *(("deflate", zlib.compress), ("deflate", raw_deflate), ("identity", bytes), ("", bytes)),
    ],
)
async def test_a_content_coding_is_decoded(coding: str, encode: Callable[[bytes], bytes], *, is_chunked: bool) -> None:
    text = b"[" + b"12345, " * 10_000 + b"0]"
    data = chunked(encode(text), 100) if is_chunked else encode(text)
    headers = {"Content-Type": "application/json", "Content-Encoding": coding}
    assert await read(data=data, headers=headers) == json.loads(text)


@pytest.mark.parametrize("coding", ["br", "zstd", "compress", "aws-chunked", "gzip, gzip", "deflate, br"])
async def test_another_coding_is_refused_with_those_that_are_decoded(coding: str) -> None:
    error = await read(data=b"{}", headers={"Content-Type": "application/json", "Content-Encoding": coding})
    assert isinstance(error, ContentCodingNotSupported)
    assert f'Content-Encoding: "{coding}" is not supported' in error.message
    assert http_request.error_headers(error) == {"Accept-Encoding": "gzip, deflate"}


@pytest.mark.parametrize("path", ["/message:send", "/v1/message:send", "/", f"/{RESOURCE}/message:send"])
async def test_a_refused_coding_is_415_in_every_dialect(path: str) -> None:
    async with over_http(FakeService(SENT)) as client:
        body, headers = b"{}", {"Content-Type": "application/json", "Content-Encoding": "br"}
        async with client.post(path, data=body, headers=headers) as answer:
            assert (answer.status, answer.headers["Accept-Encoding"]) == (415, "gzip, deflate")
            assert "Content-Encoding" in str((await answer.json())["error"])


@pytest.mark.parametrize("is_chunked", [False, True])
@pytest.mark.parametrize(
    ("data", "rule"),
    [
        (gzip.compress(b"[1]", mtime=0)[:-4], "the body ends before its gzip does"),
        (gzip.compress(b"[1]", mtime=0) + b"x", "the body goes on after the end of its gzip"),
        (b"[1]", "the body is not valid gzip: "),
    ],
)
async def test_a_damaged_coding_is_an_error(data: bytes, rule: str, *, is_chunked: bool) -> None:
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    error = await read(data=chunked(data, 2) if is_chunked else data, headers=headers)
    assert isinstance(error, InvalidRequest)
    assert error.message.startswith(rule)


@pytest.mark.parametrize("is_chunked", [False, True])
async def test_a_body_at_the_limit_is_read_and_one_byte_more_is_not(is_chunked: bool) -> None:
    async def body(size: int) -> AsyncIterator[bytes]:
        yield b" " * (size - 1)
        yield b"7"

    async def read_size(size: int) -> object:
        data = body(size) if is_chunked else io.BytesIO(b" " * (size - 1) + b"7")
        return await read(3, data=data, headers={"Content-Type": "application/json"})

    limit = http_request.max_body_bytes(3)
    assert await read_size(limit) == 7
    error = await read_size(limit + 1)
    assert isinstance(error, PayloadTooLarge)
    assert error.message == f"body: at most {limit} bytes are accepted"


# Streams ----------------------------------------------------------------------------------------------------------


async def streamed(framing: http_request.Framing, *batches: list[int] | Exception) -> bytes:
    """The response for a stream of these batches of events, given by number."""

    async def feed() -> EventStream:
        for batch in batches:
            if isinstance(batch, Exception):
                raise batch
            yield [Event(number, b"") for number in batch]

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        try:
            return await http_request.respond_stream(
                request,
                feed(),
                framing=framing,
                encode_event=lambda event: b"%d" % event.sequence,
                encode_error=lambda error: str(error).encode(),
                stream_registry=StreamRegistry(),
                keepalive=60,
            )
        except TaskNotFound as error:
            return web.Response(text=f"raised: {error.message}")

    return await served(handle)


@pytest.mark.parametrize(
    ("batches", "text"),
    [
        ((), b"[]"),
        (([1],), b"[1]"),
        (([1, 2], [3]), b"[1,\n2,\n3]"),
        (([1], ValueError("x")), b"[1,\nx]"),
    ],
)
async def test_an_array_is_valid_json_however_its_events_are_batched(batches: Any, text: bytes) -> None:
    assert await streamed(http_request.JSON_ARRAY_FRAMING, *batches) == text


async def test_only_rest_names_the_event_of_an_error() -> None:
    """Some clients of JSON-RPC skip named events."""
    batches: tuple[Any, ...] = ([1, 2], ValueError("x"))
    assert await streamed(http_request.SSE_FRAMING, *batches) == b"12event: error\ndata: x\n\n"
    assert await streamed(http_request.JSONRPC_SSE_FRAMING, *batches) == b"12data: x\n\n"
    assert await streamed(http_request.SSE_FRAMING) == b""


async def test_an_error_before_the_first_event_is_the_callers() -> None:
    assert await streamed(http_request.SSE_FRAMING, TaskNotFound("gone")) == b"raised: gone"


# Headers --------------------------------------------------------------------------------------------------------


def test_the_version_may_be_in_headers_and_in_the_query() -> None:
    headers = CIMultiDict([("A2A-Version", "0.3"), ("a2a-version", "1.0")])
    request = make_mocked_request("GET", "/tasks?A2A-Version=1.1&x=y", headers=headers)
    assert list(http_request.named_versions(request)) == ["0.3", "1.0", "1.1"]
    assert list(http_request.named_versions(make_mocked_request("GET", "/tasks"))) == []


@pytest.mark.parametrize(("sent", "key"), [("k", "k"), ('"k"', "k"), (' "k" ', "k"), ("", "")])
def test_the_idempotency_key_may_be_quoted(sent: str, key: str) -> None:
    assert http_request.idempotency_key({"Idempotency-Key": sent}) == key


def test_a_delay_is_rounded_up_to_whole_seconds() -> None:
    assert http_request.error_headers(RateLimited("l: too many", limit="l", maximum=1, retry_after=1.2)) == {
        "Retry-After": "2"
    }
    assert http_request.error_headers(TaskNotFound()) == {}


@pytest.mark.parametrize(
    ("accept", "only_json"),
    [
        ("application/json", True),
        ("Application/JSON;q=0.5", True),
        ("application/json, text/event-stream", False),
        ("application/json, Text/Event-Stream; q=0.1", False),
        ("application/json, text/event-stream;q=0", True),
        ("application/json-seq", False),
        ("*/*", False),
        ("", False),
    ],
)
def test_a_client_that_accepts_json_alone_reads_no_stream(accept: str, only_json: bool) -> None:
    request = make_mocked_request("POST", "/", headers=CIMultiDict({"Accept": accept}))
    assert http_request.accepts_only_json(request) is only_json


def test_several_accept_headers_are_one() -> None:
    headers = CIMultiDict([("Accept", "application/json"), ("accept", "text/event-stream")])
    request = make_mocked_request("POST", "/", headers=headers)
    assert http_request.accepted(request) == {"application/json", "text/event-stream"}
    assert not http_request.accepts_only_json(request)


@pytest.mark.parametrize(
    ("accept", "only_streams"),
    [
        ("text/event-stream", True),
        ("Text/Event-Stream; q=1", True),
        ("application/json, text/event-stream", False),
        ("application/json;q=0.0, text/event-stream", True),
        ("*/*", False),
        ("", False),
    ],
)
def test_a_client_that_accepts_streams_alone_reads_no_json(accept: str, only_streams: bool) -> None:
    request = make_mocked_request("POST", "/", headers=CIMultiDict({"Accept": accept}))
    assert http_request.accepts_only_streams(request) is only_streams
