"""HTTP connections that serve plain unary calls themselves, without aiohttp's objects for requests and responses.

Each connection begins here. A *plain* request is a complete GET, POST or DELETE of at most MAX_PLAIN_BYTES with a body
of known length, without anything that changes how the connection or the response is treated. It is parsed by httptools
(llhttp, aiohttp's parser too) and answered in one write. At the first other request the connection, with the bytes not
yet answered, goes to aiohttp and stays there: streams, WebSocket, pages, large or slow bodies, invalid HTTP.

aiohttp adds 35 to 45 µs of CPU to each request. Its bare handler takes 57 µs with 64 callers, and 85 µs with one.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from email.utils import formatdate
from functools import cached_property, lru_cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import httptools
from multidict import CIMultiDict, MultiMapping
from yarl import URL

from dragoman.supervision import log_fault

if TYPE_CHECKING:
    from dragoman.bindings.http.connections import HttpConnection, HttpConnections

_log: Final = logging.getLogger("dragoman.http")

MAX_PLAIN_BYTES: Final = 16 * 1024
"""Maximum bytes of a plain request, head and body. Larger ones are counted and timed while they arrive (aiohttp)."""

MAX_PLAIN_TARGET_BYTES: Final = 2048
MAX_PLAIN_HEADERS: Final = 64
"""Far below the limits of requests, which aiohttp enforces."""

_PLAIN_METHODS: Final = frozenset({"GET", "POST", "DELETE"})

_SPECIAL_HEADERS: Final = frozenset(
    {
        "access-control-request-method",
        "connection",
        "content-encoding",
        "expect",
        "origin",
        "sec-fetch-site",
        "transfer-encoding",
        "upgrade",
        "x-request-id",
    }
)
"""Headers that change how a connection or a response is treated. `Connection: keep-alive` changes nothing."""


REQUEST_TIMEOUT_RESPONSE: Final = b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


class Response(NamedTuple):
    """A complete response. `body`: its content, also if it is empty."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class HandOver(BaseException):
    """The call needs aiohttp's request: it was taken for a plain one, and nothing has been done yet."""


class PlainRequest:
    """A complete request. It has the attributes of aiohttp's request that unary calls read."""

    def __init__(self, method: str, target: str, headers: CIMultiDict[str], body: bytes, transport: Any) -> None:
        self.method = method
        self.path, _, self.query_string = target.partition("?")
        self.headers = headers
        self.body = body
        self.transport = transport
        self._target = target

    @cached_property
    def query(self) -> MultiMapping[str]:
        return URL(self._target, encoded=True).query

    @property
    def can_read_body(self) -> bool:
        return bool(self.body)

    @property
    def remote(self) -> str:
        """The client's address."""
        peer = self.transport.get_extra_info("peername")
        return str(peer[0]) if peer else ""


class PlainParser:
    """Parses the requests of a connection, one at a time."""

    def __init__(self) -> None:
        self._parser = httptools.HttpRequestParser(self)
        self._target = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._body = b""
        self._content_length = 0
        self.is_complete = False
        self.is_plain = True
        """Whether nothing seen so far is special."""

    def feed(self, data: bytes) -> None:
        """Takes received bytes; `is_complete` and `is_plain` then tell what they are."""
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self.is_plain = False

    def take(self, transport: Any) -> PlainRequest | None:
        """Returns the complete request, and begins with the next; None if it is not plain."""
        try:
            method = self._parser.get_method().decode("ascii")
            target = self._target.decode("ascii")
            headers = CIMultiDict((name.decode("ascii"), value.decode("ascii")) for name, value in self._headers)
        except UnicodeDecodeError:
            return None
        if (
            method not in _PLAIN_METHODS
            or not target.startswith("/")
            or target.startswith("//")
            or "#" in target
            or self._parser.get_http_version() != "1.1"
        ):
            return None
        body, self._body = self._body, b""
        self._target, self._headers, self._content_length, self.is_complete = b"", [], 0, False
        return PlainRequest(method, target, headers, body, transport)

    # Called by httptools.

    def on_message_begin(self) -> None:
        if self.is_complete:  # a second request in the same bytes
            self.is_plain = False

    def on_url(self, part: bytes) -> None:
        self._target += part
        if len(self._target) > MAX_PLAIN_TARGET_BYTES:
            self.is_plain = False

    def on_header(self, name: bytes, value: bytes) -> None:
        lower = name.lower().decode("latin-1")
        if lower in _SPECIAL_HEADERS and not (lower == "connection" and value.lower() == b"keep-alive"):
            self.is_plain = False
        if lower == "content-length":
            self._content_length = int(value)
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        if self._content_length > MAX_PLAIN_BYTES or len(self._headers) > MAX_PLAIN_HEADERS:
            self.is_plain = False

    def on_body(self, part: bytes) -> None:
        self._body += part

    def on_message_complete(self) -> None:
        self.is_complete = True


