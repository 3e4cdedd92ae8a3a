"""Connections that do not behave, over raw sockets: slow, silent, too many, too much; and that others go on."""

from __future__ import annotations

import asyncio
import gzip
import re
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import grpc
import pytest
from aiohttp import web
from tests.bindings.fake_service import FakeService, chunk_event, make_cards, over_grpc, status_event, task_event

from dragoman.bindings.grpc import listener
from dragoman.bindings.http import connections
from dragoman.bindings.http import server as http
from dragoman.bindings.http.connections import HttpConnections
from dragoman.bindings.options import BoundAddress, HttpOptions, HttpTimeouts
from dragoman.core.task import states
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb
from dragoman_pb.lf.a2a.v1.a2a_pb2_grpc import A2AServiceStub

BODY = b'{"message":{"messageId":"1","role":"ROLE_USER","parts":[{"text":"hello"}]}}'


class Peer:
    """A client that does only what a test says."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    @asynccontextmanager
    async def at(cls, bound: BoundAddress) -> AsyncIterator[Peer]:
        reader, writer = await asyncio.open_connection(bound.host, bound.port)
        try:
            yield cls(reader, writer)
        finally:
            writer.close()

    async def say(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def rest(self) -> bytes:
        """All until the connection is closed, in whatever way."""
        found = b""
        try:
            while data := await self.reader.read(65536):
                found += data
        except ConnectionError:
            pass
        return found

    async def answer(self) -> tuple[int, bytes]:
        """The status and body of the next answer, whose length is told."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"(?i)content-length: (\d+)", head)
        return int(head.split()[1]), await self.reader.readexactly(int(length[1]) if length else 0)

    async def get(self, path: str = "/healthz") -> tuple[int, bytes]:
        await self.say(b"GET %s HTTP/1.1\r\nHost: here\r\n\r\n" % path.encode())
        return await self.answer()


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@asynccontextmanager
async def handling(
    handler: connections.HttpHandler, *, limit: int = 100, timeouts: HttpTimeouts | None = None
) -> AsyncIterator[tuple[HttpConnections, Clock, BoundAddress]]:
    """Connections whose clock stands still, and what a test's handler answers on them."""
    clock = Clock()
    server = HttpConnections(
        handler, max_connections=limit, max_body_bytes=1 << 20, timeouts=timeouts or HttpTimeouts(), clock=clock
    )
    listening = await asyncio.get_running_loop().create_server(server, "127.0.0.1", 0)
    host, port = listening.sockets[0].getsockname()
    try:
        yield server, clock, BoundAddress(host, port)
    finally:
        listening.close()
        await server.shutdown(0.1)


async def well(_: web.BaseRequest) -> web.StreamResponse:
    return web.Response(text="well")


@asynccontextmanager
async def serving(service: FakeService | None = None, **options: Any) -> AsyncIterator[BoundAddress]:
    async with http.serve_http(
        service or FakeService(pb.SendMessageResponse()), make_cards(), HttpOptions(**options)
    ) as at:
        yield at


# Slow heads and idle connections ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "response_value", [b"", b"GET /", b"GET / HTTP/1.1\r\n", b"GET / HTTP/1.1\r\nHost: here\r\nX-More: "]
)
async def test_a_head_that_is_never_complete_is_given_up(response_value: bytes) -> None:
    async with handling(well) as (server, clock, bound), Peer.at(bound) as slow, Peer.at(bound) as other:
        assert (await other.get())[0] == 200
        await slow.say(response_value)
        for _ in range(19):
            clock.now += 1
            await slow.say(b"x" if response_value else b"")
            server.check_all()
        assert (await other.get())[0] == 200  # nobody else is disturbed
        clock.now += 2
        server.check_all()
        assert (await slow.rest()).startswith(b"HTTP/1.1 408 ")
        assert (await other.get())[0] == 200


async def test_the_head_of_a_later_request_has_as_long() -> None:
    async with handling(well) as (server, clock, bound), Peer.at(bound) as peer:
        assert (await peer.get())[0] == 200
        clock.now += 600  # between two requests there is time
        server.check_all()
        assert (await peer.get())[0] == 200
        await peer.say(b"GET / HT")
        await asyncio.sleep(0)
        async with Peer.at(bound) as other:  # whose answer shows that the server has read what came before
            assert (await other.get())[0] == 200
        clock.now += 21
        server.check_all()
        assert (await peer.rest()).startswith(b"HTTP/1.1 408 ")


