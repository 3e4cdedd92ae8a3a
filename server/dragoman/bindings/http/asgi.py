"""ASGI exchanges, served as connections in memory by the server of the HTTP port (ASGI HTTP specification 2.5).

An exchange becomes an HTTP/1.1 connection with one request. So the limits of a body, the wait for a slow reader, the
cancel of a disconnected call and the frames of a stream have one place, for the port and for a host application.
"""

# The alternative, aiohttp's request and response objects without its connection, needs constructors and attributes that
# are private to aiohttp, and its flow control again.

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from typing import Any, Final
from urllib.parse import quote, unquote

import httptools

from dragoman.bindings.cards import MOUNT_PATH
from dragoman.bindings.http.connections import HttpConnection, HttpConnections

Scope = MutableMapping[str, Any]
AsgiMessage = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[AsgiMessage]]
Send = Callable[[AsgiMessage], Awaitable[None]]

UNSENT_BYTES: Final = 64 * 1024
"""Bytes of a response that the host has not taken, from which on its stream waits."""

_NOT_FORWARDED: Final = frozenset((
    b"connection", b"content-length", b"expect", b"keep-alive", b"proxy-connection", b"te", b"trailer",
    b"transfer-encoding", b"upgrade",
))  # fmt: skip
"""Headers of a request that concern the host's connection (RFC 9110 §7.6.1), or the framing of its body."""
_NOT_RETURNED: Final = frozenset((b"connection", b"date", b"keep-alive", b"server", b"transfer-encoding"))
"""Headers of a response that the host's server writes."""


class MemoryTransport(asyncio.Transport):
    """Our server's end of one exchange."""

    def __init__(self, scope: Scope, mount_path: str) -> None:
        """`mount_path`: where the application is mounted, without a slash at its end."""
        super().__init__(
            {
                "peername": tuple(scope.get("client") or ("", 0)),
                "sslcontext": scope.get("scheme") == "https" or None,  # aiohttp reads the scheme from it
                MOUNT_PATH: quote(mount_path),
            }
        )
        self._unsent = bytearray()
        self._changed = asyncio.Event()
        self.readable = asyncio.Event()  # set while the server takes more of the body
        self.readable.set()
        self._is_closing = False
        self._is_lost = False  # the server knows that the connection has ended
        self._is_paused = False
        self._protocol: Any = None

    # Called by aiohttp.

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        if self._is_closing:
            return
        self._unsent += data
        self._changed.set()
        if len(self._unsent) > UNSENT_BYTES and not self._is_paused:
            self._is_paused = True
            self._protocol.pause_writing()

    def get_write_buffer_size(self) -> int:
        return len(self._unsent)

    def pause_reading(self) -> None:
        self.readable.clear()

    def resume_reading(self) -> None:
        self.readable.set()

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        self._is_closing = True
        self._changed.set()

    def abort(self) -> None:
        """Ends the connection at once; a call that is being served is canceled."""
        self._unsent.clear()
        self.close()
        if not self._is_lost:
            self._is_lost = True
            asyncio.get_running_loop().call_soon(self._protocol.connection_lost, None)

    # Called by the exchange.

    async def written(self) -> bytes:
        """The bytes that are written and not acknowledged; empty when there will be no more."""
        while not self._unsent and not self._is_closing:
            self._changed.clear()
            await self._changed.wait()
        return bytes(self._unsent)

    def acknowledge(self, size: int) -> None:
        """The host has taken `size` bytes: what waits for a slow reader goes on."""
        del self._unsent[:size]
        if self._is_paused and len(self._unsent) <= UNSENT_BYTES:
            self._is_paused = False
            self._protocol.resume_writing()


class ResponseReader:
    """Turns the bytes of a response into ASGI messages, with httptools' callbacks."""

    def __init__(self, method: str) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._is_head = method == "HEAD"  # whose response has a length and no body
        self.headers: list[tuple[bytes, bytes]] = []
        self._messages: list[AsgiMessage] = []
        self.is_complete = False

    def feed(self, data: bytes) -> list[AsgiMessage]:
        if not self.is_complete:
            self._parser.feed_data(data)
        messages, self._messages = self._messages, []
        return messages

    def on_header(self, name: bytes, value: bytes) -> None:
        if (lower := name.lower()) not in _NOT_RETURNED:
            self.headers.append((lower, value))

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        self._messages.append({"type": "http.response.start", "status": status, "headers": self.headers})
        if self._is_head:
            self.on_message_complete()

    def on_body(self, part: bytes) -> None:
        self._messages.append({"type": "http.response.body", "body": part, "more_body": True})

    def on_message_complete(self) -> None:
        if not self.is_complete:
            self._messages.append({"type": "http.response.body", "body": b"", "more_body": False})
        self.is_complete = True


