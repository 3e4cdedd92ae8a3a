"""gRPC to an agent upstream, by the rules of the one way out: to addresses that were looked at, and to no others."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.message import DecodeError, Message

from dragoman.agents.upstream.road import BOUNDS, Away, Blocked, Bounds, Nonsense, Refused, Stream
from dragoman.core import targets
from dragoman.core.trace import CURRENT, HEADER
from dragoman.ports import Forbidden, Outlet, Unreachable
from dragoman.wire import complaints, phrases
from dragoman.wire.card_reading import Interface
from dragoman.wire.finding_cards import url_of
from dragoman.wire.phrases import GrpcPhrase
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


class GrpcRoad:
    """Implements `Road`. A channel goes to one address; when that does not answer, the name is looked up again."""

    def __init__(
        self,
        interface: Interface,
        outlet: Outlet,
        headers: Mapping[str, str],
        bounds: Bounds = BOUNDS,
        *,
        safe: bool,
        ca: Path | None = None,
    ) -> None:
        """`safe`: an address that does not say so is encrypted all the same, as that of its card is. `ca`:
        certificates (PEM) to trust beside the system's."""
        self.interface = interface
        self._outlet = outlet
        self._bounds = bounds
        self._url = url_of(interface.url, safe=safe)
        self._ca = ca
        self._phrases = phrases.GRPC[interface.dialect]
        self._metadata = (
            *((name.lower(), value) for name, value in headers.items()),
            ("a2a-version", interface.dialect),
        )
        self._channel: grpc.aio.Channel | None = None

    async def call(self, rpc: str, request: Message, *, key: str = "", extensions: str = "") -> Message:
        phrase, sent = self._phrases[rpc], self._sent(rpc, request)
        reply = self._bounds.silence if rpc == "SendMessage" else self._bounds.reply
        async with self._open() as channel:
            method: Any = channel.unary_unary(phrase.path, type(sent).SerializeToString)
            return self._read(phrase, await method(sent, metadata=self._with(key, extensions), timeout=reply))

    async def stream(self, rpc: str, request: Message, *, key: str = "", extensions: str = "") -> Stream:
        phrase, sent = self._phrases[rpc], self._sent(rpc, request)
        taken = 0
        async with self._open() as channel:
            method: Any = channel.unary_stream(phrase.path, type(sent).SerializeToString)
            events = method(sent, metadata=self._with(key, extensions))
            try:
                async for event in events:
                    taken += len(event)
                    if taken > self._bounds.total:
                        raise Nonsense(f"{self._place}: the stream is longer than {self._bounds.total} bytes")
                    told = self._read(phrase, event)
                    assert isinstance(told, pb.StreamResponse)
                    yield told
            finally:
                events.cancel()

    async def close(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()

    def _sent(self, rpc: str, request: Any) -> Message:
        sent = type(request)()
        sent.CopyFrom(request)
        if "tenant" in sent.DESCRIPTOR.fields_by_name:
            sent.tenant = self.interface.tenant
        return self._phrases[rpc].write(sent)

    def _read(self, phrase: GrpcPhrase, data: bytes) -> Message:
        # gRPC would give None for what it cannot read.
        try:
            return phrase.read(phrase.answer.FromString(data))
        except DecodeError:
            raise Nonsense(f"{self._place}: the answer is not {self.interface.dialect}") from None

    def _with(self, key: str, extensions: str) -> tuple[tuple[str, str], ...]:
        name = "a2a-extensions" if self.interface.dialect == "1.0" else "x-a2a-extensions"
        given = ((name, extensions), ("idempotency-key", key), (HEADER, CURRENT.get()))
        return (*self._metadata, *((name, value) for name, value in given if value))

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[grpc.aio.Channel]:
        """The channel, for one call; its failures in our words."""
        try:
            if self._channel is None:
                self._channel = await self._dial()
            channel = self._channel
        except Forbidden as error:
            raise Blocked(str(error)) from None
        except Unreachable as error:
            raise Away(str(error), arrived=False) from None
        try:
            yield channel
        except grpc.aio.AioRpcError as error:
            raise await self._failure(error, channel) from None

    async def _failure(self, error: grpc.aio.AioRpcError, channel: grpc.aio.Channel) -> Exception:
        details = next((v for k, v in error.trailing_metadata() or () if k == "grpc-status-details-bin"), b"")
        told = complaints.of_status(
            error.code().name, error.details() or "", details if isinstance(details, bytes) else b""
        )
        text = f"{self._place}: {told.code}: {told.message[:300]}"
        match error.code():
            case grpc.StatusCode.UNAVAILABLE if not told.reason:
                if self._channel is channel:  # the address may be another one by now
                    await self.close()
                return Away(text, arrived=not _never_arrived(told.message))
            case grpc.StatusCode.DEADLINE_EXCEEDED | grpc.StatusCode.CANCELLED:
                return Away(text)
            case grpc.StatusCode.RESOURCE_EXHAUSTED if "larger than max" in told.message:
                return Nonsense(f"{self._place}: the answer is longer than {self._bounds.answer} bytes")
        return Refused(told)

    async def _dial(self) -> grpc.aio.Channel:
        addresses = await self._outlet.resolve(self._url)
        target = targets.read(self._url)
        places = ",".join(f"[{one}]:{target.port}" if ":" in one else f"{one}:{target.port}" for one in addresses)
        family = "ipv6" if ":" in addresses[0] else "ipv4"
        if any((":" in one) != (family == "ipv6") for one in addresses):
            places = places.split(",")[0]  # a target has addresses of one family
        options = (
            ("grpc.max_receive_message_length", self._bounds.answer),
            ("grpc.max_send_message_length", -1),
            ("grpc.enable_http_proxy", 0),
            ("grpc.default_authority", target.place),
            ("grpc.keepalive_time_ms", 30_000),
            ("grpc.keepalive_timeout_ms", 10_000),
            ("grpc.enable_retries", 0),
            ("grpc.use_local_subchannel_pool", 1),  # a channel that is made anew waits for no earlier one's failures
        )
        if target.scheme == "http":
            return grpc.aio.insecure_channel(f"{family}:{places}", options=options)
        credentials = grpc.ssl_channel_credentials(_roots(self._ca))
        named = (*options, ("grpc.ssl_target_name_override", target.host))
        return grpc.aio.secure_channel(f"{family}:{places}", credentials, options=named)

    @property
    def _place(self) -> str:
        return targets.read(self._url).place


def _never_arrived(text: str) -> bool:
    """Whether gRPC's core says that it had no connection."""
    return "failed to connect to all addresses" in text or "Connection refused" in text


def _roots(ca: Path | None) -> bytes | None:
    """Certificates to trust: gRPC's own, unless there are others beside the system's."""
    if ca is None:
        return None
    system = ssl.get_default_verify_paths().cafile
    return (Path(system).read_bytes() if system else b"") + ca.read_bytes()