async def test_an_idle_connection_is_closed_at_last() -> None:
    async with handling(well, timeouts=HttpTimeouts(idle=0.05)) as (_, _, bound), Peer.at(bound) as peer:
        assert (await peer.get())[0] == 200
        assert await peer.rest() == b""


async def test_a_request_that_takes_long_to_answer_is_left_alone() -> None:
    begun, go = asyncio.Event(), asyncio.Event()

    async def slow(_: web.BaseRequest) -> web.StreamResponse:
        begun.set()
        await go.wait()
        return web.Response(text="well")

    async with handling(slow) as (server, clock, bound), Peer.at(bound) as peer:
        await peer.say(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n")
        await begun.wait()
        clock.now += 100_000
        server.check_all()
        go.set()
        assert (await peer.answer())[0] == 200


# Slow and large bodies -------------------------------------------------------------------------------------


async def test_a_body_that_comes_too_slowly_is_refused_in_the_callers_dialect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "CONNECTION_CHECK_INTERVAL", 0.01)
    async with serving(timeouts=HttpTimeouts(body=0.05, rate=1000)) as bound, Peer.at(bound) as peer:
        await peer.say(b"POST /message:send HTTP/1.1\r\nHost: here\r\nContent-Length: 500\r\n\r\n{")
        status, body = await peer.answer()
        assert status == 400
        assert b"it arrives too slowly; the limit is 0.05 s plus 1 s for each 1000 bytes received" in body
        await peer.rest()  # and the connection is closed: nobody waits for what is left


async def test_a_large_body_has_as_long_as_it_needs() -> None:
    reading = asyncio.Event()

    async def echo(request: web.BaseRequest) -> web.StreamResponse:
        reading.set()
        return web.Response(text=str(len(await request.content.read())))

    async with handling(echo) as (server, clock, bound), Peer.at(bound) as peer:
        await peer.say(b"POST / HTTP/1.1\r\nHost: here\r\nContent-Length: 200000\r\n\r\n")
        await reading.wait()
        async with Peer.at(bound) as other:
            for _ in range(20):
                await peer.say(b"x" * 10_000)
                assert (await other.get())[0] == 200  # it has read what came before
                clock.now += 2
                server.check_all()
        assert await peer.answer() == (200, b"200000")


async def test_a_body_that_nobody_reads_harms_nobody() -> None:
    begun, go = asyncio.Event(), asyncio.Event()

    async def ignores(_: web.BaseRequest) -> web.StreamResponse:
        begun.set()
        await go.wait()
        return web.Response(text="well")

    async with handling(ignores) as (server, clock, bound), Peer.at(bound) as peer:
        await peer.say(b"POST / HTTP/1.1\r\nHost: here\r\nContent-Length: 200\r\n\r\n")
        await begun.wait()
        clock.now += 31
        server.check_all()
        go.set()
        assert (await peer.answer())[0] == 200
        await peer.rest()


async def test_bodies_have_a_limit_together_and_room_again_when_they_are_gone() -> None:
    head = b"POST /message:send HTTP/1.1\r\nHost: here\r\nA2A-Version: 1.0\r\nContent-Length: %d\r\n\r\n"
    async with serving(bodies=100_000) as bound, AsyncExitStack() as stack:
        holders = [await stack.enter_async_context(Peer.at(bound)) for _ in range(9)]
        for holder in holders:
            await holder.say(head % 20_000 + b" " * 10_000)
        status = 0
        while status != 503:  # until those above have been read
            async with Peer.at(bound) as peer:
                await peer.say(head % 30_000 + b" " * 20_000)
                answering = asyncio.create_task(peer.answer())
                done, _ = await asyncio.wait((answering,), timeout=0.05)
                if done:
                    status, body = await answering
                else:
                    answering.cancel()
        assert b"bytes of request bodies are being received, at most 100000 are allowed; try again" in body
        async with Peer.at(bound) as peer:
            assert (await peer.get())[0] == 200
            await peer.say(head % len(BODY) + BODY)  # what comes at once is no burden
            assert (await peer.answer())[0] == 200
        for holder in holders:
            holder.writer.close()
            await holder.writer.wait_closed()
        status = 503
        while status == 503:
            async with Peer.at(bound) as peer:
                await peer.say(head % (20_000 + len(BODY)) + b" " * 20_000)
                await asyncio.sleep(0)
                await peer.say(BODY)
                status, _ = await peer.answer()
        assert status == 200


