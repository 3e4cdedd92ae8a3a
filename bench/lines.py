"""A line to a server: one connection that carries what `bench.asking` writes, over gRPC or HTTP/1.1."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from bench import http1, http2
from bench.asking import HEADERS, Form, Wire


class Wrong(Exception):
    """An answer that is not the right one."""


class Line(Protocol):
    """Asks one thing at a time. Both verbs raise Wrong, or OSError when the connection breaks."""

    @property
    def head_size(self) -> int:
        """Bytes of the last answer's headers as they came, less the trailers; 0 where nobody needs them."""
        ...

    async def ask(self, wire: Wire) -> bytes:
        """The body, or the message, of an answer that is not an error."""
        ...

    async def follow(self, wire: Wire, arrived: Callable[[int], None]) -> None:
        """Tells how many artifact events came (0: something else did), as they come, until the stream ends."""
        ...

    def close(self) -> None: ...


class HttpLine:
    """REST and JSON-RPC."""

    head_size = 0

    def __init__(self, connection: http1.Connection, target: str, form: Form) -> None:
        self._connection = connection
        self._target = target
        self._marker = form.marker
        self._written: dict[Wire, bytes] = {}

    async def ask(self, wire: Wire) -> bytes:
        answer = await self._connection.ask(self._bytes(wire))
        head, _, body = answer.partition(b"\r\n\r\n")
        _accept(head, answer)
        if b"chunked" in head.lower():
            raise Wrong("a stream instead of an answer")
        return body

    async def follow(self, wire: Wire, arrived: Callable[[int], None]) -> None:
        head = await self._connection.follow(self._bytes(wire), self._marker, arrived)
        _accept(head, head)

    def close(self) -> None:
        self._connection.close()

    def _bytes(self, wire: Wire) -> bytes:
        written = self._written.get(wire)
        if written is None:
            written = http1.request(wire.method, self._target, wire.path, wire.body, HEADERS)
            self._written[wire] = written
        return written


class GrpcLine:
    """gRPC."""

    def __init__(self, connection: http2.Connection, target: str, form: Form) -> None:
        self._connection = connection
        self._target = target
        self._marker = form.marker[0]
        self._heads: dict[str, bytes] = {}

    @property
    def head_size(self) -> int:
        return self._connection.head_size

    async def ask(self, wire: Wire) -> bytes:
        try:
            return await self._connection.ask(self._head(wire), wire.body)
        except http2.CallFailed as failed:
            raise Wrong(str(failed)) from None

    async def follow(self, wire: Wire, arrived: Callable[[int], None]) -> None:
        marker = self._marker
        try:
            await self._connection.follow(self._head(wire), wire.body, lambda event: arrived(event[0] == marker))
        except http2.CallFailed as failed:
            raise Wrong(str(failed)) from None

    def close(self) -> None:
        self._connection.close()

    def _head(self, wire: Wire) -> bytes:
        head = self._heads.get(wire.path)
        if head is None:
            metadata = {name.lower(): value for name, value in HEADERS.items()}
            head = self._heads[wire.path] = http2.head(self._target, wire.path, metadata)
        return head


async def connect(binding: str, target: str, form: Form) -> Line:
    """A new line over `grpc`, `rest` or `jsonrpc` to HOST:PORT."""
    if binding == "grpc":
        return GrpcLine(await http2.Connection.open(target), target, form)
    return HttpLine(await http1.Connection.open(target), target, form)


def _accept(head: bytes, answer: bytes) -> None:
    if not head.startswith(b"HTTP/1.1 200"):
        raise Wrong(answer[:500].decode("utf-8", "replace"))
