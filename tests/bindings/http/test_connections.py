"""Limits for misbehaving HTTP connections, over raw sockets; other connections are not affected."""

from __future__ import annotations

import asyncio
import gzip
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any
from unittest.mock import Mock

import pytest
from aiohttp import web
from tests.bindings.fake_service import FakeService, chunk_event, make_cards, status_event, task_event
from tests.bindings.raw_client import RawClient
from tests.eventually import eventually

from dragoman.bindings.http import connections
from dragoman.bindings.http import server as http
from dragoman.bindings.http.connections import HttpConnections
from dragoman.bindings.options import BoundAddress, HttpTimeouts, ServerOptions
from dragoman.core.task import states
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

BODY = b'{"message":{"messageId":"1","role":"ROLE_USER","parts":[{"text":"hello"}]}}'


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@asynccontextmanager
async def handling(
    handler: connections.HttpHandler, *, limit: int = 100, timeouts: HttpTimeouts | None = None
) -> AsyncIterator[tuple[HttpConnections, Clock, BoundAddress]]:
    """Serves `handler` with a clock that only the test advances."""
    clock = Clock()
    options = ServerOptions(connections=limit, bodies=1 << 20, timeouts=timeouts or HttpTimeouts())
    server = HttpConnections(handler, options, clock=clock)
    listening = await asyncio.get_running_loop().create_server(server, "127.0.0.1", 0)
    host, port = listening.sockets[0].getsockname()
    try:
        yield server, clock, BoundAddress(host, port)
    finally:
        listening.close()
        await server.shutdown(0.1)


async def respond_ok(_: web.BaseRequest) -> web.StreamResponse:
    return web.Response(text="well")


@asynccontextmanager
async def serving(service: FakeService | None = None, **options: Any) -> AsyncIterator[BoundAddress]:
    async with http.serve_http(
        (service or FakeService(pb.SendMessageResponse())).operations, make_cards(), ServerOptions(**options)
    ) as at:
        yield at


# Slow heads and idle connections ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "partial_head", [b"", b"GET /", b"GET / HTTP/1.1\r\n", b"GET / HTTP/1.1\r\nHost: localhost\r\nX-More: "]
)
async def test_an_incomplete_head_times_out(partial_head: bytes) -> None:
    async with (
        handling(respond_ok) as (server, clock, bound),
        RawClient.connect(bound) as slow,
        RawClient.connect(bound) as other,
    ):
        assert (await other.get())[0] == 200
        await slow.send(partial_head)
        for _ in range(19):
            clock.now += 1
            await slow.send(b"x" if partial_head else b"")
            server.check_all()
        assert (await other.get())[0] == 200  # other connections are not affected
        clock.now += 2
        server.check_all()
        assert (await slow.read_rest()).startswith(b"HTTP/1.1 408 ")
        assert (await other.get())[0] == 200


async def test_the_head_of_a_later_request_has_the_same_timeout() -> None:
    async with handling(respond_ok) as (server, clock, bound), RawClient.connect(bound) as peer:
        assert (await peer.get())[0] == 200
        clock.now += 600  # longer than the head timeout, but between two requests
        server.check_all()
        assert (await peer.get())[0] == 200
        await peer.send(b"GET / HT")
        await asyncio.sleep(0)
        async with RawClient.connect(bound) as other:  # its response shows that the server has read the bytes above
            assert (await other.get())[0] == 200
        clock.now += 21
        server.check_all()
        assert (await peer.read_rest()).startswith(b"HTTP/1.1 408 ")


async def test_an_idle_connection_is_closed_after_the_timeout() -> None:
    async with (
        handling(respond_ok, timeouts=HttpTimeouts(idle=0.05)) as (_, _, bound),
        RawClient.connect(bound) as peer,
    ):
        assert (await peer.get())[0] == 200
        assert await peer.read_rest() == b""


