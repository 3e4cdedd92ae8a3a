"""The HTTP client of the load, on a real server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from bench.asking import Rest, Wire
from bench.lines import HttpLine, Wrong

from bench import http1

MARKER = b'"artifactUpdate"'


async def echo(request: web.Request) -> web.Response:
    return web.Response(body=await request.read())


async def refuse(_: web.Request) -> web.Response:
    return web.json_response({"error": "no"}, status=404)


async def stream(request: web.Request) -> web.StreamResponse:
    """As many events as the body says, each a chunk of its own."""
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
async def line() -> AsyncIterator[HttpLine]:
    async with target() as where:
        connection = await http1.Connection.open(where)
        try:
            yield HttpLine(connection, where, Rest())
        finally:
            connection.close()


async def test_bodies_come_whole_one_after_the_other() -> None:
    async with line() as http_line:
        for size in (0, 1, 300_000):
            assert await http_line.ask(Wire("/echo", b"x" * size)) == b"x" * size


async def test_any_status_but_200_is_wrong_and_says_what_was_answered() -> None:
    async with line() as http_line:
        with pytest.raises(Wrong, match="404"):
            await http_line.ask(Wire("/gone", method="GET"))
        assert await http_line.ask(Wire("/echo", b"still")) == b"still"


async def test_events_are_counted_as_they_come() -> None:
    async with line() as http_line:
        got: list[int] = []
        await http_line.follow(Wire("/stream", b"100"), got.append)
        assert sum(got) == 100
        assert len(got) > 1
        assert await http_line.ask(Wire("/echo", b"still")) == b"still"


async def test_a_stream_without_events_ends_too() -> None:
    async with line() as http_line:
        got: list[int] = []
        await http_line.follow(Wire("/stream", b"0"), got.append)
        assert sum(got) == 0


async def test_an_answer_instead_of_a_stream_is_wrong() -> None:
    async with line() as http_line:
        with pytest.raises(Wrong, match="404"):
            await http_line.follow(Wire("/gone", method="GET"), lambda count: None)


async def test_a_stream_instead_of_an_answer_is_wrong() -> None:
    async with line() as http_line:
        with pytest.raises(Wrong, match="a stream"):
            await http_line.ask(Wire("/stream", b"1"))


async def test_who_waits_hears_that_the_server_hung_up() -> None:
    async with line() as http_line:
        with pytest.raises(ConnectionError):
            await http_line.ask(Wire("/hang-up", b"x"))
        with pytest.raises(ConnectionError):
            await http_line.ask(Wire("/echo", b"x"))


@pytest.mark.parametrize("size", [1, 3, 10, 1000])
def test_a_marker_is_counted_once_however_its_bytes_arrive(size: int) -> None:
    async def run() -> int:
        connection = http1.Connection()
        connection.connection_made(Sink())
        got: list[int] = []
        following = asyncio.create_task(connection.follow(b"", MARKER, got.append))
        await asyncio.sleep(0)
        head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        connection.data_received(head)
        event = b"data: {" + MARKER + b": 1}\n\n"
        body = b"".join(b"%x\r\n%s\r\n" % (len(event), event) for _ in range(20)) + b"0\r\n\r\n"
        for at in range(0, len(body), size):
            connection.data_received(body[at : at + size])
        assert await following == head
        return sum(got)

    assert asyncio.run(run()) == 20


class Sink(asyncio.Transport):
    def write(self, data: bytes | bytearray | memoryview) -> None:
        del data