async def test_a_body_that_unpacks_to_more_than_is_allowed_is_refused() -> None:
    bomb = gzip.compress(b" " * 50_000_000)
    async with serving(message_bytes=65536) as bound, Peer.at(bound) as peer:
        head = b"POST /message:send HTTP/1.1\r\nHost: here\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n"
        await peer.say(head % len(bomb) + bomb)
        assert (await peer.answer())[0] == 413


async def test_a_call_of_grpc_that_unpacks_to_more_than_is_allowed_is_refused() -> None:
    async with over_grpc(FakeService(), message_bytes=65536) as (channel, _):
        call: Any = channel.unary_unary("/lf.a2a.v1.A2AService/SendMessage")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(b"\0" * 5_000_000, compression=grpc.Compression.Gzip)
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


@pytest.mark.parametrize(
    "head",
    [
        b"GET /" + b"x" * 9_000 + b" HTTP/1.1\r\nHost: here\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: here\r\nX-Long: " + b"x" * 17_000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: here\r\n" + b"X-Many: x\r\n" * 200 + b"\r\n",
        b"GET / HTTP/1.1\r\nHost: here\r\nX-Endless: " + b"x" * 1_000_000,
    ],
)
async def test_a_head_that_is_too_large_is_refused(head: bytes) -> None:
    async with serving() as bound, Peer.at(bound) as peer, Peer.at(bound) as other:
        peer.writer.write(head)
        answer = await peer.rest()
        assert re.match(rb"HTTP/1\.[01] 4\d\d ", answer) or not answer  # unread bytes may reset the connection
        assert (await other.get())[0] == 200


async def test_a_token_of_fifteen_kilobytes_fits() -> None:
    async with serving() as bound, Peer.at(bound) as peer:
        token = b"x" * 15_000
        await peer.say(b"GET /healthz HTTP/1.1\r\nHost: here\r\nAuthorization: Bearer " + token + b"\r\n\r\n")
        assert (await peer.answer())[0] == 200


# WebSocket -------------------------------------------------------------------------------------------------

