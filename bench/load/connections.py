"""Connections of the load to a server, over gRPC or HTTP/1.1, for the requests of `bench.load.codecs`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from tests.load.requests import HEADERS, WireRequest

from bench.load import http1, http2
from bench.load.codecs import Codec


class WrongResponse(Exception):
    """A response that is not the expected one."""


class Connection(Protocol):
    """One connection with one call at a time. Calls raise WrongResponse, and OSError for a broken connection."""

    @property
    def head_size(self) -> int:
        """Bytes of the last response's header block, without trailers; 0 over HTTP/1.1."""
        ...

    async def call(self, request: WireRequest) -> bytes:
        """Returns the body or message of a successful response."""
        ...

    async def stream(self, request: WireRequest, on_events: Callable[[int], None]) -> None:
        """Calls `on_events` with the number of artifact events received (0 for other data), until the stream ends."""
        ...

    def close(self) -> None: ...


class HttpConnection:
    """HTTP/1.1 connection, for REST and JSON-RPC. Implements `Connection`."""

    head_size = 0

    def __init__(self, connection: http1.Connection, target: str, codec: Codec) -> None:
        self._connection = connection
        self._target = target
        self._marker = codec.marker
        self._encoded: dict[WireRequest, bytes] = {}

    async def call(self, request: WireRequest) -> bytes:
        response = await self._connection.call(self._bytes(request))
        head, _, body = response.partition(b"\r\n\r\n")
        _check_status(head, response)
        if b"chunked" in head.lower():
            raise WrongResponse("a stream instead of a response")
        return body

    async def stream(self, request: WireRequest, on_events: Callable[[int], None]) -> None:
        head = await self._connection.stream(self._bytes(request), self._marker, on_events)
        _check_status(head, head)

    def close(self) -> None:
        self._connection.close()

    def _bytes(self, request: WireRequest) -> bytes:
        encoded = self._encoded.get(request)
        if encoded is None:
            encoded = http1.request(request.method, self._target, request.path, request.body, HEADERS)
            self._encoded[request] = encoded
        return encoded


class GrpcConnection:
    """gRPC connection. Implements `Connection`."""

    def __init__(self, connection: http2.Connection, target: str, codec: Codec) -> None:
        self._connection = connection
        self._target = target
        self._marker = codec.marker[0]
        self._heads: dict[str, bytes] = {}

    @property
    def head_size(self) -> int:
        return self._connection.head_size

    async def call(self, request: WireRequest) -> bytes:
        try:
            return await self._connection.call(self._head(request), request.body)
        except http2.CallFailed as failed:
            raise WrongResponse(str(failed)) from None

    async def stream(self, request: WireRequest, on_events: Callable[[int], None]) -> None:
        marker = self._marker
        await self.stream_messages(request, lambda event: on_events(event[0] == marker))

    async def stream_messages(self, request: WireRequest, on_message: Callable[[bytes], None]) -> None:
        """Calls `on_message` with each encoded StreamResponse, until the stream ends."""
        try:
            await self._connection.stream(self._head(request), request.body, on_message)
        except http2.CallFailed as failed:
            raise WrongResponse(str(failed)) from None

    def close(self) -> None:
        self._connection.close()

    def _head(self, request: WireRequest) -> bytes:
        head = self._heads.get(request.path)
        if head is None:
            metadata = {name.lower(): value for name, value in HEADERS.items()}
            head = self._heads[request.path] = http2.head(self._target, request.path, metadata)
        return head


async def connect(binding: str, target: str, codec: Codec) -> Connection:
    """Opens a connection over `grpc`, `rest` or `jsonrpc` to HOST:PORT."""
    if binding == "grpc":
        return GrpcConnection(await http2.Connection.open(target), target, codec)
    return HttpConnection(await http1.Connection.open(target), target, codec)


def _check_status(head: bytes, response: bytes) -> None:
    if not head.startswith(b"HTTP/1.1 200"):
        raise WrongResponse(response[:500].decode("utf-8", "replace"))
