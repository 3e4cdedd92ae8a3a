"""Transports to upstream agents, and to the contents behind their links.

Both go through the outbound client, which connects only to addresses that it has checked.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

import grpc

from dragoman.calling.errors import (
    CallForbidden,
    CallRefused,
    ClientError,
    ProtocolError,
    ResponseErrors,
    ServerUnavailable,
    is_connect_failure,
    remote_error_of,
)
from dragoman.calling.transport import HttpClient, HttpResponse, Transport, TransportLimits, TransportOptions
from dragoman.calling.transport_grpc import GrpcTransport
from dragoman.calling.transport_http import JsonRpcTransport, RestTransport, read_body
from dragoman.core.agent_sources import UpstreamSpec
from dragoman.core.net import targets
from dragoman.core.trace import CURRENT_TRACE
from dragoman.ports import ConnectFailed, OutboundFailed, OutboundForbidden, OutboundStreams
from dragoman.wire import remote_errors
from dragoman.wire.cards.remote_card import Interface, grpc_url
from dragoman.wire.content_links import ContentLink, content_links
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

DEFAULT_IDLE_TIMEOUT: Final = 120.0

DEFAULT_TRANSPORT_LIMITS: Final = TransportLimits(
    max_response_bytes=16 * 1024 * 1024,
    max_stream_bytes=1024 * 1024 * 1024,
    response_timeout=30.0,
    blocking_timeout=DEFAULT_IDLE_TIMEOUT,
    idle_timeout=DEFAULT_IDLE_TIMEOUT,
)


class UpstreamTransport(Transport, Protocol):
    """A transport that knows its interface."""

    @property
    def interface(self) -> Interface: ...


@dataclass(frozen=True, slots=True)
class LinkedContents:
    """Downloads the large contents that an agent's responses hold as links, because these links expire.

    A response may have as many bytes with its contents as without, so a turn needs no more memory for them.
    """

    addresses: Sequence[str]  # the HTTP URLs of its card and interfaces, the only servers that are called
    http: HttpClient
    headers: Mapping[str, str]  # sent with each download
    limits: TransportLimits

    def are_in(self, event: pb.StreamResponse) -> bool:
        """Whether an event has links to contents."""
        return bool(self._links(event))

    async def download(self, event: pb.StreamResponse) -> None:
        """Replaces the links in an event by their contents.

        Raises ServerUnavailable for a content that cannot be read now, ProtocolError for an event that is too long or
        a text that is not UTF-8, and CallForbidden.
        """
        for link in self._links(event):
            content = await self._read(link, event.ByteSize())
            try:
                link.part.CopyFrom(link.restore(content))
            except UnicodeDecodeError:
                raise ProtocolError("a text behind a link is not UTF-8") from None

    def _links(self, event: pb.StreamResponse) -> Sequence[ContentLink]:
        # The history is not written: our task has its own.
        responses = (event.task.status, *event.task.artifacts) if event.HasField("task") else (event,)
        return [link for response in responses for link in content_links(response, self.addresses)]

    async def _read(self, link: ContentLink, used_bytes: int) -> bytes:
        """The content of a link in an event that has `used_bytes` already."""
        limits, max_bytes = self.limits, None
        if limits.max_response_bytes is not None:
            max_bytes = limits.max_response_bytes - used_bytes
        timeout = limits.response_timeout
        async with self.http.open("GET", link.url, self.headers, idle_timeout=timeout) as response:
            if response.status != 200:
                raise ServerUnavailable.for_reason(f"its link responded with status {response.status}")
            try:
                content = await read_body(response, "its link", max_bytes, limits.blocking_timeout)
            except ProtocolError:
                text = f"a response is longer than {limits.max_response_bytes} bytes with its large contents"
                raise ProtocolError(text) from None
        if link.size not in (None, len(content)):
            raise ServerUnavailable.for_reason(f"its link responded with {len(content)} of {link.size} bytes")
        return content


@dataclass(frozen=True, slots=True)
class TransportFactory:
    """Opens transports to upstream agents through one outbound client."""

    outbound: OutboundStreams
    ca: Path | None = None  # certificates (PEM) to trust beside the system's
    limits: TransportLimits = DEFAULT_TRANSPORT_LIMITS

    def create(self, upstream: UpstreamSpec, interface: Interface) -> UpstreamTransport:
        """A transport to one interface of an agent. Connects at the first call."""
        is_grpc = interface.binding == "GRPC"
        # An address without a scheme is encrypted if its card was.
        is_encrypted = upstream.url.startswith("https:")
        url = grpc_url(interface.url, encrypted=is_encrypted) if is_grpc else interface.url
        host = targets.parse_target(url).host_port if is_grpc else url.partition("://")[2].partition("/")[0]
        # 0.1 has no versions, and its servers know no such header.
        version = {} if interface.dialect == "0.1" else {"A2A-Version": interface.dialect}
        options = TransportOptions(
            errors=UpstreamResponseErrors(host, self.limits),
            limits=self.limits,
            headers={**upstream.headers, **version},
            rest_prefix=interface.tenant if interface.dialect == "1.0" else "",
            overrides_tenant=True,
            trace_context=CURRENT_TRACE.get,
        )
        if is_grpc:
            connect = partial(connect_checked, url, self.outbound, self.limits, self.ca)
            return GrpcTransport(interface, options, connect=connect)
        transport = RestTransport if interface.binding == "HTTP+JSON" else JsonRpcTransport
        return transport(interface, GuardedHttpClient(self.outbound), options)

    def linked_contents(self, upstream: UpstreamSpec, interfaces: Iterable[Interface]) -> LinkedContents:
        """The contents behind the links of an agent. No interface is at a host that must not receive its headers."""
        addresses = (upstream.location, *(one.url for one in interfaces if one.binding != "GRPC"))
        return LinkedContents(addresses, GuardedHttpClient(self.outbound), upstream.headers, self.limits)


class UpstreamResponseErrors(ResponseErrors):
    """Errors of upstream agents.

    An error response is a refusal whatever its code, so that it is not retried like an unavailable server; only gateway
    errors (502 to 504) mean an unavailable server. Texts may reach callers, so of the response they contain only the
    agent's own message.
    """

    def __init__(self, address: str, limits: TransportLimits) -> None:
        super().__init__(address)
        self._limits = limits

    def from_rest(self, status: int | None, headers: Mapping[str, str], value: Any) -> ClientError:
        return self._gateway_error(status) or CallRefused.from_answer(
            remote_errors.parse_rest_error(status or 200, value)
        )

    def from_jsonrpc(self, status: int, headers: Mapping[str, str], value: Any) -> ClientError:
        error = value.get("error") if isinstance(value, dict) else None
        if error is None:
            return self.from_rest(status, headers, value)
        return self._gateway_error(status) or CallRefused.from_answer(remote_errors.parse_json_error(error))

    def from_rpc(self, error: grpc.aio.AioRpcError) -> ClientError:
        remote_error = remote_error_of(error)
        text = f"{self.address}: {remote_error.code}: {remote_error.message[:300]}"
        match error.code():
            case grpc.StatusCode.UNAVAILABLE if not remote_error.reason:
                arrived = not is_connect_failure(remote_error.message)
                return ServerUnavailable.for_reason(text, may_have_arrived=arrived)
            case grpc.StatusCode.DEADLINE_EXCEEDED | grpc.StatusCode.CANCELLED:
                return ServerUnavailable.for_reason(text)
            case grpc.StatusCode.RESOURCE_EXHAUSTED if "larger than max" in remote_error.message:
                max_bytes = self._limits.max_response_bytes
                return ProtocolError(f"{self.address}: the response is longer than {max_bytes} bytes")
        return CallRefused.from_answer(remote_error)

    def from_redirect(self, status: int, headers: Mapping[str, str]) -> ClientError:
        return ProtocolError(f"{self.address}: responded with a redirect ({status}), which is not followed")

    def not_json(self, status: int, data: bytes) -> ClientError:
        return ProtocolError(f"{self.address}: the response ({status}) is not JSON")

    def _gateway_error(self, status: int | None) -> ClientError | None:
        if status not in (502, 503, 504):
            return None
        # 503 comes from the server itself, before it processes the call; the others come from a proxy in front of it.
        text = f"{self.address}: responded with status {status}"
        return ServerUnavailable.for_reason(text, may_have_arrived=status != 503)


@dataclass(frozen=True, slots=True)
class GuardedHttpClient:
    """Implements `HttpClient` over the outbound client, which owns the connections."""

    outbound: OutboundStreams

    @asynccontextmanager
    async def open(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes | None = None,
        *,
        idle_timeout: float | None,
    ) -> AsyncIterator[HttpResponse]:
        assert idle_timeout is not None
        with outbound_errors():
            async with self.outbound.open(method, url, headers, body, idle_timeout=idle_timeout) as response:
                yield response

    async def close(self) -> None:
        """Does nothing: the outbound client is shared."""


async def connect_checked(
    url: str, outbound: OutboundStreams, limits: TransportLimits, ca: Path | None
) -> grpc.aio.Channel:
    """A gRPC channel to the checked addresses that the host has now. Raises CallForbidden, ServerUnavailable."""
    with outbound_errors():
        addresses = await outbound.resolve(url)
    target = targets.parse_target(url)
    family = "ipv6" if ":" in addresses[0] else "ipv4"
    # A gRPC target has addresses of one family.
    if any((":" in address) != (family == "ipv6") for address in addresses):
        addresses = addresses[:1]
    hosts = ",".join(f"[{host}]:{target.port}" if ":" in host else f"{host}:{target.port}" for host in addresses)
    options = (
        ("grpc.max_receive_message_length", limits.max_response_bytes),
        ("grpc.max_send_message_length", -1),
        ("grpc.enable_http_proxy", 0),
        ("grpc.default_authority", target.host_port),
        ("grpc.keepalive_time_ms", 30_000),
        ("grpc.keepalive_timeout_ms", 10_000),
        ("grpc.enable_retries", 0),
        # A new channel does not wait out the backoff of an earlier one.
        ("grpc.use_local_subchannel_pool", 1),
    )
    if target.scheme == "http":
        return grpc.aio.insecure_channel(f"{family}:{hosts}", options=options)
    credentials = grpc.ssl_channel_credentials(_trusted_roots(ca))
    tls_options = (*options, ("grpc.ssl_target_name_override", target.host))
    return grpc.aio.secure_channel(f"{family}:{hosts}", credentials, options=tls_options)


def _trusted_roots(ca: Path | None) -> bytes | None:
    """The certificates to trust; None for gRPC's own."""
    if ca is None:
        return None
    system = ssl.get_default_verify_paths().cafile
    return (Path(system).read_bytes() if system else b"") + ca.read_bytes()


@contextmanager
def outbound_errors() -> Iterator[None]:
    """Turns errors of the outbound client into ClientErrors."""
    try:
        yield
    except OutboundForbidden as error:
        raise CallForbidden(str(error)) from None
    except OutboundFailed as error:
        arrived = not isinstance(error, ConnectFailed)
        raise ServerUnavailable.for_reason(str(error), may_have_arrived=arrived) from None