UPGRADE = (
    b"GET /ws HTTP/1.1\r\nHost: here\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


def frame(opcode: int, size: int) -> bytes:
    """The head of a frame that a client sends (RFC 6455 §5.2), masked with zeros."""
    length = bytes((0x80 | size,)) if size < 126 else bytes((0x80 | 127,)) + size.to_bytes(8, "big")
    return bytes((0x80 | opcode,)) + length + bytes(4)


async def upgraded(bound: BoundAddress, stack: AsyncExitStack) -> Peer:
    peer = await stack.enter_async_context(Peer.at(bound))
    await peer.say(UPGRADE)
    assert b" 101 " in await peer.reader.readuntil(b"\r\n\r\n")
    return peer


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 (what is waited for happens inside aiohttp, which tells nobody)
        await asyncio.sleep(0)


async def until_read(peer: Peer) -> None:
    """The server has read what was said: it answers a ping."""
    await peer.say(frame(9, 0))
    assert (await peer.reader.readexactly(2))[0] == 0x8A


async def sockets(request: web.BaseRequest) -> web.StreamResponse:
    socket = web.WebSocketResponse()
    await socket.prepare(request)
    connections.note_websocket_message(request)
    async for message in socket:
        connections.note_websocket_message(request)
        await socket.send_str(str(len(message.data)))
    return socket


async def test_a_message_of_a_websocket_that_comes_too_slowly_ends_it() -> None:
    async with handling(sockets) as (server, clock, bound), AsyncExitStack() as stack:
        slow, quiet = await upgraded(bound, stack), await upgraded(bound, stack)
        await slow.say(frame(1, 100_000) + b"x" * 1_000)
        await until(lambda: sum(each.unread_bytes for each in server.open_connections) > 1_000)
        for _ in range(29):
            clock.now += 1
            server.check_all()
        await until_read(quiet)  # signs of life are no message
        assert len(server.connections) == 2
        for _ in range(3):
            clock.now += 1
            server.check_all()
        assert await slow.rest() == b""
        for _ in range(1000):
            clock.now += 30
            await until_read(quiet)
            for _ in range(3):
                server.check_all()
        await quiet.say(frame(1, 5) + b"hello")
        assert await quiet.reader.readexactly(3) == b"\x81\x015"


async def test_of_messages_that_are_too_large_together_the_largest_goes() -> None:
    async with handling(sockets) as (server, _, bound), AsyncExitStack() as stack:
        peers = [await upgraded(bound, stack) for _ in range(4)]
        for size, peer in enumerate(peers, 2):
            await peer.say(frame(1, 1_000_000) + b"x" * 100_000 * size)
        async with Peer.at(bound) as other:
            await other.say(UPGRADE)
            await other.reader.readuntil(b"\r\n\r\n")
        await until(lambda: sum(each.unread_bytes for each in server.open_connections) > 1_400_000)
        server.check_all()
        assert await peers[-1].rest() == b""
        assert len(server.open_connections) == 3


# Answers that nobody takes ---------------------------------------------------------------------------------


async def test_a_reader_that_takes_nothing_is_dropped_and_one_that_is_slow_is_not() -> None:
    async def endless(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b"x" * 65536)

    async with handling(endless) as (server, clock, bound), Peer.at(bound) as stuck, Peer.at(bound) as slow:
        for peer in (stuck, slow):
            await peer.say(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n")
            await peer.reader.readexactly(1)
        for _ in range(10):
            clock.now += 40
            # So much that the server has to write again, whatever the socket holds.
            await slow.reader.readexactly(8_000_000)
            server.check_all()
        assert len(server.connections) == 1
        await slow.reader.readexactly(1_000_000)
        slow.writer.close()
        assert len(await stuck.rest()) < 100_000_000


# Too many --------------------------------------------------------------------------------------------------


async def test_the_connection_that_is_idle_for_longest_makes_room() -> None:
    async with serving(connections=3) as bound, AsyncExitStack() as stack:
        peers = []
        for _ in range(3):
            peers.append(await stack.enter_async_context(Peer.at(bound)))
            assert (await peers[-1].get())[0] == 200
        assert (await peers[0].get())[0] == 200  # now the second has been idle for longest
        new = await stack.enter_async_context(Peer.at(bound))
        assert (await new.get())[0] == 200
        assert await peers[1].rest() == b""
        for peer in (peers[0], peers[2], new):
            assert (await peer.get())[0] == 200


async def test_when_all_are_busy_more_are_told_to_come_back_and_health_is_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "OVERFLOW_CONNECTIONS", 2)
    go = asyncio.Event()
    service = FakeService(events=[task_event(), go, status_event(2, states.COMPLETED, ends=True)])
    subscribe = b"GET /tasks/t1:subscribe HTTP/1.1\r\nHost: here\r\nA2A-Version: 1.0\r\n\r\n"
    async with serving(service, connections=2) as bound, AsyncExitStack() as stack:
        streams = []
        for _ in range(2):
            peer = await stack.enter_async_context(Peer.at(bound))
            await peer.say(subscribe)
            await peer.reader.readuntil(b"\r\n\r\n")
            streams.append(peer)
        for path in ("/healthz", "/readyz", "/health", "/ready"):
            async with Peer.at(bound) as probe:
                assert (await probe.get(path))[0] == 200
        async with Peer.at(bound) as caller:
            status, body = await caller.get("/tasks/t1")
            assert status == 503
            assert b"the server has reached its connection limit; try again later" in body
            assert await caller.rest() == b""  # and it does not stay
        await stack.enter_async_context(Peer.at(bound))
        go.set()
        for peer in streams:
            await peer.reader.readuntil(b"TASK_STATE_COMPLETED")
            peer.writer.close()
        service.answer = pb.Task(id="t1")
        status = 503
        while status == 503:  # until the server has seen them go
            async with Peer.at(bound) as caller:
                status, _ = await caller.get("/tasks/t1")
        assert status == 200


async def test_past_the_reserve_connections_are_closed_at_once() -> None:
    begun = asyncio.Semaphore(0)

    async def busy(_: web.BaseRequest) -> web.StreamResponse:
        begun.release()
        await asyncio.Event().wait()
        raise AssertionError

    async with handling(busy, limit=1) as (_, _, bound), AsyncExitStack() as stack:
        for _ in range(1 + connections.OVERFLOW_CONNECTIONS):
            peer = await stack.enter_async_context(Peer.at(bound))
            await peer.say(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n")
            await begun.acquire()
        async with Peer.at(bound) as late:
            assert await late.rest() == b""


async def test_a_flood_of_silent_connections_does_not_keep_others_out() -> None:
    async with serving(connections=20) as bound, AsyncExitStack() as stack:
        for _ in range(200):
            await stack.enter_async_context(Peer.at(bound))
        async with Peer.at(bound) as caller:
            assert (await caller.get())[0] == 200


# gRPC ------------------------------------------------------------------------------------------------------

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
MAX_CONCURRENT_STREAMS, MAX_HEADER_LIST_SIZE = 3, 6
"""Settings of HTTP/2 (RFC 9113 §6.5.2)."""


async def test_grpc_tells_its_limits_to_whoever_connects() -> None:
    async with over_grpc(FakeService()) as (_, bound), Peer.at(bound) as peer:
        await peer.say(PREFACE)
        head = await peer.reader.readexactly(9)
        assert head[3] == 4  # SETTINGS
        payload = await peer.reader.readexactly(int.from_bytes(head[:3], "big"))
    values = dict(struct.unpack_from(">HI", payload, at) for at in range(0, len(payload), 6))
    assert values[MAX_CONCURRENT_STREAMS] == 1024
    assert values[MAX_HEADER_LIST_SIZE] == 32 * 1024


async def test_grpc_gives_up_on_who_connects_and_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "GRPC_HANDSHAKE_TIMEOUT", 1)
    async with over_grpc(FakeService()) as (_, bound), Peer.at(bound) as peer:
        await peer.rest()


async def test_metadata_of_grpc_has_a_limit() -> None:
    service = FakeService(pb.Task(id="t1"))
    async with over_grpc(service) as (channel, _):
        stub: Any = A2AServiceStub(channel)
        fits = (("authorization", "Bearer " + "x" * 15_000),)
        assert (await stub.GetTask(pb.GetTaskRequest(id="t1"), metadata=fits)).id == "t1"
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.GetTask(pb.GetTaskRequest(id="t1"), metadata=(("x-long", "x" * 40_000),))
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert (await stub.GetTask(pb.GetTaskRequest(id="t1"))).id == "t1"


async def test_grpc_takes_so_many_connections_and_more_when_some_are_gone() -> None:
    async with over_grpc(FakeService(pb.Task(id="t1")), connections=3) as (channel, bound), AsyncExitStack() as stack:
        await channel.channel_ready()
        peers = []
        for _ in range(2):
            peer = await stack.enter_async_context(Peer.at(bound))
            await peer.say(PREFACE)
            await peer.reader.readexactly(9)
            peers.append(peer)
        async with Peer.at(bound) as late:
            late.writer.write(PREFACE)
            assert await late.rest() == b""
        peers[0].writer.close()
        while True:
            async with Peer.at(bound) as again:
                again.writer.write(PREFACE)
                try:
                    await again.reader.readexactly(9)
                except (asyncio.IncompleteReadError, ConnectionError):
                    continue
                break


async def test_a_stream_over_a_chunk_event_still_flows() -> None:
    service = FakeService(events=[task_event(), chunk_event(2), status_event(3, states.COMPLETED, ends=True)])
    async with serving(service) as bound, Peer.at(bound) as peer:
        await peer.say(b"GET /tasks/t1:subscribe HTTP/1.1\r\nHost: here\r\nA2A-Version: 1.0\r\n\r\n")
        await peer.reader.readuntil(b"TASK_STATE_COMPLETED")
