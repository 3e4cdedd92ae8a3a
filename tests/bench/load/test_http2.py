"""The gRPC client of the load, on a real server: what succeeds is counted, and every other status is an error."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

from bench.load import http2

LONG = b"x" * 200_000


async def echo(request: bytes, context: Any) -> bytes:
    del context
    return request


async def refuse(request: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
    del request
    await context.abort(grpc.StatusCode.NOT_FOUND, "no such thing")
    raise AssertionError


async def count(request: bytes, context: Any) -> AsyncIterator[bytes]:
    del context
    for number in range(int(request)):
        yield b"event %d" % number


async def break_off(request: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> AsyncIterator[bytes]:
    yield request
    await context.abort(grpc.StatusCode.INTERNAL, "half way")


@asynccontextmanager
async def connected() -> AsyncIterator[tuple[http2.Connection, str]]:
    server = grpc.aio.server()
    handlers: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
        "Echo": grpc.unary_unary_rpc_method_handler(echo),
        "Refuse": grpc.unary_unary_rpc_method_handler(refuse),
        "Count": grpc.unary_stream_rpc_method_handler(count),
        "BreakOff": grpc.unary_stream_rpc_method_handler(break_off),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("t.T", handlers),))
    target = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    connection = await http2.Connection.open(target)
    try:
        yield connection, target
    finally:
        connection.close()
        await server.stop(None)


async def test_a_unary_call_returns_its_message() -> None:
    async with connected() as (connection, target):
        head = http2.head(target, "/t.T/Echo", {"a2a-version": "1.0"})
        assert await connection.call(head, b"hello") == b"hello"
        assert await connection.call(head, b"") == b""
        assert await connection.call(head, LONG[:10_000]) == LONG[:10_000]


async def test_calls_of_one_connection_can_overlap() -> None:
    async with connected() as (connection, target):
        head = http2.head(target, "/t.T/Echo")
        requested = [str(number).encode() for number in range(50)]
        assert await asyncio.gather(*(connection.call(head, one) for one in requested)) == requested


@pytest.mark.parametrize("method", ["Refuse", "NoSuchMethod"])
async def test_any_status_but_ok_is_an_error(method: str) -> None:
    async with connected() as (connection, target):
        with pytest.raises(http2.CallFailed, match="grpc-status"):
            await connection.call(http2.head(target, f"/t.T/{method}"), b"hello")
        assert await connection.call(http2.head(target, "/t.T/Echo"), b"still") == b"still"


async def test_every_message_of_a_stream_arrives_in_order() -> None:
    async with connected() as (connection, target):
        received: list[bytes] = []
        await connection.stream(http2.head(target, "/t.T/Count"), b"1000", received.append)
        assert received == [b"event %d" % number for number in range(1000)]


async def test_an_aborted_stream_is_an_error() -> None:
    async with connected() as (connection, target):
        received: list[bytes] = []
        with pytest.raises(http2.CallFailed):
            await connection.stream(http2.head(target, "/t.T/BreakOff"), b"one", received.append)
        assert received == [b"one"]


async def test_an_empty_response_to_a_unary_call_is_an_error() -> None:
    async with connected() as (connection, target):
        with pytest.raises(http2.CallFailed, match="0 messages"):
            await connection.call(http2.head(target, "/t.T/Count"), b"0")


async def test_header_sizes_distinguish_responses_from_errors() -> None:
    async with connected() as (connection, target):
        sizes = []
        for _ in range(3):
            await connection.call(http2.head(target, "/t.T/Echo"), b"hello")
            sizes.append(connection.head_size)
        assert len(set(sizes)) == 1
        with pytest.raises(http2.CallFailed):
            await connection.call(http2.head(target, "/t.T/Refuse"), b"hello")
        assert connection.head_size != sizes[0]


async def test_a_lost_connection_fails_the_running_stream() -> None:
    async with connected() as (connection, target):
        started = asyncio.Event()
        following = asyncio.create_task(
            connection.stream(http2.head(target, "/t.T/Count"), b"100000000", lambda _: started.set())
        )
        await started.wait()
        connection.close()
        with pytest.raises(ConnectionError):
            await following
        with pytest.raises(ConnectionError):
            await connection.call(http2.head(target, "/t.T/Echo"), b"hello")


def test_frames_are_parsed_for_any_segmentation() -> None:
    """What the network cuts in two is one frame, and one message may fill several."""

    async def run(size: int) -> list[bytes]:
        connection = http2.Connection()
        connection.connection_made(Sink())
        received: list[bytes] = []
        call = connection._start(b"", b"", received.append)
        body = b"".join(b"\x00" + len(one).to_bytes(4) + one for one in (b"one", b"", b"three"))
        sent = http2._frame(http2._HEADERS, http2._END_HEADERS, 1, b"\x88")
        sent += b"".join(http2._frame(http2._DATA, 0, 1, body[at : at + 4]) for at in range(0, len(body), 4))
        sent += http2._frame(http2._HEADERS, http2._END_HEADERS | http2._END_STREAM, 1, b"\x00\x0bgrpc-status\x010")
        for at in range(0, len(sent), size):
            connection.data_received(sent[at : at + size])
        await call
        return received

    for size in (1, 2, 7, 1000):
        assert asyncio.run(run(size)) == [b"one", b"", b"three"]


class Sink(asyncio.Transport):
    def write(self, data: bytes | bytearray | memoryview) -> None:
        del data
