"""The gRPC transport: A2A 1.0 and 0.3."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, Unpack, cast

import grpc
from google.protobuf.json_format import MessageToJson
from google.protobuf.message import DecodeError, Message

from dragoman.calling.errors import ProtocolError, ServerUnavailable
from dragoman.calling.transport import CallFields, RemoteFiles, StreamResponses, TransportOptions, no_wire_trace
from dragoman.wire import client_operations
from dragoman.wire.cards.remote_card import Interface
from dragoman.wire.client_operations import GrpcOperation
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

ChannelOpener = Callable[[], Awaitable[grpc.aio.Channel]]  # raises ServerUnavailable, CallForbidden
CURSOR_METADATA = "dragoman-after"

MAX_CALLS_PER_CHANNEL: Final = 90
"""Calls of one channel, after which another one is opened. Most servers allow 100 on a connection (RFC 9113 §6.5.2),
and gRPC lets further ones wait, without an error, until others end: a stream may last for days."""


@dataclass(slots=True)
class _Channel:
    """A channel with the number of its calls."""

    channel: grpc.aio.Channel
    calls: int = 0
    is_replaced: bool = False  # whether new calls use another one


class GrpcTransport:
    """Calls one gRPC interface. Implements `Transport`."""

    def __init__(
        self,
        interface: Interface,
        options: TransportOptions,
        *,
        connect: ChannelOpener,
        keeps_channels: bool = False,
        operations: Mapping[str, GrpcOperation] | None = None,
    ) -> None:
        """`connect`: opens channels that share no connection. `keeps_channels`: they stay when the server becomes
        unavailable; otherwise they are replaced, so that its name is resolved again. `operations`: by default those of
        the interface's dialect."""
        self.interface = interface
        self._options = options
        self._limits = options.limits
        self._trace = options.trace
        self._channels: list[_Channel] = []
        self._connect = connect
        self._keeps_channels = keeps_channels
        self._is_closed = False
        self._connecting = asyncio.Lock()
        self._files = RemoteFiles(interface, options.errors.address)
        self._operations = operations or client_operations.GRPC_OPERATIONS[interface.dialect]
        self._metadata = tuple((name.lower(), value) for name, value in options.headers.items())

    async def call(self, rpc: str, request: Message, **fields: Unpack[CallFields]) -> Message:
        operation, data = self._encode(rpc, request)
        timeout = self._limits.blocking_timeout if rpc == "SendMessage" else self._limits.response_timeout
        metadata = self._call_metadata(fields)
        async with self._open_channel() as channel:
            method: Any = channel.unary_unary(operation.path)
            return self._decode(operation, await method(data, metadata=metadata, timeout=timeout))

    async def stream(self, rpc: str, request: Message, **fields: Unpack[CallFields]) -> StreamResponses:
        operation, data = self._encode(rpc, request)
        limit, received = self._limits.max_stream_bytes, 0
        metadata = self._call_metadata(fields)
        async with self._open_channel() as channel:
            method: Any = channel.unary_stream(operation.path)
            events = method(data, metadata=metadata)
            try:
                async for event in events:
                    received += len(event)
                    if limit is not None and received > limit:
                        raise ProtocolError(f"{self._options.errors.address}: the stream is longer than {limit} bytes")
                    yield cast(pb.StreamResponse, self._decode(operation, event))
            finally:
                events.cancel()  # notifies the server if the reader stops early

    async def close(self) -> None:
        self._is_closed = True
        while self._channels:
            await self._channels.pop().channel.close()

    def _encode(self, rpc: str, request: Message) -> tuple[GrpcOperation, bytes]:
        operation = self._operations[rpc]
        request = self._files.write(self._options.with_tenant(request, self.interface.tenant))
        message = operation.encode_request(request)
        self._trace_message(">", operation.path, message)
        return operation, message.SerializeToString()

    def _decode(self, operation: GrpcOperation, data: bytes) -> Message:
        # Parsed here, not in the channel: gRPC would return None for invalid bytes.
        try:
            message = operation.response_class.FromString(data)
        except DecodeError:
            address = self._options.errors.address
            raise ProtocolError(f"{address}: the response is not {self.interface.dialect}") from None
        self._trace_message("<", operation.response_class.DESCRIPTOR.full_name, message)
        return self._files.read(operation.decode_response(message))

    def _call_metadata(self, fields: CallFields) -> tuple[tuple[str, str], ...]:
        headers = self._options.call_headers(self.interface.dialect, CURSOR_METADATA, **fields)
        return (*self._metadata, *((name.lower(), value) for name, value in headers.items()))

    @asynccontextmanager
    async def _open_channel(self) -> AsyncIterator[grpc.aio.Channel]:
        """Yields the channel for one call. Converts the call's failure to ClientError."""
        used = await self._free_channel()
        used.calls += 1
        try:
            yield used.channel
        except grpc.aio.AioRpcError as error:
            self._trace("<", f"{error.code().name}: {error.details()}")
            failure = self._options.errors.from_rpc(error)
            is_unavailable = isinstance(failure, ServerUnavailable) and error.code() is grpc.StatusCode.UNAVAILABLE
            if is_unavailable and not self._keeps_channels and used in self._channels:
                self._channels.remove(used)
                used.is_replaced = True
            raise failure from error
        finally:
            used.calls -= 1
            if used.is_replaced and not used.calls:  # a close would cancel the other calls of the channel
                await used.channel.close()

    async def _free_channel(self) -> _Channel:
        """Returns a channel that has room for a call; opens one if none has."""
        async with self._connecting:  # two concurrent calls would open two channels
            if self._is_closed and self._keeps_channels:
                raise RuntimeError("the transport is closed")
            for channel in self._channels:
                if channel.calls < MAX_CALLS_PER_CHANNEL:
                    return channel
            channel = _Channel(await self._connect())
            self._channels.append(channel)
            return channel

    def _trace_message(self, direction: str, name: str, message: Message) -> None:
        if self._trace is not no_wire_trace:
            self._trace(direction, f"{name} {MessageToJson(message, indent=None)}")
