"""The client's transports, whose responses are whole: contents behind links of the server are in their parts.

Servers leave large contents out of a response and link to them. Nothing above this module sees such a link, unless
its receiver keeps it. Lists of tasks are the exception: their reader restores one task at a time.

Imports aiohttp for HTTP addresses only, and gRPC for gRPC addresses only.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Unpack
from urllib.parse import urlsplit

from google.protobuf.message import Message

from dragoman.calling import tls
from dragoman.calling.contents import ContentAbsent, content_chunks, read_part
from dragoman.calling.errors import ClientError, ResponseErrors
from dragoman.calling.transport import (
    CallFields,
    StreamResponses,
    Transport,
    TransportLimits,
    TransportOptions,
    WireTrace,
    extensions_header,
    no_wire_trace,
)
from dragoman.core.agent_sources import FileForm
from dragoman.core.cards.agent_spec import RESUME_EXTENSION
from dragoman.wire.cards.remote_card import Interface
from dragoman.wire.content_links import ContentLink, content_links
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

if TYPE_CHECKING:
    import grpc

    from dragoman.client.http_client import AiohttpClient

ContentReceiver = Callable[[ContentLink, AsyncGenerator[bytes, None]], Awaitable[pb.Part]]
"""Returns the part that replaces a link; reads the content from the chunks, and closes them."""

GET_ATTEMPTS: Final = 3  # of a task whose contents are replaced while they are read

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

    token: str = field(default="", repr=False)  # an API key or any other bearer token
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)  # headers of each call; metadata over gRPC
    extensions: str = RESUME_EXTENSION.uri  # URIs that each call activates, separated by commas
    trace: WireTrace = no_wire_trace
    ca: Path | None = None
    cert: Path | None = None
    v03_files: FileForm = "bytes"  # the form of files in 0.3 over gRPC and REST
    idle_timeout: float | None = None
    """Seconds without a byte after which an HTTP stream or a response counts as broken; None for no limit. The response
    to a send has no limit: some servers respond only when the task has ended."""
    receive_content: ContentReceiver = read_part  # reads the contents that responses link to

    @property
    def request_headers(self) -> dict[str, str]:
        return {**({"Authorization": f"Bearer {self.token}"} if self.token else {}), **self.headers}

    async def grpc_channel(self, address: str) -> grpc.aio.Channel:
        """Opens a channel with a connection of its own. Raises ClientError for unusable certificate files."""
        return tls.grpc_channel(address, _CHANNEL_OPTIONS, ca=self.ca, cert=self.cert)

    def for_transport(self, address: str, headers: Mapping[str, str], *, prefix: str = "") -> TransportOptions:
        """The options of a transport. headers: of each call; an HTTP client may have them instead."""
        return TransportOptions(
            errors=_ClientErrors(address),
            limits=TransportLimits(response_timeout=self.idle_timeout, idle_timeout=self.idle_timeout),
            headers=headers,
            v03_files=self.v03_files,
            rest_prefix=prefix,
            trace=self.trace,
        )


def open_transport(interface: Interface, options: CallOptions) -> Transport:
    """Opens the transport to an interface. Requires a running event loop. The URL of a gRPC interface is
    `grpc(s)://HOST:PORT` or HOST:PORT. The binding `WEBSOCKET`, which no card has, is JSON-RPC over WebSocket. Raises
    ClientError for unusable certificate files; over gRPC the first call does."""
    url, dialect = interface.url, interface.dialect
    headers = {"A2A-Version": dialect, extensions_header(dialect): options.extensions, **options.request_headers}
    if interface.binding == "GRPC":
        from dragoman.calling.transport_grpc import GrpcTransport

        grpc_dialect = "0.3" if dialect == "0.3" else "1.0"
        return GrpcTransport(
            replace(interface, dialect=grpc_dialect),
            options.for_transport(url, {**headers, "A2A-Version": grpc_dialect}),
            connect=lambda: options.grpc_channel(url),
            keeps_channels=True,
        )
    from dragoman.calling.transport_http import HttpTransport, JsonRpcTransport, RestTransport
    from dragoman.client.http_client import AiohttpClient, WebSocketTransport

    base = url.rstrip("/")
    http = AiohttpClient(base, options, headers)
    kinds = {"HTTP+JSON": RestTransport, "WEBSOCKET": WebSocketTransport}
    kind: type[HttpTransport] = kinds.get(interface.binding, JsonRpcTransport)
    return kind(interface, http, options.for_transport(base, {}, prefix=interface.tenant))


class _ClientErrors(ResponseErrors):
    """Errors for people: a wrong port or an encrypted one is named, not the library's failure to parse it."""

    def from_rpc(self, error: grpc.aio.AioRpcError) -> ClientError:
        return tls.with_advice(self.address, super().from_rpc(error))


@dataclass(eq=False)
class ContentTransport:
    """Wraps the transport to a server. Implements `Transport`."""

    _transport: Transport
    _addresses: Sequence[str]  # of the server, from which contents are fetched, see `content_links`
    _options: CallOptions
    _clients: dict[str, AiohttpClient] = field(default_factory=dict, init=False)  # by origin, without credentials

    async def call(self, rpc: str, request: Message, **fields: Unpack[CallFields]) -> Message:
        attempts = GET_ATTEMPTS if rpc == "GetTask" else 1
        while True:
            attempts -= 1
            response = await self._transport.call(rpc, request, **fields)
            try:
                await self.restore(response)
                return response
            except ContentAbsent:
                if not attempts:
                    raise

    async def stream(self, rpc: str, request: Message, **fields: Unpack[CallFields]) -> StreamResponses:
        stream = self._transport.stream(rpc, request, **fields)
        async with aclosing(stream) as events:
            async for event in events:
                await self.restore(event)
                yield event

    async def restore(self, response: Message) -> None:
        """Replaces the links of a response, or of a task, in place. Raises ClientError."""
        for link in content_links(response, self._addresses):
            chunks = content_chunks(self._http(link.url), link, idle_timeout=self._options.idle_timeout)
            link.part.CopyFrom(await self._options.receive_content(link, chunks))

    async def close(self) -> None:
        await self._transport.close()
        while self._clients:
            await self._clients.popitem()[1].close()

    def _http(self, url: str) -> AiohttpClient:
        from dragoman.client.http_client import AiohttpClient

        server = urlsplit(url)
        origin = f"{server.scheme}://{server.netloc}"
        if origin not in self._clients:
            self._clients[origin] = AiohttpClient(origin, self._options, {})
        return self._clients[origin]
