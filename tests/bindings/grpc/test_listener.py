"""Limits of the gRPC port, over raw sockets and with more calls than gRPC queues by default."""

from __future__ import annotations

import asyncio
import struct
import sys
from contextlib import AsyncExitStack
from typing import Any

import grpc
import pytest
from bench.load.http2 import Connection, head
from grpc_health.v1 import health_pb2, health_pb2_grpc  # type: ignore[import-untyped]
from tests.bindings.fake_service import TASK, FakeService, make_cards, over_grpc
from tests.bindings.raw_client import RawClient
from tests.eventually import eventually

from dragoman.bindings.grpc import messages
from dragoman.bindings.grpc.server import serve_grpc
from dragoman.bindings.options import ServerOptions
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb
from dragoman_pb.lf.a2a.v1.a2a_pb2_grpc import A2AServiceStub

only_linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells which connections are idle")

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
MAX_CONCURRENT_STREAMS, INITIAL_WINDOW_SIZE, MAX_HEADER_LIST_SIZE = 3, 4, 6
"""Settings of HTTP/2 (RFC 9113 §6.5.2)."""


async def test_limits_are_sent_as_http_2_settings() -> None:
    async with over_grpc(FakeService()) as (_, bound), RawClient.connect(bound) as peer:
        await peer.send(PREFACE)
        frame_header = await peer.reader.readexactly(9)
        assert frame_header[3] == 4  # SETTINGS
        payload = await peer.reader.readexactly(int.from_bytes(frame_header[:3], "big"))
    settings = dict(struct.unpack_from(">HI", payload, at) for at in range(0, len(payload), 6))
    assert settings[MAX_CONCURRENT_STREAMS] == 100
    assert settings[INITIAL_WINDOW_SIZE] == messages.UNREAD_WINDOW_BYTES
    assert settings[MAX_HEADER_LIST_SIZE] == 32 * 1024


async def test_a_silent_connection_times_out() -> None:
    async with over_grpc(FakeService(), grpc_handshake_timeout=0.5) as (_, bound), RawClient.connect(bound) as peer:
        await peer.read_rest()


async def test_metadata_over_the_limit_is_rejected() -> None:
    service = FakeService(pb.Task(id="t1"))
    async with over_grpc(service) as (channel, _):
        stub: Any = A2AServiceStub(channel)
        allowed = (("authorization", "Bearer " + "x" * 15_000),)
        assert (await stub.GetTask(pb.GetTaskRequest(id="t1"), metadata=allowed)).id == "t1"
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.GetTask(pb.GetTaskRequest(id="t1"), metadata=(("x-long", "x" * 40_000),))
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert (await stub.GetTask(pb.GetTaskRequest(id="t1"))).id == "t1"


async def test_connections_over_the_limit_are_closed_until_others_disconnect() -> None:
    limits: Any = {"connections": 3, "overflow_connections": 0}
    async with over_grpc(FakeService(pb.Task(id="t1")), **limits) as (channel, bound), AsyncExitStack() as stack:
        await channel.channel_ready()
        peers = []
        for _ in range(2):
            peer = await stack.enter_async_context(RawClient.connect(bound))
            await peer.send(PREFACE)
            await peer.reader.readexactly(9)
            peers.append(peer)
        async with RawClient.connect(bound) as late:
            late.writer.write(PREFACE)
            assert await late.read_rest() == b""
        peers[0].writer.close()
        while True:
            async with RawClient.connect(bound) as replacement:
                replacement.writer.write(PREFACE)
                try:
                    await replacement.reader.readexactly(9)
                except (asyncio.IncompleteReadError, ConnectionError):
                    continue
                break


@only_linux
async def test_health_answers_beside_more_idle_connections_than_the_limit_and_open_calls_go_on() -> None:
    limits: Any = {"connections": 3, "overflow_connections": 4}
    async with over_grpc(FakeService(pb.Task(id="t1")), **limits) as (channel, bound), AsyncExitStack() as stack:
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING  # the oldest connection
        peers = []
        for _ in range(6):
            peer = await stack.enter_async_context(RawClient.connect(bound))
            await peer.send(PREFACE)
            await peer.reader.readexactly(9)
            peers.append(peer)
        closed = [asyncio.ensure_future(peer.read_rest()) for peer in peers]
        await eventually(lambda: sum(reading.done() for reading in closed) >= 4)
        async with grpc.aio.insecure_channel(str(bound), options=[("grpc.use_local_subchannel_pool", 1)]) as other:
            check = await health_pb2_grpc.HealthStub(other).Check(health_pb2.HealthCheckRequest())
        assert check.status == health_pb2.HealthCheckResponse.SERVING
        assert not watch.done()
        watch.cancel()
        for reading in closed:
            reading.cancel()


async def test_a_call_larger_than_the_limit_after_decompression_is_rejected() -> None:
    async with over_grpc(FakeService(), message_bytes=65536) as (channel, _):
        call: Any = channel.unary_unary("/lf.a2a.v1.A2AService/SendMessage")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(b"\0" * 5_000_000, compression=grpc.Compression.Gzip)
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


async def called(channel: Any, path: str, data: bytes, *, streams: bool) -> None:
    """Makes a call of bytes, and reads its responses to the end."""
    if "Reflection" in path:
        async for _ in channel.stream_stream(path)([data]):
            pass
    elif streams:
        async for _ in channel.unary_stream(path)(data):
            pass
    else:
        await channel.unary_unary(path)(data)


@pytest.mark.parametrize(
    ("service", "method", "streams"),
    [
        ("grpc.health.v1.Health", "Check", False),
        pytest.param(
            "grpc.health.v1.Health",
            "List",
            False,
            marks=pytest.mark.skipif(
                not hasattr(health_pb2, "HealthListRequest"), reason="grpcio-health-checking before 1.82 has no List"
            ),
        ),
        ("grpc.health.v1.Health", "Watch", True),
        ("grpc.reflection.v1.ServerReflection", "ServerReflectionInfo", True),
        ("grpc.reflection.v1alpha.ServerReflection", "ServerReflectionInfo", True),
        ("lf.a2a.v1.A2AService", "GetTask", False),
    ],
)
@pytest.mark.parametrize("data", [b"\xff\xff\xff", b"\x0a\x05ab", b"\x0a\x02\xff\xfe\xff"])
async def test_an_undecodable_request_is_invalid_and_logs_no_traceback(
    service: str, method: str, streams: bool, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with over_grpc(FakeService(pb.Task(id="t1"))) as (channel, _):
        path = f"/{service}/{method}"
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await called(channel, path, data, streams=streams)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        health = health_pb2_grpc.HealthStub(channel)
        assert (await health.Check(health_pb2.HealthCheckRequest())).status == health_pb2.HealthCheckResponse.SERVING
    assert not [record for record in caplog.records if record.exc_info]


async def test_thousands_of_concurrent_calls_get_responses() -> None:
    """So many clients may reconnect at once after another server has stopped."""
    data = pb.GetTaskRequest(id="t1").SerializeToString()
    async with serve_grpc(FakeService(TASK).operations, make_cards(), ServerOptions()) as bound:
        connections = [await Connection.open(str(bound)) for _ in range(20)]
        path = head(str(bound), "/lf.a2a.v1.A2AService/GetTask", {"a2a-version": "1.0"})
        responses = await asyncio.gather(*(connections[number % 20].call(path, data) for number in range(2_000)))
        for connection in connections:
            connection.close()
    assert set(responses) == {TASK.SerializeToString()}
