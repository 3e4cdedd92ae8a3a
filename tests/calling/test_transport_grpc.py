"""The gRPC transport on a scripted server: metadata, errors, limits, and replaced channels."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

from dragoman.calling.errors import NotFound, ProtocolError, ResponseErrors, ServerUnavailable
from dragoman.calling.transport import TransportLimits, TransportOptions
from dragoman.calling.transport_grpc import MAX_CALLS_PER_CHANNEL, GrpcTransport
from dragoman.wire.cards.remote_card import Interface
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

GET = pb.GetTaskRequest(id="t")
SUBSCRIBE = pb.SubscribeToTaskRequest(id="t")
OPTIONS = TransportOptions(errors=ResponseErrors("server"), headers={"X-Key": "k"})


class ScriptedServer(grpc.GenericRpcHandler):
    """Responds to GetTask with `response` or an error, and streams `events`."""

    def __init__(self) -> None:
        self.response = pb.Task(id="t").SerializeToString()
        self.events = [pb.StreamResponse(task=pb.Task(id="t")).SerializeToString()]
        self.status = grpc.StatusCode.OK
        self.metadata: dict[str, Any] = {}
        self.holds_streams = False
        """Streams stay open after their events, until `ends`."""
        self.ends = asyncio.Event()

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        if handler_call_details.method.endswith("/GetTask"):
            return grpc.unary_unary_rpc_method_handler(self._get)
        return grpc.unary_stream_rpc_method_handler(self._stream)

    async def _get(self, _: bytes, context: Any) -> bytes:
        self.metadata = dict(context.invocation_metadata())
        if self.status is not grpc.StatusCode.OK:
            await context.abort(self.status, "scripted")
        return self.response

    async def _stream(self, _: bytes, context: Any) -> AsyncIterator[bytes]:
        self.metadata = dict(context.invocation_metadata())
        for event in self.events:
            yield event
        if self.holds_streams:
            await self.ends.wait()


@asynccontextmanager
async def serving() -> AsyncIterator[tuple[ScriptedServer, str]]:
    script, server = ScriptedServer(), grpc.aio.server()
    server.add_generic_rpc_handlers((script,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield script, f"127.0.0.1:{port}"
    finally:
        await server.stop(None)


def connected(
    target: str,
    opened: list[str] | None = None,
    options: TransportOptions = OPTIONS,
    *,
    keeps_channels: bool = False,
) -> GrpcTransport:
    async def connect() -> grpc.aio.Channel:
        if opened is not None:
            opened.append(target)
        return grpc.aio.insecure_channel(target)

    return GrpcTransport(Interface(target, "GRPC", "1.0"), options, connect=connect, keeps_channels=keeps_channels)


async def test_a_call_sends_the_headers_as_metadata() -> None:
    async with serving() as (script, target):
        transport = connected(target)
        task = await transport.call("GetTask", GET, key="key", extensions="urn:x")
        assert task == pb.Task(id="t")
        assert script.metadata.items() >= {"x-key": "k", "idempotency-key": "key", "a2a-extensions": "urn:x"}.items()
        await transport.close()


async def test_a_stream_sends_its_cursor_and_has_a_limit() -> None:
    async with serving() as (script, target):
        script.events *= 3
        transport = connected(target)
        assert len([event async for event in transport.stream("SubscribeToTask", SUBSCRIBE, after="c")]) == 3
        assert script.metadata["dragoman-after"] == "c"
        await transport.close()
        limited = connected(
            target,
            options=TransportOptions(
                errors=OPTIONS.errors, limits=TransportLimits(max_stream_bytes=len(script.events[0]))
            ),
        )
        with pytest.raises(ProtocolError, match="the stream is longer than"):
            _ = [event async for event in limited.stream("SubscribeToTask", SUBSCRIBE)]
        await limited.close()


async def test_statuses_and_invalid_bytes_raise_errors() -> None:
    async with serving() as (script, target):
        transport = connected(target)
        script.status = grpc.StatusCode.NOT_FOUND
        with pytest.raises(NotFound, match="scripted"):
            await transport.call("GetTask", GET)
        script.status, script.response = grpc.StatusCode.OK, b"\xff\xff"
        with pytest.raises(ProtocolError, match=r"the response is not 1\.0"):
            await transport.call("GetTask", GET)
        await transport.close()


@pytest.mark.parametrize(("keeps_channels", "channels"), [(False, 2), (True, 1)])
async def test_an_unavailable_server_gets_a_new_channel_unless_channels_are_kept(
    keeps_channels: bool, channels: int
) -> None:
    opened: list[str] = []
    async with serving() as (script, target):
        transport = connected(target, opened, keeps_channels=keeps_channels)
        script.status = grpc.StatusCode.UNAVAILABLE
        with pytest.raises(ServerUnavailable):
            await transport.call("GetTask", GET)
        script.status = grpc.StatusCode.OK
        assert await transport.call("GetTask", GET) == pb.Task(id="t")
        assert len(opened) == channels
        await transport.close()


async def test_calls_of_a_replaced_channel_go_on_and_its_last_one_closes_it() -> None:
    channels: list[grpc.aio.Channel] = []
    async with serving() as (script, target):

        async def connect() -> grpc.aio.Channel:
            channels.append(grpc.aio.insecure_channel(target))
            return channels[-1]

        transport = GrpcTransport(Interface(target, "GRPC", "1.0"), OPTIONS, connect=connect)
        script.holds_streams = True
        events = transport.stream("SubscribeToTask", SUBSCRIBE)
        assert (await anext(events)).task.id == "t"
        script.status = grpc.StatusCode.UNAVAILABLE
        with pytest.raises(ServerUnavailable):
            await transport.call("GetTask", GET)
        assert channels[0].get_state() is not grpc.ChannelConnectivity.SHUTDOWN
        script.ends.set()
        assert [event async for event in events] == []
        assert channels[0].get_state() is grpc.ChannelConnectivity.SHUTDOWN
        await transport.close()


async def test_a_further_channel_is_opened_before_one_is_full() -> None:
    opened: list[str] = []
    async with serving() as (script, target):
        script.holds_streams = True
        transport = connected(target, opened, keeps_channels=True)
        streams = [transport.stream("SubscribeToTask", SUBSCRIBE) for _ in range(2 * MAX_CALLS_PER_CHANNEL)]
        await asyncio.gather(*(anext(stream) for stream in streams))
        assert len(opened) == 2
        assert await transport.call("GetTask", GET) == pb.Task(id="t")
        assert len(opened) == 3
        for stream in streams:
            await stream.aclose()
        assert await transport.call("GetTask", GET) == pb.Task(id="t")
        assert len(opened) == 3
        await transport.close()


async def test_a_closed_transport_that_keeps_its_channels_raises_an_error() -> None:
    transport = connected("127.0.0.1:1", keeps_channels=True)
    await transport.close()
    with pytest.raises(RuntimeError, match="closed"):
        await transport.call("GetTask", GET)
