"""Limits for misbehaving HTTP connections: count, timeouts, and which connection to drop at the limit.

A connection is *idle* from its beginning, or the end of its last answer, until the next request's head is complete.
When as many are open as may be, the one that has been idle for longest makes room for a new one, so whoever only holds
connections loses them first. When none is idle, a few more are let in all the same: they are told to come back later,
in the words of their dialect, and health is answered.

What aiohttp times by itself is an idle connection. The rest is looked at once a second, because a timer for each
request would cost more than all of this: heads and bodies that come too slowly, and answers that nobody takes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, Never

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError, LineTooLong

from dragoman.bindings.options import HttpTimeouts
from dragoman.bindings.request_log import AuthFailureLog
from dragoman.core.errors import Unavailable

OVERFLOW_CONNECTIONS: Final = 64
"""Connections beyond the limit that still get an error response."""

BODY_DISCARD_TIMEOUT: Final = 5.0
"""Seconds for which the rest of a rejected body is discarded, so its sender can read the error."""

CONNECTION_CHECK_INTERVAL: Final = 1.0
"""Seconds between two checks of all connections."""

MAX_REQUEST_LINE_BYTES: Final = 8190
"""Maximum bytes of a request line."""

MAX_HEADER_BYTES: Final = 16 * 1024
"""Maximum bytes of one header: larger than the credentials limit, so that Dragoman itself rejects those."""

MAX_HEADERS: Final = 96
"""Maximum headers of a request."""

IDLE_WEBSOCKET_BYTES_PER_SECOND: Final = 16
"""Bytes per second of WebSocket traffic outside of messages, such as pings."""

_REQUEST_TIMEOUT_RESPONSE: Final = b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"

HttpHandler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class BodyTooSlow(web.RequestPayloadError, TimeoutError):
    """The body arrives too slowly: unreadable for its handler, and not awaited by aiohttp."""


class BodyBudget:
    """The bytes of bodies being received, limited in total."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.used = 0

    def reserve(self, size: int) -> None:
        """Reserves bytes. Raises Unavailable over the limit."""
        if self.used + size > self.size:
            raise Unavailable(f"{self.used} bytes of requests are coming in, and {self.size} may be; try again")
        self.used += size

    def release(self, size: int) -> None:
        self.used -= size


class HttpConnections(web.Server):
    """The connections of one HTTP server. Create it on the loop that serves them."""

    def __init__(
        self,
        handler: HttpHandler,
        *,
        max_connections: int,
        max_body_bytes: int,
        timeouts: HttpTimeouts,
        clock: Callable[[], float] | None = None,
        auth_failures: AuthFailureLog | None = None,
    ) -> None:
        """`limit`: open connections. `bodies`: bytes of bodies being received."""
        # Handlers of disconnected clients are canceled: nobody would read their response.
        super().__init__(self._serve, handler_cancellation=True)
        self._handler = handler
        self._max_connections = max_connections
        self.timeouts = timeouts
        self.auth_failures = auth_failures or AuthFailureLog()
        self.clock = clock or asyncio.get_running_loop().time
        self.body_budget = BodyBudget(max_body_bytes)
        self.open_connections: set[HttpConnection] = set()
        self.idle_connections: dict[HttpConnection, None] = {}
        """Idle connections, longest idle first."""

    def __call__(self) -> HttpConnection:
        return HttpConnection(self)

    def add(self, connection: HttpConnection) -> None:
        """Accepts a connection, or closes it."""
        if len(self.open_connections) >= self._max_connections and self.idle_connections:
            next(iter(self.idle_connections)).drop()
        if len(self.open_connections) >= self._max_connections + OVERFLOW_CONNECTIONS:
            connection.drop()
            return
        connection.is_over_limit = len(self.open_connections) >= self._max_connections
        self.open_connections.add(connection)
        self.idle_connections[connection] = None

    def remove(self, connection: HttpConnection) -> None:
        self.open_connections.discard(connection)
        self.idle_connections.pop(connection, None)

    async def watch(self) -> Never:
        """Checks all connections every CONNECTION_CHECK_INTERVAL seconds, until canceled."""
        while True:
            await asyncio.sleep(CONNECTION_CHECK_INTERVAL)
            self.check_all()

    def check_all(self) -> None:
        """Closes what exceeds a timeout."""
        now = self.clock()
        for connection in list(self.open_connections):
            connection.check_timeouts(now)
        unread = sorted(
            (each for each in self.open_connections if each.unread_bytes), key=lambda each: each.unread_bytes
        )
        together = self.body_budget.used + sum(each.unread_bytes for each in unread)
        while together > self.body_budget.size and unread:
            largest = unread.pop()
            together -= largest.unread_bytes
            largest.drop()

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        connection = request.protocol
        assert isinstance(connection, HttpConnection)
        connection.request_started(request)
        try:
            return await self._handler(request)
        finally:
            connection.request_answered()