async def test_a_slow_response_does_not_time_out() -> None:
    started, go = asyncio.Event(), asyncio.Event()

    async def slow(_: web.BaseRequest) -> web.StreamResponse:
        started.set()
        await go.wait()
        return web.Response(text="well")

    async with handling(slow) as (server, clock, bound), RawClient.connect(bound) as peer:
        await peer.send(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await started.wait()
        clock.now += 100_000
        server.check_all()
        go.set()
        assert (await peer.read_response())[0] == 200


# Slow and large bodies -------------------------------------------------------------------------------------


async def test_a_slow_body_is_rejected_in_the_dialect_of_the_call() -> None:
    timeouts = HttpTimeouts(body=0.05, rate=1000, check_interval=0.01)
    async with serving(timeouts=timeouts) as bound, RawClient.connect(bound) as peer:
        await peer.send(b"POST /message:send HTTP/1.1\r\nHost: localhost\r\nContent-Length: 500\r\n\r\n{")
        status, body = await peer.read_response()
        assert status == 408
        assert b"it arrives too slowly; the limit is 0.05 s plus 1 s for each 1000 bytes received" in body
        await peer.read_rest()  # the connection is closed without waiting for the rest of the body


async def test_the_time_limit_of_a_body_grows_with_its_size() -> None:
    reading = asyncio.Event()

    async def echo(request: web.BaseRequest) -> web.StreamResponse:
        reading.set()
        return web.Response(text=str(len(await request.content.read())))

    async with handling(echo) as (server, clock, bound), RawClient.connect(bound) as peer:
        await peer.send(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 200000\r\n\r\n")
        await reading.wait()
        async with RawClient.connect(bound) as other:
            for _ in range(20):
                await peer.send(b"x" * 10_000)
                assert (await other.get())[0] == 200  # the server has read the bytes above
                clock.now += 2
                server.check_all()
        assert await peer.read_response() == (200, b"200000")


async def test_a_slow_body_that_the_handler_ignores_does_not_fail_the_request() -> None:
    started, go = asyncio.Event(), asyncio.Event()

    async def ignore_body(_: web.BaseRequest) -> web.StreamResponse:
        started.set()
        await go.wait()
        return web.Response(text="well")

    async with handling(ignore_body) as (server, clock, bound), RawClient.connect(bound) as peer:
        await peer.send(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 200\r\n\r\n")

        def has_started() -> bool:
            server.check_all()  # a request that is not complete by then is served by aiohttp
            return started.is_set()

        await eventually(has_started)
        clock.now += 31
        server.check_all()
        go.set()
        assert (await peer.read_response())[0] == 200
        await peer.read_rest()


async def test_all_bodies_share_a_limit_that_disconnects_release() -> None:
    head = b"POST /message:send HTTP/1.1\r\nHost: localhost\r\nA2A-Version: 1.0\r\nContent-Length: %d\r\n\r\n"
    async with serving(bodies=100_000) as bound, AsyncExitStack() as stack:
        holders = [await stack.enter_async_context(RawClient.connect(bound)) for _ in range(9)]
        for holder in holders:
            await holder.send(head % 20_000 + b" " * 12_000)
        reading = [asyncio.create_task(holder.read_response()) for holder in holders]  # the last to be read is refused
        (refused, *_), waiting = await asyncio.wait(reading, return_when=asyncio.FIRST_COMPLETED)
        for reader in waiting:
            reader.cancel()
        status, body = await refused
        assert status == 503
        assert b"bytes of request bodies are being received, at most 100000 are allowed; try again" in body
        async with RawClient.connect(bound) as peer:
            assert (await peer.get())[0] == 200
            await peer.send(head % len(BODY) + BODY)  # a body received in one read does not count
            assert (await peer.read_response())[0] == 200
        for holder in holders:
            holder.writer.close()
            await holder.writer.wait_closed()
        status = 503
        while status == 503:
            async with RawClient.connect(bound) as peer:
                await peer.send(head % (20_000 + len(BODY)) + b" " * 20_000)
                await asyncio.sleep(0)
                await peer.send(BODY)
                status, _ = await peer.read_response()
        assert status == 200


async def test_a_body_larger_than_the_limit_after_decompression_is_rejected() -> None:
    bomb = gzip.compress(b" " * 50_000_000)
    async with serving(message_bytes=65536) as bound, RawClient.connect(bound) as peer:
        head = b"POST /message:send HTTP/1.1\r\nHost: localhost\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n"
        await peer.send(head % len(bomb) + bomb)
        assert (await peer.read_response())[0] == 413


@pytest.mark.parametrize("path", [b"/message:send", b"/"])
@pytest.mark.parametrize("announced", [10, 1000])
async def test_the_sender_of_a_bomb_reads_the_error_while_it_still_sends(path: bytes, announced: int) -> None:
    """`announced`: how many bombs it announces; their length is within the limit for bodies, or over it."""
    bomb = gzip.compress(b" " * 50_000_000)
    head = b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n"
    async with serving(message_bytes=65536) as bound, RawClient.connect(bound) as peer:
        await peer.send(head % (path, announced * len(bomb)) + bomb)
        status, content = await peer.read_response()
        assert status == 413
        assert b"at most" in content
        for _ in range(announced // 10):  # a reset would end these
            await peer.send(bomb)


@pytest.mark.parametrize(
    "head",
    [
        b"GET /" + b"x" * 9_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Long: " + b"x" * 17_000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X-Many: x\r\n" * 200 + b"\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Endless: " + b"x" * 1_000_000,
    ],
)
async def test_a_head_that_is_too_large_is_rejected(head: bytes) -> None:
    async with serving() as bound, RawClient.connect(bound) as peer, RawClient.connect(bound) as other:
        peer.writer.write(head)
        received = await peer.read_rest()
        assert re.match(rb"HTTP/1\.[01] 4\d\d ", received) or not received  # unread bytes may reset the connection
        assert (await other.get())[0] == 200


@pytest.mark.parametrize("version", [b" HTTP/2.0", b" HTTP/0.9", b""])
async def test_a_request_of_another_version_of_http_is_rejected(version: bytes) -> None:
    async with serving() as bound, RawClient.connect(bound) as peer:
        peer.writer.write(b"GET /healthz%s\r\nHost: localhost\r\n\r\n" % version)
        assert re.match(rb"HTTP/[\d.]+ 400 ", await peer.read_rest())


async def test_a_token_of_fifteen_kilobytes_is_accepted() -> None:
    async with serving() as bound, RawClient.connect(bound) as peer:
        token = b"x" * 15_000
        await peer.send(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + token + b"\r\n\r\n")
        assert (await peer.read_response())[0] == 200


# WebSocket -------------------------------------------------------------------------------------------------

UPGRADE = (
    b"GET /ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


def frame(opcode: int, size: int) -> bytes:
    """Returns the head of a client frame (RFC 6455 §5.2), masked with zeros."""
    length = bytes((0x80 | size,)) if size < 126 else bytes((0x80 | 127,)) + size.to_bytes(8, "big")
    return bytes((0x80 | opcode,)) + length + bytes(4)


async def upgraded(bound: BoundAddress, stack: AsyncExitStack) -> RawClient:
    peer = await stack.enter_async_context(RawClient.connect(bound))
    await peer.send(UPGRADE)
    assert b" 101 " in await peer.reader.readuntil(b"\r\n\r\n")
    return peer


async def until_read(peer: RawClient) -> None:
    """Waits until the server has read everything sent before, by a ping."""
    await peer.send(frame(9, 0))
    assert (await peer.reader.readexactly(2))[0] == 0x8A


async def echo_sizes(request: web.BaseRequest) -> web.StreamResponse:
    socket = web.WebSocketResponse()
    await socket.prepare(request)
    connections.note_websocket_message(request)
    async for message in socket:
        connections.note_websocket_message(request)
        await socket.send_str(str(len(message.data)))
    return socket


async def test_a_slow_websocket_message_closes_its_connection() -> None:
    async with handling(echo_sizes) as (server, clock, bound), AsyncExitStack() as stack:
        slow, quiet = await upgraded(bound, stack), await upgraded(bound, stack)
        await slow.send(frame(1, 100_000) + b"x" * 1_000)
        await eventually(lambda: sum(each.unread_bytes for each in server.open_connections) > 1_000)
        for _ in range(29):
            clock.now += 1
            server.check_all()
        await until_read(quiet)  # pings are not counted as a message
        assert len(server.connections) == 2
        for _ in range(3):
            clock.now += 1
            server.check_all()
        assert await slow.read_rest() == b""
        for _ in range(1000):
            clock.now += 30
            await until_read(quiet)
            for _ in range(3):
                server.check_all()
        await quiet.send(frame(1, 5) + b"hello")
        assert await quiet.reader.readexactly(3) == b"\x81\x015"


async def test_over_the_total_limit_the_largest_websocket_message_is_dropped() -> None:
    async with handling(echo_sizes) as (server, _, bound), AsyncExitStack() as stack:
        peers = [await upgraded(bound, stack) for _ in range(4)]
        for size, peer in enumerate(peers, 2):
            await peer.send(frame(1, 1_000_000) + b"x" * 100_000 * size)
        async with RawClient.connect(bound) as other:
            await other.send(UPGRADE)
            await other.reader.readuntil(b"\r\n\r\n")
        await eventually(lambda: sum(each.unread_bytes for each in server.open_connections) > 1_400_000)
        server.check_all()
        assert await peers[-1].read_rest() == b""
        assert len(server.open_connections) == 3


# Clients that do not read ----------------------------------------------------------------------------------


async def test_a_client_that_reads_nothing_is_dropped_but_a_slow_one_is_not() -> None:
    async def endless(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b"x" * 65536)

    async with (
        handling(endless) as (server, clock, bound),
        RawClient.connect(bound) as stuck,
        RawClient.connect(bound) as slow,
    ):
        for peer in (stuck, slow):
            await peer.send(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            await peer.reader.readexactly(1)
        for _ in range(10):
            clock.now += 40
            # Enough that the server has to write more, whatever the socket buffers hold.
            await slow.reader.readexactly(8_000_000)
            server.check_all()
        assert len(server.connections) == 1
        await slow.reader.readexactly(1_000_000)
        slow.writer.close()
        assert len(await stuck.read_rest()) < 100_000_000


async def test_a_client_that_reads_in_bursts_is_not_dropped_though_every_check_finds_as_much_unsent() -> None:
    async with handling(respond_ok) as (server, clock, _):
        bursts, stuck = connections.PlainConnection(server), connections.PlainConnection(server)
        for connection in (bursts, stuck):
            connection.transport = Mock(get_write_buffer_size=lambda: 100_000)
        for _ in range(10):
            clock.now += 40
            for connection in (bursts, stuck):
                connection.check_client(clock.now)
            bursts.resume_writing()  # it has read; the server fills the buffer again
        assert not bursts.transport.abort.called
        assert stuck.transport.abort.called


# Too many connections --------------------------------------------------------------------------------------


async def test_a_new_connection_replaces_the_one_idle_longest() -> None:
    async with serving(connections=3) as bound, AsyncExitStack() as stack:
        peers = []
        for _ in range(3):
            peers.append(await stack.enter_async_context(RawClient.connect(bound)))
            assert (await peers[-1].get())[0] == 200
        assert (await peers[0].get())[0] == 200  # so the second is idle longest
        new = await stack.enter_async_context(RawClient.connect(bound))
        assert (await new.get())[0] == 200
        assert await peers[1].read_rest() == b""
        for peer in (peers[0], peers[2], new):
            assert (await peer.get())[0] == 200


async def test_over_the_limit_requests_are_rejected_but_health_is_served() -> None:
    go = asyncio.Event()
    service = FakeService(events=[task_event(), go, status_event(2, states.COMPLETED, ends=True)])
    subscribe = b"GET /tasks/t1:subscribe HTTP/1.1\r\nHost: localhost\r\nA2A-Version: 1.0\r\n\r\n"
    async with serving(service, connections=2, overflow_connections=2) as bound, AsyncExitStack() as stack:
        streams = []
        for _ in range(2):
            peer = await stack.enter_async_context(RawClient.connect(bound))
            await peer.send(subscribe)
            await peer.reader.readuntil(b"\r\n\r\n")
            streams.append(peer)
        for path in ("/healthz", "/readyz", "/health", "/ready"):
            async with RawClient.connect(bound) as probe:
                assert (await probe.get(path))[0] == 200
        async with RawClient.connect(bound) as caller:
            status, body = await caller.get("/tasks/t1")
            assert status == 503
            assert b"the server has reached its connection limit; try again later" in body
            assert await caller.read_rest() == b""  # the connection is closed
        await stack.enter_async_context(RawClient.connect(bound))
        go.set()
        for peer in streams:
            await peer.reader.readuntil(b"TASK_STATE_COMPLETED")
            peer.writer.close()
        service.answer = pb.Task(id="t1")
        status = 503
        while status == 503:  # until the server has noticed the disconnects
            async with RawClient.connect(bound) as caller:
                status, _ = await caller.get("/tasks/t1")
        assert status == 200


async def test_connections_beyond_the_overflow_are_closed_immediately() -> None:
    started = asyncio.Semaphore(0)

    async def busy(_: web.BaseRequest) -> web.StreamResponse:
        started.release()
        await asyncio.Event().wait()
        raise AssertionError

    async with handling(busy, limit=1) as (_, _, bound), AsyncExitStack() as stack:
        for _ in range(1 + ServerOptions().overflow_connections):
            peer = await stack.enter_async_context(RawClient.connect(bound))
            await peer.send(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            await started.acquire()
        async with RawClient.connect(bound) as late:
            assert await late.read_rest() == b""


async def test_many_silent_connections_do_not_block_others() -> None:
    async with serving(connections=20) as bound, AsyncExitStack() as stack:
        for _ in range(200):
            await stack.enter_async_context(RawClient.connect(bound))
        async with RawClient.connect(bound) as caller:
            assert (await caller.get())[0] == 200


async def test_a_stream_with_a_chunk_event_is_complete() -> None:
    service = FakeService(events=[task_event(), chunk_event(2), status_event(3, states.COMPLETED, ends=True)])
    async with serving(service) as bound, RawClient.connect(bound) as peer:
        await peer.send(b"GET /tasks/t1:subscribe HTTP/1.1\r\nHost: localhost\r\nA2A-Version: 1.0\r\n\r\n")
        await peer.reader.readuntil(b"TASK_STATE_COMPLETED")


async def test_an_idle_connection_keeps_no_body_of_its_last_response() -> None:
    sent: list[web.Response] = []

    async def respond(_: web.BaseRequest) -> web.StreamResponse:
        sent.append(web.Response(text="well"))
        return sent[-1]

    async with handling(respond) as (server, _, bound), RawClient.connect(bound) as client:
        assert await client.get() == (200, b"well")
        await eventually(lambda: sent[0].body is None, 3)
        assert len(server.idle_connections) == 1


# Clients that have closed their side -----------------------------------------------------------------------

GET_TASK = b"GET /tasks/t1 HTTP/1.1\r\nHost: localhost\r\nA2A-Version: 1.0\r\n"


@pytest.mark.parametrize(
    ("requests", "answers"),
    [
        (GET_TASK + b"\r\n", 1),
        (GET_TASK + b"Connection: close\r\n\r\n", 1),
        (2 * (GET_TASK + b"\r\n"), 2),
        (b"GET /tasks/t1 HTTP/1.0\r\nA2A-Version: 1.0\r\n\r\n", 1),
    ],
    ids=["plain", "by aiohttp", "pipelined", "HTTP 1.0"],
)
async def test_a_client_that_closes_its_side_reads_the_responses_to_its_requests(requests: bytes, answers: int) -> None:
    async with serving(FakeService(pb.Task(id="t1"))) as bound, RawClient.connect(bound) as peer:
        await peer.send(requests)
        peer.writer.write_eof()
        received = await peer.read_rest()
        assert (received.count(b" 200 OK"), received.count(b'{"id":"t1"}')) == (answers, answers)


async def test_a_client_that_closes_its_side_waits_for_a_response_and_for_the_next_request() -> None:
    answer = asyncio.Event()
    service = FakeService(answer)
    async with serving(service) as bound, RawClient.connect(bound) as peer:
        await peer.send(GET_TASK + b"\r\n")
        await service.waiting.wait()
        await peer.send(GET_TASK + b"\r\n")
        peer.writer.write_eof()
        async with RawClient.connect(bound) as other:
            assert (await other.get())[0] == 200  # the server has read the bytes above
        service.answer = pb.Task(id="t1")
        answer.set()
        assert (await peer.read_rest()).count(b'{"id":"t1"}') == 2


@pytest.mark.parametrize(
    "head", [b"GET /tasks/t1 HTTP/1.1\r\nHost: localhost", b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n{"]
)
async def test_a_client_that_closes_its_side_within_a_request_is_disconnected(head: bytes) -> None:
    async with serving() as bound, RawClient.connect(bound) as peer:
        await peer.send(head)
        peer.writer.write_eof()
        assert await peer.read_rest() == b""


async def test_a_call_of_a_client_that_has_gone_ends_after_a_while() -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def endless(_: web.BaseRequest) -> web.StreamResponse:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        raise AssertionError

    async with handling(endless) as (server, clock, bound), RawClient.connect(bound) as peer:
        await peer.send(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await begun.wait()
        peer.writer.write_eof()
        await eventually(lambda: any(each.eof_since for each in server.open_connections))
        clock.now += 9
        server.check_all()
        assert not ended.is_set()
        clock.now += 2
        server.check_all()
        assert await peer.read_rest() == b""
        await ended.wait()


# Requests that two servers could read differently ----------------------------------------------------------


@pytest.mark.parametrize(
    "host",
    [b"a b", b"a/b", b"user@a", b"a:b", b"[::1", b"a:80:80", b"a:65536", b"a:99999", b"a\tb", b'"a"', b"\xc3\xa4"],
)
@pytest.mark.parametrize("line", [b"GET /tasks/t1 HTTP/1.1", b"GET /healthz HTTP/1.1"])
async def test_an_invalid_host_is_refused(line: bytes, host: bytes) -> None:
    async with serving(FakeService(pb.Task(id="t1"))) as bound, RawClient.connect(bound) as peer:
        await peer.send(line + b"\r\nA2A-Version: 1.0\r\nHost: " + host + b"\r\n\r\n")
        status, body = await peer.read_response()
        assert status == 400
        assert b"Host: must be a name or an address" in body


@pytest.mark.parametrize(
    "host", [b"", b"a", b"a.b-c_d:8080", b"a:65535", b"[::1]:80", b"[::1]", b"127.0.0.1:", b"a%20b"]
)
async def test_a_valid_host_is_accepted(host: bytes) -> None:
    async with serving() as bound, RawClient.connect(bound) as peer:
        await peer.send(b"GET /healthz HTTP/1.1\r\nHost: " + host + b"\r\n\r\n")
        assert (await peer.read_response())[0] == 200


@pytest.mark.parametrize("coding", [b"gzip, chunked", b"identity, chunked", b"x,chunked"])
async def test_a_transfer_coding_besides_chunked_is_refused(coding: bytes) -> None:
    async with serving() as bound, RawClient.connect(bound) as peer:
        await peer.send(
            b"POST /message:send HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: " + coding + b"\r\n\r\n0\r\n\r\n"
        )
        status, body = await peer.read_response()
        assert (status, b"Transfer-Encoding: only chunked is supported" in body) == (501, True)


async def test_a_transfer_coding_of_http_1_0_is_refused_and_ends_the_connection() -> None:
    """A proxy before the server may read another end of the body (RFC 9112 §6.1)."""
    async with serving() as bound, RawClient.connect(bound) as peer:
        await peer.send(
            b"POST /message:send HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n"
            b"2\r\n{}\r\n0\r\n\r\nGET /healthz HTTP/1.1\r\nHost: a\r\n\r\n"
        )
        response = await peer.read_rest()
        assert response.startswith(b"HTTP/1.0 400 ")
        assert response.count(b"HTTP/1.0 400 ") == 1
        assert b"HTTP/1.1 200" not in response
        assert b"Transfer-Encoding: HTTP/1.0 has none; send HTTP/1.1 or Content-Length (RFC 9112" in response