class PlainConnection(asyncio.Protocol):
    """One connection, until its first request that is not plain."""

    def __init__(self, connections: HttpConnections) -> None:
        self._connections = connections
        self._parser = PlainParser()
        self._pending = b""
        """Bytes of requests without a response."""
        self._task: asyncio.Task[None] | None = None
        self._receiving_since = connections.clock()
        """When the connection was made, or the request being received began; 0: none is being received."""
        self._idle_since = 0.0
        self._is_closing = False
        self._unsent_bytes = 0
        self._stalled_since = 0.0
        self.transport: Any = None
        self.is_over_limit = False

    unread_bytes = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self._connections.add(self)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._connections.remove(self)
        self.transport = None
        if self._task is not None:
            self._task.cancel()

    def data_received(self, data: bytes) -> None:
        if not self._receiving_since:
            self._receiving_since = self._connections.clock()
        self._pending += data
        if self._task is not None:  # a client that does not wait for the response
            if len(self._pending) > 2 * MAX_PLAIN_BYTES:
                self.transport.pause_reading()
            return
        self._parser.feed(data)
        if self.is_over_limit or not self._parser.is_plain or len(self._pending) > MAX_PLAIN_BYTES:
            self._hand_over()
        elif self._parser.is_complete:
            self._serve()

    def _serve(self) -> None:
        request = self._parser.take(self.transport)
        response = request and self._connections.plain_call(request)
        if not response:
            self._hand_over()
            return
        self._connections.idle_connections.pop(self, None)
        self._task = asyncio.get_running_loop().create_task(self._respond(response, len(self._pending)))

    async def _respond(self, response: Any, size: int) -> None:
        """Writes the response to a request of `size` bytes."""
        try:
            answer = await response
        except HandOver:
            self._task = None
            self._hand_over()
            return
        except Exception as error:  # the pipeline answers all errors of a call
            log_fault(_log, "a request failed", error)
            self.drop()
            return
        if self.transport is None:
            return
        self.transport.write(encode_response(answer))
        self._task = None
        self._receiving_since, self._idle_since = 0.0, self._connections.clock()
        if self._is_closing:
            self.transport.close()
            return
        self._connections.idle_connections[self] = None
        later, self._pending = self._pending[size:], b""
        if later:
            self.transport.resume_reading()
            self.data_received(later)

    def _hand_over(self) -> HttpConnection | None:
        """Gives the connection to aiohttp, with the bytes that have no response yet; None if it is closed."""
        transport, received = self.transport, self._pending
        self._connections.remove(self)
        self.transport, self._pending = None, b""
        if transport is None or transport.is_closing():
            return None
        if self._is_closing:
            transport.close()
            return None
        connection = self._connections.full_connection(self._receiving_since)
        transport.set_protocol(connection)
        connection.connection_made(transport)
        transport.resume_reading()
        connection.data_received(received)
        return connection

    def pause_writing(self) -> None:
        """The client does not read: no further request is served until it does."""
        self.transport.pause_reading()

    def resume_writing(self) -> None:
        self.transport.resume_reading()

    def drop(self) -> None:
        """Closes the connection at once."""
        self._connections.remove(self)
        if self.transport is not None:
            self.transport.abort()

    def check_timeouts(self, now: float) -> None:
        """Closes an idle or stalled connection. aiohttp goes on with a request that has not arrived in a second."""
        timeouts = self._connections.timeouts
        if self.transport is None:
            return
        unsent = self.transport.get_write_buffer_size()
        if not unsent or unsent < self._unsent_bytes:
            self._stalled_since = 0.0
        elif not self._stalled_since:
            self._stalled_since = now
        elif now - self._stalled_since > timeouts.stalled:
            self.drop()
        self._unsent_bytes = unsent
        if self._task is not None:
            return
        if self._pending:
            connection = self._hand_over()
            if connection is not None:
                connection.check_timeouts(now)
        elif not self._receiving_since:
            if now - self._idle_since > timeouts.idle:
                self.transport.close()
        elif now - self._receiving_since > timeouts.head:
            self.transport.write(REQUEST_TIMEOUT_RESPONSE)
            self.transport.close()

    async def shutdown(self, grace: float) -> None:
        """Closes the connection, a request that is being served at the latest after `grace` seconds."""
        self._is_closing = True
        task = self._task
        if task is None:
            if self.transport is not None:
                self.transport.close()
            return
        if not (await asyncio.wait((task,), timeout=grace))[0]:
            task.cancel()
            await asyncio.wait((task,), timeout=grace)
            self.drop()


def encode_response(response: Response) -> bytes:
    """The bytes of a response. Raises ValueError for a header value with a line break."""
    head = [_status_line(response.status)]
    for name, value in response.headers.items():
        if "\n" in value or "\r" in value:
            raise ValueError(f"the value of the header {name} has a line break")
        head.append(f"{name}: {value}\r\n")
    head.append(f"Content-Length: {len(response.body)}\r\nDate: {_http_date(int(time.time()))}\r\n\r\n")
    return "".join(head).encode("latin-1") + response.body


@lru_cache(maxsize=64)
def _status_line(status: int) -> str:
    return f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n"


@lru_cache(maxsize=2)
def _http_date(second: int) -> str:
    return formatdate(second, usegmt=True)


PlainCall = Callable[[PlainRequest], Awaitable[Response] | None]


def no_plain_call(_: PlainRequest) -> None:
    """For a server whose requests are all served by aiohttp."""