class HttpConnection(web.RequestHandler):
    """One HTTP connection with its timeouts."""

    __slots__ = (
        "_connections",
        "_is_websocket",
        "_received_bytes",
        "_receiving_since",
        "_request",
        "_stalled_since",
        "_unsent_bytes",
        "is_over_limit",
    )

    def __init__(self, connections: HttpConnections) -> None:
        super().__init__(
            connections,
            loop=asyncio.get_running_loop(),
            keepalive_timeout=connections.timeouts.idle,
            lingering_time=BODY_DISCARD_TIMEOUT,
            max_line_size=MAX_REQUEST_LINE_BYTES,
            max_field_size=MAX_HEADER_BYTES,
            max_headers=MAX_HEADERS,
            access_log=None,  # type: ignore[arg-type]  # aiohttp's own way to say that there is none
        )
        self._connections = connections
        self.is_over_limit = False
        """Beyond the limit: only health is served."""
        self._receiving_since = connections.clock()
        """When the head or body being received started; 0: none."""
        self._received_bytes = 0
        self._request: web.BaseRequest | None = None
        self._is_websocket = False
        """It is a WebSocket; the received bytes are those of the current message."""
        self._unsent_bytes = 0
        self._stalled_since = 0.0
        """Since when the client has read none of the pending data; 0: it has."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._connections.add(self)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._connections.remove(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if not self._receiving_since if self._request is None else self._is_websocket and not self._received_bytes:
            self._receiving_since = self._connections.clock()
        self._received_bytes += len(data)
        super().data_received(data)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Responds to invalid HTTP: aiohttp would log a traceback and echo the bytes, which may contain credentials."""
        if not isinstance(exc, HttpProcessingError) or request.writer.output_size > 0:
            return super().handle_error(request, status, exc, message)
        self._connections.auth_failures.record_invalid_http(type(exc).__name__, peer=request.remote or "")
        if isinstance(exc, LineTooLong):
            is_field = MAX_HEADER_BYTES in exc.args
            status = 431 if is_field else 414
            text = (
                f"a header has at most {MAX_HEADER_BYTES} bytes"
                if is_field
                else f"a request line has at most {MAX_REQUEST_LINE_BYTES} bytes"
            )
        else:
            status, text = 400, f"this is no HTTP/1.1 that can be read: {type(exc).__name__}"
        response = web.Response(status=status, text=f"{text}\n")
        response.force_close()
        return response

    def request_started(self, request: web.BaseRequest) -> None:
        """Called when the head of a request is complete."""
        self._connections.idle_connections.pop(self, None)
        self._request = request
        self._received_bytes = 0
        self._receiving_since = self._connections.clock()

    def request_answered(self) -> None:
        """Called when the response is complete, though perhaps not sent."""
        self._request = None
        self._receiving_since = 0.0
        if self.transport is not None:
            self._connections.idle_connections[self] = None

    def websocket_message_read(self) -> None:
        """Called when a WebSocket message was processed, and at the upgrade."""
        self._is_websocket = True
        self._received_bytes = 0

    @property
    def unread_bytes(self) -> int:
        """Counts bytes of an incomplete WebSocket message; bodies are counted by their reader."""
        return self._received_bytes if self._is_websocket else 0

    def drop(self) -> None:
        """Closes the connection at once."""
        self._connections.remove(self)
        if self.transport is not None:
            self.transport.abort()

    def check_timeouts(self, now: float) -> None:
        """Closes what exceeds a timeout."""
        http_timeouts = self._connections.timeouts
        transport: Any = self.transport
        if transport is None:
            return
        request = self._request
        if request is None:
            if self._receiving_since and now - self._receiving_since > http_timeouts.head:
                transport.write(_REQUEST_TIMEOUT_RESPONSE)
                self.force_close()
                return
        elif self._is_websocket:
            self._received_bytes = max(0, self._received_bytes - IDLE_WEBSOCKET_BYTES_PER_SECOND)
            if (
                self._received_bytes
                and now - self._receiving_since > http_timeouts.body + self._received_bytes / http_timeouts.rate
            ):
                self.drop()
                return
        elif not request.content.is_eof():
            allowed = http_timeouts.body + self._received_bytes / http_timeouts.rate
            if now - self._receiving_since > allowed and request.content.exception() is None:
                text = (
                    f"it came too slowly; it has {http_timeouts.body:g} s, and 1 s more for each "
                    f"{http_timeouts.rate} bytes"
                )
                request.content.set_exception(BodyTooSlow(text))
        self._check_write_progress(transport, now, http_timeouts.stalled)

    def _check_write_progress(self, transport: Any, now: float, limit: float) -> None:
        unsent = transport.get_write_buffer_size()
        # Less pending data means that the client reads; more only means that the server wrote more.
        if not unsent or unsent < self._unsent_bytes:
            self._stalled_since = 0.0
        elif not self._stalled_since:
            self._stalled_since = now
        elif now - self._stalled_since > limit:
            self.drop()
        self._unsent_bytes = unsent


def check_connection(request: web.BaseRequest) -> None:
    """Raises Unavailable on a connection beyond the limit, which is closed after the response."""
    connection = request.protocol
    if isinstance(connection, HttpConnection) and connection.is_over_limit:
        connection.close()
        raise Unavailable("more connections are open than this server takes; try again")


def body_budget(request: web.BaseRequest) -> BodyBudget | None:
    """The budget that limits this body together with all others."""
    connection = request.protocol
    return connection._connections.body_budget if isinstance(connection, HttpConnection) else None


def skip_body_discard(request: web.BaseRequest) -> None:
    """Skips waiting for the rest of a rejected body: decompressed it can be a thousand times its size."""
    if isinstance(request.protocol, HttpConnection):
        request.protocol._lingering_time = 0.0


def note_websocket_message(request: web.BaseRequest) -> None:
    """Records a processed WebSocket message; call it at the upgrade, too."""
    if isinstance(request.protocol, HttpConnection):
        request.protocol.websocket_message_read()
