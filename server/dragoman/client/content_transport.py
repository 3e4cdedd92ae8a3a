"""A transport whose responses are whole: contents behind links of the server are in their parts.

Servers leave large contents out of a response and link to them. Nothing above this module sees such a link, unless
its receiver keeps it. Lists of tasks are the exception: their reader restores one task at a time.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from google.protobuf.message import Message

from dragoman.calling.contents import MAX_CONTENT_BYTES, ContentAbsent, content_chunks, read_part
from dragoman.calling.transport import StreamResponses, Transport
from dragoman.wire.content_links import ContentLink, content_links
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

if TYPE_CHECKING:
    from dragoman.client.http_client import AiohttpClient

ContentReceiver = Callable[[ContentLink, AsyncGenerator[bytes, None]], Awaitable[pb.Part]]
"""Returns the part that replaces a link; reads the content from the chunks, and closes them."""

GET_ATTEMPTS: Final = 3
"""Reads of a task whose contents are replaced while they are read."""


class ContentTransport:
    """Wraps the transport to a server. Implements `Transport`."""

    def __init__(
        self,
        transport: Transport,
        addresses: Sequence[str],
        open_http: Callable[[str], AiohttpClient],
        *,
        idle_timeout: float | None = None,
        receive: ContentReceiver = read_part,
    ) -> None:
        """addresses: of the server, see `content_link`. open_http: opens a client without credentials for an origin."""
        self._transport = transport
        self._addresses = addresses
        self._open_http = open_http
        self._idle_timeout = idle_timeout
        self._receive = receive
        self._clients: dict[str, AiohttpClient] = {}
        """By origin."""

    async def call(
        self, rpc: str, request: Message, *, key: str = "", parent: str = "", extensions: str = ""
    ) -> Message:
        attempt = 0
        while True:
            attempt += 1
            response = await self._transport.call(rpc, request, key=key, parent=parent, extensions=extensions)
            try:
                await self.restore(response)
            except ContentAbsent:
                if rpc != "GetTask" or attempt == GET_ATTEMPTS:
                    raise
            else:
                return response

    async def stream(
        self, rpc: str, request: Message, *, after: str = "", key: str = "", parent: str = "", extensions: str = ""
    ) -> StreamResponses:
        stream = self._transport.stream(rpc, request, after=after, key=key, parent=parent, extensions=extensions)
        async with aclosing(stream) as events:
            async for event in events:
                await self.restore(event)
                yield event

    async def restore(self, response: Message) -> None:
        """Replaces the links of a response, or of a task, in place. Raises ClientError."""
        for link in content_links(response, self._addresses):
            chunks = content_chunks(
                self._http(link.url), link, limit=MAX_CONTENT_BYTES, idle_timeout=self._idle_timeout
            )
            link.part.CopyFrom(await self._receive(link, chunks))

    async def close(self) -> None:
        await self._transport.close()
        while self._clients:
            await self._clients.popitem()[1].close()

    def _http(self, url: str) -> AiohttpClient:
        server = urlsplit(url)
        origin = f"{server.scheme}://{server.netloc}"
        if origin not in self._clients:
            self._clients[origin] = self._open_http(origin)
        return self._clients[origin]
