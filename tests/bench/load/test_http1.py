"""The HTTP client of the load, on a real server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from bench.load.codecs import RestCodec
from bench.load.connections import HttpConnection, WrongResponse
from tests.load.requests import WireRequest

from bench.load import http1

MARKER = b'"artifactUpdate"'


async def echo(request: web.Request) -> web.Response:
    return web.Response(body=await request.read())


async def refuse(_: web.Request) -> web.Response:
    return web.json_response({"error": "no"}, status=404)


async def stream(request: web.Request) -> web.StreamResponse:
    """Streams the number of events in the body, each in its own chunk."""
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    for _ in range(int(await request.read())):
        await response.write(b"data: {" + MARKER + b": 1}\n\n")
        await asyncio.sleep(0)
    await response.write_eof()
    return response


async def hang_up(request: web.Request) -> web.Response:
    assert request.transport is not None
    request.transport.close()
    return web.Response()


@asynccontextmanager
async def target() -> AsyncIterator[str]:
    app = web.Application()
    app.add_routes(
        [web.post("/echo", echo), web.post("/stream", stream), web.get("/gone", refuse), web.post("/hang-up", hang_up)]
    )
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def connected() -> AsyncIterator[HttpConnection]:
    async with target() as where:
        connection = await http1.Connection.open(where)
        try:
            yield HttpConnection(connection, where, RestCodec())
        finally:
            connection.close()


async def test_bodies_of_any_size_are_complete() -> None:
    async with connected() as connection:
        for size in (0, 1, 300_000):
            assert await connection.call(WireRequest("/echo", b"x" * size)) == b"x" * size


async def test_any_status_but_200_is_an_error_with_the_response() -> None:
    async with connected() as connection:
        with pytest.raises(WrongResponse, match="404"):
            await connection.call(WireRequest("/gone", method="GET"))
        assert await connection.call(WireRequest("/echo", b"still")) == b"still"


async def test_events_are_counted_as_they_arrive() -> None:
    async with connected() as connection:
        received: list[int] = []
        await connection.stream(WireRequest("/stream", b"100"), received.append)
        assert sum(received) == 100
        assert len(received) > 1
        assert await connection.call(WireRequest("/echo", b"still")) == b"still"


async def test_a_stream_without_events_ends() -> None:
    async with connected() as connection:
        received: list[int] = []
        await connection.stream(WireRequest("/stream", b"0"), received.append)
        assert sum(received) == 0


async def test_a_response_instead_of_a_stream_is_an_error() -> None:
    async with connected() as connection:
        with pytest.raises(WrongResponse, match="404"):
            await connection.stream(WireRequest("/gone", method="GET"), lambda count: None)


async def test_a_stream_instead_of_a_response_is_an_error() -> None:
    async with connected() as connection:
        with pytest.raises(WrongResponse, match="a stream"):
            await connection.call(WireRequest("/stream", b"1"))


async def test_a_closed_connection_fails_the_waiting_call() -> None:
    async with connected() as connection:
        with pytest.raises(ConnectionError):
            await connection.call(WireRequest("/hang-up", b"x"))
        with pytest.raises(ConnectionError):
            await connection.call(WireRequest("/echo", b"x"))


@pytest.mark.parametrize("size", [1, 3, 10, 1000])
def test_a_marker_is_counted_once_for_any_segmentation(size: int) -> None:
    async def run() -> int:
        connection = http1.Connection()
        connection.connection_made(Sink())
        received: list[int] = []
        following = asyncio.create_task(connection.stream(b"", MARKER, received.append))
        await asyncio.sleep(0)
        head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        connection.data_received(head)
        event = b"data: {" + MARKER + b": 1}\n\n"
        body = b"".join(b"%x\r\n%s\r\n" % (len(event), event) for _ in range(20)) + b"0\r\n\r\n"
        for at in range(0, len(body), size):
            connection.data_received(body[at : at + size])
        assert await following == head
        return sum(received)

    assert asyncio.run(run()) == 20


class Sink(asyncio.Transport):
    def write(self, data: bytes | bytearray | memoryview) -> None:
        del data
