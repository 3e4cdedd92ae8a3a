"""Opens the client's transports: aiohttp sessions, gRPC channels, and JSON-RPC over WebSocket."""

from __future__ import annotations

import socket
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import aiohttp
import orjson
from google.protobuf.message import Message

from dragoman.calling import tls
from dragoman.calling.errors import (
    AUTH_ERROR_CODES,
    ClientError,
    Invalid,
    NotAllowed,
    ResponseErrors,
    ServerUnavailable,
)
from dragoman.calling.transport import (
    HttpResponse,
    StreamResponses,
    Transport,
    TransportLimits,
    TransportOptions,
    WireTrace,
    extensions_header,
    no_wire_trace,
)
from dragoman.calling.transport_grpc import GrpcTransport
from dragoman.calling.transport_http import JsonRpcTransport, RestTransport
from dragoman.core.agent_sources import FileForm
from dragoman.core.cards.agent_spec import RESUME_EXTENSION
from dragoman.wire.cards.remote_card import Interface

HTTP_CONNECT_TIMEOUT: Final = 10.0

_CHANNEL_OPTIONS: Final = (
    # The server limits sizes; a limit here would only hide its error.
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    # Detects a dead server while a stream is idle.
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
)

_KEEPALIVE_OPTIONS: Final = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
"""Idle seconds before the first probe, seconds between two, and how many may stay unanswered."""


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
    v03_files: FileForm = "auto"
    """The form of files in 0.3 over gRPC and REST."""
    idle_timeout: float | None = None
    """Seconds without a byte after which an HTTP stream or a response counts as broken; None for no limit. The response
    to a send has no limit: some servers respond only when the task has ended."""

    @property
    def request_headers(self) -> dict[str, str]:
        """The token and the headers of every call."""
        return {**({"Authorization": f"Bearer {self.token}"} if self.token else {}), **self.headers}


class AiohttpClient:
    """One aiohttp session. Implements `HttpClient`. Requires a running event loop."""

    def __init__(self, url: str, options: CallOptions, headers: Mapping[str, str]) -> None:
        """`url`: the server's URL, for error messages. `headers`: sent with each request. Raises ClientError for
        unusable certificate files."""
        self._url = url
        context = tls.ssl_context(options.ca, options.cert) if url.startswith("https:") else True
        # No total timeout: streams last as long as their tasks.
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=HTTP_CONNECT_TIMEOUT, sock_read=options.idle_timeout)
        connector = aiohttp.TCPConnector(ssl=context, socket_factory=_keepalive_socket)
        self.session = aiohttp.ClientSession(timeout=timeout, headers=headers, connector=connector)

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
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=HTTP_CONNECT_TIMEOUT, sock_read=idle_timeout)
        try:
            async with self.session.request(
                method, url, data=body, headers=headers, timeout=timeout, allow_redirects=False
            ) as response:
                yield _AiohttpResponse(response)
        except aiohttp.ClientError as error:
            raise connection_error(self._url, error) from error

    async def close(self) -> None:
        await self.session.close()


