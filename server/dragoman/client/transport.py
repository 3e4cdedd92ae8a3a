"""The client's transports, whose responses are whole: contents behind links of the server are in their parts.

Servers leave large contents out of a response and link to them. Nothing above this module sees such a link, unless
its receiver keeps it. Lists of tasks are the exception: their reader restores one task at a time.

Imports aiohttp for HTTP addresses only, and gRPC for gRPC addresses only.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Unpack
from urllib.parse import urlsplit

from google.protobuf.message import Message

from dragoman.calling.contents import ContentAbsent, content_chunks
from dragoman.calling.transport import CallFields, StreamResponses, Transport, extensions_header
from dragoman.client.options import CallOptions
from dragoman.wire.cards.remote_card import Interface
from dragoman.wire.content_links import content_links

if TYPE_CHECKING:
    from dragoman.client.http_client import AiohttpClient

GET_ATTEMPTS: Final = 3  # of a task whose contents are replaced while they are read


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
