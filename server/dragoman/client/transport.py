"""Opens the client's transports. Imports aiohttp for HTTP addresses only, and gRPC for gRPC addresses only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dragoman.calling import tls
from dragoman.calling.contents import read_part
from dragoman.calling.errors import ClientError, ResponseErrors
from dragoman.calling.transport import (
    Transport,
    TransportLimits,
    TransportOptions,
    WireTrace,
    extensions_header,
    no_wire_trace,
)
from dragoman.client.content_transport import ContentReceiver, ContentTransport
from dragoman.core.agent_sources import FileForm
from dragoman.core.cards.agent_spec import RESUME_EXTENSION
from dragoman.wire.cards.remote_card import Interface

if TYPE_CHECKING:
    import grpc

    from dragoman.client.http_client import AiohttpClient

_CHANNEL_OPTIONS: Final = (
    # The server limits sizes; a limit here would only hide its error.
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    # Detects a dead server while a stream is idle.
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    # Each channel has a connection of its own: the calls of one connection are limited by the server.
    ("grpc.use_local_subchannel_pool", 1),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallOptions:
    """Settings of calls to a server, over any binding."""

    token: str = field(default="", repr=False)
    """An API key or any other bearer token."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Headers of each call; metadata over gRPC."""
    extensions: str = RESUME_EXTENSION.uri
    """URIs that each call activates, separated by commas."""
    trace: WireTrace = no_wire_trace
    ca: Path | None = None
    cert: Path | None = None
    v03_files: FileForm = "bytes"
    """The form of files in 0.3 over gRPC and REST."""
    idle_timeout: float | None = None
    """Seconds without a byte after which an HTTP stream or a response counts as broken; None for no limit. The response
    to a send has no limit: some servers respond only when the task has ended."""
    receive_content: ContentReceiver = read_part
    """Reads the contents that responses link to."""

    @property
    def request_headers(self) -> dict[str, str]:
        """The token and the headers of every call."""
        return {**({"Authorization": f"Bearer {self.token}"} if self.token else {}), **self.headers}


def open_transport(
    address: str,
    dialect: str,
    binding: str,
    agent: str,
    options: CallOptions,
    *,
    is_endpoint: bool = False,
    server_urls: Sequence[str] = (),
) -> ContentTransport:
    """Opens the transport to one agent. Requires a running event loop.

    `is_endpoint`: the address is an interface's, as in a card, not the server's. `server_urls`: the HTTP URLs that name
    the server, from which contents of its responses are fetched; by default `address`. Raises ClientError for unusable
    certificate files; over gRPC the first call does.
    """

    def open_http(url: str) -> AiohttpClient:
        from dragoman.client.http_client import AiohttpClient

        return AiohttpClient(url, options, {})

    return ContentTransport(
        _open_transport(address, dialect, binding, agent, options, is_endpoint=is_endpoint),
        server_urls or (address if "://" in address else f"grpc://{address}",),
        open_http,
        idle_timeout=options.idle_timeout,
        receive=options.receive_content,
    )


def _open_transport(
    address: str, dialect: str, binding: str, agent: str, options: CallOptions, *, is_endpoint: bool
) -> Transport:
    headers = {
        "A2A-Version": dialect,
        extensions_header(dialect): options.extensions,
        **options.request_headers,
    }
    if binding == "grpc":
        from dragoman.calling.transport_grpc import GrpcTransport

        async def connect() -> grpc.aio.Channel:
            return tls.grpc_channel(address, _CHANNEL_OPTIONS, ca=options.ca, cert=options.cert)

        grpc_dialect = "0.3" if dialect == "0.3" else "1.0"
        headers["A2A-Version"] = grpc_dialect
        return GrpcTransport(
            Interface(address, "GRPC", grpc_dialect, agent),
            _options(address, options, headers),
            connect=connect,
            keeps_channels=True,
        )
    from dragoman.calling.transport_http import JsonRpcTransport, RestTransport
    from dragoman.client.http_client import AiohttpClient, WebSocketTransport

    base = address.rstrip("/")
    http = AiohttpClient(base, options, headers)
    if binding == "rest":
        return RestTransport(Interface(base, "HTTP+JSON", dialect, agent), http, _options(base, options, prefix=agent))
    url = address if is_endpoint else f"{base}/{agent}"
    interface = Interface(url, "JSONRPC", dialect, agent)
    if binding == "ws":
        return WebSocketTransport(interface, http, _options(base, options))
    return JsonRpcTransport(interface, http, _options(address if is_endpoint else base, options))


class _ClientErrors(ResponseErrors):
    """Errors for people: a wrong port or an encrypted one is named, not the library's failure to parse it."""

    def from_rpc(self, error: grpc.aio.AioRpcError) -> ClientError:
        return tls.with_advice(self.address, super().from_rpc(error))


def _options(
    address: str, options: CallOptions, headers: Mapping[str, str] | None = None, *, prefix: str = ""
) -> TransportOptions:
    limits = TransportLimits(response_timeout=options.idle_timeout, idle_timeout=options.idle_timeout)
    return TransportOptions(
        errors=_ClientErrors(address),
        limits=limits,
        headers=headers or {},
        v03_files=options.v03_files,
        rest_prefix=prefix,
        trace=options.trace,
    )