class _AiohttpResponse:
    """Implements `HttpResponse`."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.status = response.status
        self.headers = {name.lower(): value for name, value in response.headers.items()}
        self.chunks: Callable[[], AsyncIterator[bytes]] = response.content.iter_any


def connection_error(address: str, error: aiohttp.ClientError) -> ClientError:
    """The error of a connection that failed or broke."""
    if isinstance(error, aiohttp.InvalidURL):
        return Invalid("INVALID_ARGUMENT", f"{address}: is not a URL that can be called")
    never_connected = isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError)
    return ServerUnavailable.for_address(address, error, may_have_arrived=not never_connected)


def _keepalive_socket(address: aiohttp.AddrInfoType) -> socket.socket:
    """Creates a socket with TCP keep-alive: some responses take long, and a dead server must be detected meanwhile."""
    connection = socket.socket(*address[:3])
    connection.setblocking(False)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE_OPTIONS.items():
        if hasattr(socket, name):  # not every system has these options
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return connection


def open_transport(
    address: str, dialect: str, binding: str, agent: str, options: CallOptions, *, is_endpoint: bool = False
) -> Transport:
    """Opens the transport to one agent. Requires a running event loop.

    `is_endpoint`: the address is an interface's, as in a card, not the server's. Raises ClientError for unusable
    certificate files.
    """
    headers = {
        "A2A-Version": dialect,
        extensions_header(dialect): options.extensions,
        **options.request_headers,
    }
    if binding == "grpc":
        channel = tls.grpc_channel(address, _CHANNEL_OPTIONS, ca=options.ca, cert=options.cert)
        grpc_dialect = "0.3" if dialect == "0.3" else "1.0"
        headers["A2A-Version"] = grpc_dialect
        return GrpcTransport(
            Interface(address, "GRPC", grpc_dialect, agent), _options(address, options, headers), channel=channel
        )
    base = address.rstrip("/")
    http = AiohttpClient(base, options, headers)
    if binding == "rest":
        return RestTransport(Interface(base, "HTTP+JSON", dialect, agent), http, _options(base, options, prefix=agent))
    url = address if is_endpoint else f"{base}/{agent}"
    interface = Interface(url, "JSONRPC", dialect, agent)
    if binding == "ws":
        return WebSocketTransport(interface, http, _options(base, options))
    return JsonRpcTransport(interface, http, _options(address if is_endpoint else base, options))


def _options(
    address: str, options: CallOptions, headers: Mapping[str, str] | None = None, *, prefix: str = ""
) -> TransportOptions:
    limits = TransportLimits(response_timeout=options.idle_timeout, idle_timeout=options.idle_timeout)
    return TransportOptions(
        errors=ResponseErrors(address),
        limits=limits,
        headers=headers or {},
        v03_files=options.v03_files,
        rest_prefix=prefix,
        trace=options.trace,
    )


class WebSocketTransport(JsonRpcTransport):
    """JSON-RPC over WebSocket, with one connection for each call. Implements `Transport`."""

    def __init__(self, interface: Interface, http: AiohttpClient, options: TransportOptions) -> None:
        super().__init__(interface, http, options)
        self._session = http.session

    async def call(
        self, rpc: str, request: Message, *, key: str = "", parent: str = "", extensions: str = ""
    ) -> Message:
        operation, _, _, envelope = self._encode(rpc, request)
        headers = self._call_headers(key=key, parent=parent, extensions=extensions)
        async with aclosing(self._responses(envelope, headers)) as values:
            async for value in values:
                return self._decode(operation, self._event_result(value))
        raise ServerUnavailable.for_address(self._errors.address, "the connection closed without a response")

    async def stream(
        self, rpc: str, request: Message, *, after: str = "", key: str = "", parent: str = "", extensions: str = ""
    ) -> StreamResponses:
        operation, _, _, envelope = self._encode(rpc, request)
        headers = self._call_headers(after=after, key=key, parent=parent, extensions=extensions)
        async with aclosing(self._responses(envelope, headers)) as values:
            async for value in values:
                result = self._event_result(value)
                if result == {"status": "stream_complete"}:
                    return
                yield self._decode_event(operation, result)

    async def _responses(self, envelope: dict[str, Any], headers: Mapping[str, str]) -> AsyncGenerator[Any, None]:
        url = f"{self.interface.url.rstrip('/')}/ws"
        self._trace(">", f"WebSocket {url.removeprefix(self._errors.address)}")
        try:
            async with self._session.ws_connect(url, max_msg_size=0, headers=headers) as connection:
                text = orjson.dumps(envelope).decode()
                self._trace(">", text)
                await connection.send_str(text)
                async for frame in connection:
                    if frame.type is aiohttp.WSMsgType.TEXT:
                        self._trace("<", frame.data)
                        yield orjson.loads(frame.data)
        except aiohttp.WSServerHandshakeError as error:
            if code := AUTH_ERROR_CODES.get(error.status):
                message = "the server rejected these credentials, or requires some"
                raise NotAllowed(code, message, reason=code) from error
            raise ClientError.from_response(error.status, error.headers or {}, None) from error
        except aiohttp.ClientError as error:
            raise connection_error(self._errors.address, error) from error