class AsgiExchange:
    """One request and its response."""

    def __init__(self, connections: HttpConnections, scope: Scope, receive: Receive, send: Send) -> None:
        mount_path, self._target = split_path(scope)
        self._scope, self._receive, self._send = scope, receive, send
        self._transport = MemoryTransport(scope, mount_path)
        # Made in the host's task: the call runs in a copy of its context, with the variables that the host set.
        self._connection = HttpConnection(connections, connections.clock())
        self._transport.set_protocol(self._connection)
        self._response = ResponseReader(scope["method"])

    async def serve(self) -> None:
        """Returns when the response is complete, or the client has disconnected.

        Raises what the host's `receive` and `send` raise, and ValueError for a header with a line break.
        """
        self._connection.connection_made(self._transport)
        request = asyncio.create_task(self._forward_request(), name="asgi-request")
        try:
            await self._forward_response()
        finally:  # first of all: anyio's cancel scopes cancel this task again at each wait
            request.cancel()
            self._transport.abort()
        (fault,) = await asyncio.gather(request, return_exceptions=True)
        if isinstance(fault, Exception) and not self._response.is_complete:
            raise fault
        if fault is None and not self._response.headers:
            # The client has left. Some middleware of Starlette wants a response nevertheless: nginx logs this one, 499.
            with suppress(OSError):
                await self._send({"type": "http.response.start", "status": 499, "headers": []})
                await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _forward_request(self) -> None:
        """Forwards the request, then waits for a disconnect."""
        try:
            message = await self._receive()
            body, has_more = message.get("body", b""), message.get("more_body", False)
            # A length is only named for a body that is there: one that the host got wrong would begin a second request.
            framing = b"transfer-encoding: chunked" if has_more else b"content-length: %d" % len(body)
            head = request_head(self._scope, self._target, framing if body or has_more else b"")
            self._connection.data_received(head + (_chunk(body) if has_more else body))
            while message["type"] == "http.request":
                await self._transport.readable.wait()
                message = await self._receive()
                if has_more and message["type"] == "http.request":
                    has_more = message.get("more_body", False)
                    chunk = _chunk(message.get("body", b""))
                    self._connection.data_received(chunk if has_more else chunk + b"0\r\n\r\n")
        except OSError:  # of a host that reports a disconnect so
            pass
        finally:
            if self._response.is_complete:
                self._transport.close()
            else:
                self._transport.abort()

    async def _forward_response(self) -> None:
        """Forwards the response, until it is complete and the server has ended the connection."""
        while data := await self._transport.written():
            messages = self._response.feed(data)
            if self._response.is_complete:  # before the host ends the exchange, and with it a call that waits for this
                self._transport.acknowledge(len(data))
            for message in messages:
                try:
                    await self._send(message)
                except OSError:  # the client has disconnected (ASGI 2.4)
                    return
            if not self._response.is_complete:
                self._transport.acknowledge(len(data))


def _chunk(body: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(body), body) if body else b""


def request_head(scope: Scope, target: bytes, framing: bytes) -> bytes:
    """The head of a request. `framing`: the line that says how its body is sent; empty without a body.

    Raises ValueError for a header with a line break, which the host's server should have refused.
    """
    headers = [(name, value) for name, value in scope["headers"] if name.lower() not in _NOT_FORWARDED]
    if all(name.lower() != b"host" for name, _ in headers):  # of HTTP/1.0, or a host's test client
        headers.append((b"host", b"localhost"))
    lines = [b"%b %b HTTP/1.1" % (scope["method"].encode("ascii"), target), b"connection: close"]
    lines += [framing] if framing else []
    lines += [b"%b: %b" % (name, value) for name, value in headers]
    if any(b"\r" in line or b"\n" in line for line in lines):
        raise ValueError("a header of the request has a line break")
    return b"\r\n".join((*lines, b"", b""))


def split_path(scope: Scope) -> tuple[str, bytes]:
    """The path at which we are mounted, without a slash at its end, and the request target below it, percent-encoded.

    `path` begins with `root_path` (ASGI 3.0), but not with every framework; with Litestar there is no `root_path`, and
    `path` has a slash at its end. `raw_path` is what the client sent; some hosts have none.
    """
    root: str = scope.get("root_path", "").rstrip("/")
    path: str = scope["path"]
    below = path.removeprefix(root) if path == root or path.startswith(f"{root}/") else path
    raw = (scope.get("raw_path") or b"").partition(b"?")[0].decode("latin-1")
    encoded = quote(below)
    below = below if raw.endswith("/") else below.removesuffix("/")
    # Where its encoded form may begin in `raw`: up to four of its slashes may be encoded, too.
    slashes = [*(at for at, char in enumerate(raw) if char == "/"), len(raw)]
    first = max(0, len(slashes) - 1 - below.count("/"))
    for at in slashes[first : first + 5]:
        if unquote(raw[at:]) == below:
            root, encoded = root or unquote(raw[:at]), raw[at:]
            break
    target = (encoded if encoded.startswith("/") else f"/{encoded}").encode("latin-1")
    if query := scope.get("query_string"):
        target += b"?" + query
    # A space or control character, which no client sends, would end the request line.
    return root, _UNSAFE_BYTE.sub(lambda byte: b"%%%02X" % byte[0][0], target)


_UNSAFE_BYTE: Final = re.compile(rb"[^\x21-\x7e]")
