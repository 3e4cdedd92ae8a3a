"""gRPC to an agent upstream, by the rules of the one way out: to addresses that were looked at, and to no others."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.message import DecodeError, Message

from dragoman.agents.upstream.transport import DEFAULT_TRANSPORT_LIMITS, ResponseStream, TransportLimits
from dragoman.calling.errors import CallForbidden, CallRefused, ProtocolError, ServerUnavailable
from dragoman.core.net import targets
from dragoman.core.trace import CURRENT_TRACE, TRACE_HEADER
from dragoman.ports import OutboundFailed, OutboundForbidden, OutboundStreams
from dragoman.wire import client_operations, remote_errors
from dragoman.wire.cards.remote_card import Interface, grpc_url
from dragoman.wire.client_operations import GrpcOperation
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


class UpstreamGrpcTransport:
    """Implements `Road`. A channel goes to one address; when that does not answer, the name is looked up again."""

    def __init__(
        self,
        interface: Interface,
        outlet: OutboundStreams,
        headers: Mapping[str, str],
        limits: TransportLimits = DEFAULT_TRANSPORT_LIMITS,
        *,
        secure: bool,
        ca: Path | None = None,
    ) -> None:
        """`safe`: an address that does not say so is encrypted all the same, as that of its card is. `ca`:
        certificates (PEM) to trust beside the system's."""
        self.interface = interface
        self._outlet = outlet
        self._limits = limits
        self._url = grpc_url(interface.url, encrypted=secure)
        self._ca = ca
        self._operations = client_operations.GRPC_OPERATIONS[interface.dialect]
        self._metadata = (
            *((name.lower(), value) for name, value in headers.items()),
            ("a2a-version", interface.dialect),
        )
        self._channel: grpc.aio.Channel | None = None

    async def call(self, rpc: str, request: Message, *, key: str = "", extensions: str = "") -> Message:
        phrase, sent = self._operations[rpc], self._encode(rpc, request)
        reply = self._limits.idle_timeout if rpc == "SendMessage" else self._limits.response_timeout
        async with self._channel_for_call() as channel:
            method: Any = channel.unary_unary(phrase.path, type(sent).SerializeToString)
            return self._decode(
                phrase, await method(sent, metadata=self._call_metadata(key, extensions), timeout=reply)
            )

    async def stream(self, rpc: str, request: Message, *, key: str = "", extensions: str = "") -> ResponseStream:
        phrase, sent = self._operations[rpc], self._encode(rpc, request)
        taken = 0
        async with self._channel_for_call() as channel:
            method: Any = channel.unary_stream(phrase.path, type(sent).SerializeToString)
            events = method(sent, metadata=self._call_metadata(key, extensions))
            try:
                async for event in events:
                    taken += len(event)
                    if taken > self._limits.max_stream_bytes:
                        raise ProtocolError(
                            f"{self._host}: the stream is longer than {self._limits.max_stream_bytes} bytes"
                        )
                    told = self._decode(phrase, event)
                    assert isinstance(told, pb.StreamResponse)
                    yield told
            finally:
                events.cancel()

    async def close(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()

    def _encode(self, rpc: str, request: Any) -> Message:
        sent = type(request)()
        sent.CopyFrom(request)
        if "tenant" in sent.DESCRIPTOR.fields_by_name:
            sent.tenant = self.interface.tenant
        return self._operations[rpc].encode_request(sent)

    def _decode(self, operation: GrpcOperation, data: bytes) -> Message:
        # gRPC would give None for what it cannot read.
        try:
            return operation.decode_response(operation.response_class.FromString(data))
        except DecodeError:
            raise ProtocolError(f"{self._host}: the answer is not {self.interface.dialect}") from None

    def _call_metadata(self, key: str, extensions: str) -> tuple[tuple[str, str], ...]:
        name = "a2a-extensions" if self.interface.dialect == "1.0" else "x-a2a-extensions"
        given = ((name, extensions), ("idempotency-key", key), (TRACE_HEADER, CURRENT_TRACE.get()))
        return (*self._metadata, *((name, value) for name, value in given if value))

    @asynccontextmanager
    async def _channel_for_call(self) -> AsyncIterator[grpc.aio.Channel]:
        """The channel, for one call; its failures in our words."""
        try:
            if self._channel is None:
                self._channel = await self._connect()
            channel = self._channel
        except OutboundForbidden as error:
            raise CallForbidden(str(error)) from None
        except OutboundFailed as error:
            raise ServerUnavailable.for_reason(str(error), may_have_arrived=False) from None
        try:
            yield channel
        except grpc.aio.AioRpcError as error:
            raise await self._to_error(error, channel) from None

    async def _to_error(self, error: grpc.aio.AioRpcError, channel: grpc.aio.Channel) -> Exception:
        details = next((v for k, v in error.trailing_metadata() or () if k == "grpc-status-details-bin"), b"")
        told = remote_errors.parse_grpc_status(
            error.code().name, error.details() or "", details if isinstance(details, bytes) else b""
        )
        text = f"{self._host}: {told.code}: {told.message[:300]}"
        match error.code():
            case grpc.StatusCode.UNAVAILABLE if not told.reason:
                if self._channel is channel:  # the address may be another one by now
                    await self.close()
                return ServerUnavailable.for_reason(text, may_have_arrived=not _is_connect_failure(told.message))
            case grpc.StatusCode.DEADLINE_EXCEEDED | grpc.StatusCode.CANCELLED:
                return ServerUnavailable.for_reason(text)
            case grpc.StatusCode.RESOURCE_EXHAUSTED if "larger than max" in told.message:
                return ProtocolError(f"{self._host}: the answer is longer than {self._limits.max_response_bytes} bytes")
        return CallRefused.from_answer(told)

    async def _connect(self) -> grpc.aio.Channel:
        addresses = await self._outlet.resolve(self._url)
        target = targets.parse_target(self._url)
        places = ",".join(f"[{one}]:{target.port}" if ":" in one else f"{one}:{target.port}" for one in addresses)
        family = "ipv6" if ":" in addresses[0] else "ipv4"
        if any((":" in one) != (family == "ipv6") for one in addresses):
            places = places.split(",")[0]  # a target has addresses of one family
        options = (
            ("grpc.max_receive_message_length", self._limits.max_response_bytes),
            ("grpc.max_send_message_length", -1),
            ("grpc.enable_http_proxy", 0),
            ("grpc.default_authority", target.host_port),
            ("grpc.keepalive_time_ms", 30_000),
            ("grpc.keepalive_timeout_ms", 10_000),
            ("grpc.enable_retries", 0),
            ("grpc.use_local_subchannel_pool", 1),  # a channel that is made anew waits for no earlier one's failures
        )
        if target.scheme == "http":
            return grpc.aio.insecure_channel(f"{family}:{places}", options=options)
        credentials = grpc.ssl_channel_credentials(_trusted_roots(self._ca))
        named = (*options, ("grpc.ssl_target_name_override", target.host))
        return grpc.aio.secure_channel(f"{family}:{places}", credentials, options=named)

    @property
    def _host(self) -> str:
        return targets.parse_target(self._url).host_port


def _is_connect_failure(text: str) -> bool:
    """Whether gRPC's core says that it had no connection."""
    return "failed to connect to all addresses" in text or "Connection refused" in text


def _trusted_roots(ca: Path | None) -> bytes | None:
    """Certificates to trust: gRPC's own, unless there are others beside the system's."""
    if ca is None:
        return None
    system = ssl.get_default_verify_paths().cafile
    return (Path(system).read_bytes() if system else b"") + ca.read_bytes()
