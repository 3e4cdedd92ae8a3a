"""Limits for misbehaving HTTP connections: count, timeouts, and which connection to drop at the limit.

A connection is *idle* from its start, or its last response, until the next request's head is complete. At the limit, a
new connection replaces the one idle longest. If none is idle, up to OVERFLOW_CONNECTIONS more are accepted: health
checks are served on them, other requests get Unavailable in their dialect.

aiohttp times idle connections. Slow heads, slow bodies and unread responses are checked once a second for all
connections: a timer per request would cost more than all of this module.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from typing import Any, Final, Never

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError, LineTooLong

from dragoman.bindings.http.plain import REQUEST_TIMEOUT_RESPONSE, PlainCall, PlainConnection, no_plain_call
from dragoman.bindings.options import (
    BODY_DISCARD_TIMEOUT,
    IDLE_WEBSOCKET_BYTES_PER_SECOND,
    MAX_HEADER_BYTES,
    MAX_HEADERS,
    MAX_REQUEST_LINE_BYTES,
    ServerOptions,
)
from dragoman.core.errors import InvalidRequest, Unavailable
from dragoman.supervision import log_fault
from dragoman.wire import errors
from dragoman.wire.dialects import Dialect

_log: Final = logging.getLogger("dragoman.http")

HttpHandler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class BodyTooSlow(web.RequestPayloadError, TimeoutError):
    """The body arrives too slowly. The handler gets the error, and aiohttp does not wait for the rest."""


class BodyBudget:
    """Limits the total bytes of all bodies being received."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.used = 0

    def reserve(self, size: int) -> None:
        """Reserves bytes. Raises Unavailable over the limit."""
        if self.used + size > self.size:
            raise Unavailable(
                f"{self.used} bytes of request bodies are being received, at most {self.size} are allowed; try again"
            )
        self.used += size

    def release(self, size: int) -> None:
        self.used -= size


class HttpConnections(web.Server):
    """The open connections of one HTTP server. Create it inside the event loop that serves them."""

    def __init__(
        self,
        handler: HttpHandler,
        options: ServerOptions,
        plain_call: PlainCall = no_plain_call,
        clock: Callable[[], float] | None = None,
    ) -> None:
        """`plain_call`: returns the coroutine for a plain request, or None. `clock`: seconds, monotonic."""
        # Handlers of disconnected clients are canceled: their response would not be read.
        super().__init__(self._serve, handler_cancellation=True)
        self._lacks_descriptors = False
        self._handler = handler
        self.plain_call = plain_call
        self._options = options
        self.timeouts = options.timeouts
        self.rejections = options.rejections
        self.clock = clock or asyncio.get_running_loop().time
        self.body_budget = BodyBudget(options.bodies)
        self.open_connections: set[Connection] = set()
        self.idle_connections: dict[Connection, None] = {}
        """Idle connections, longest idle first."""

    def __call__(self) -> Any:
        return PlainConnection(self)

    def full_connection(self, receiving_since: float) -> HttpConnection:
        """Returns aiohttp's protocol for a connection whose next request is not plain."""
        return HttpConnection(self, receiving_since)

    async def shutdown(self, timeout: float | None = None) -> None:  # noqa: ASYNC109  # aiohttp's signature
        """Closes all connections; requests being served get `timeout` seconds."""
        plain = [each.shutdown(timeout or 0.0) for each in self.open_connections if isinstance(each, PlainConnection)]
        await asyncio.gather(super().shutdown(timeout), *plain)

    def add(self, connection: Connection) -> None:
        """Accepts a connection, dropping the longest idle one at the limit; drops it beyond the overflow."""
        most = self._options.connections
        if len(self.open_connections) >= most and self.idle_connections:
            next(iter(self.idle_connections)).drop()
        if len(self.open_connections) >= most + self._options.overflow_connections:
            connection.drop()
            return
        connection.is_over_limit = len(self.open_connections) >= most
        self.open_connections.add(connection)
        self.idle_connections[connection] = None

    def remove(self, connection: Connection) -> None:
        self.open_connections.discard(connection)
        self.idle_connections.pop(connection, None)

    async def watch(self) -> Never:
        """Checks all connections every `check_interval`, until canceled."""
        while True:
            await asyncio.sleep(self.timeouts.check_interval)
            self.check_descriptors()
            self.check_all()

    def check_descriptors(self) -> None:
        """Logs, once, that no file can be opened: the event loop then drops new connections in silence."""
        try:
            os.close(os.open(os.devnull, os.O_RDONLY))
        except OSError as error:
            if not self._lacks_descriptors:
                log_fault(_log, "new connections cannot be accepted", error)
            self._lacks_descriptors = True
            return
        if self._lacks_descriptors:
            _log.info("new connections are accepted again")
        self._lacks_descriptors = False

    def check_all(self) -> None:
        """Closes connections that exceed a timeout, then the largest unread messages over the byte limit."""
        now = self.clock()
        for connection in list(self.open_connections):
            connection.check_timeouts(now)
        unread = sorted(
            (each for each in self.open_connections if each.unread_bytes), key=lambda each: each.unread_bytes
        )
        total = self.body_budget.used + sum(each.unread_bytes for each in unread)
        while total > self.body_budget.size and unread:
            largest = unread.pop()
            total -= largest.unread_bytes
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
        "body_budget",
        "discards_input",
        "is_over_limit",
    )

    def __init__(self, connections: HttpConnections, receiving_since: float) -> None:
        super().__init__(
            connections,
            loop=asyncio.get_running_loop(),
            keepalive_timeout=connections.timeouts.idle,
            lingering_time=BODY_DISCARD_TIMEOUT,
            max_line_size=MAX_REQUEST_LINE_BYTES,
            max_field_size=MAX_HEADER_BYTES,
            max_headers=MAX_HEADERS,
            access_log=None,  # type: ignore[arg-type]  # None disables aiohttp's access log
        )
        self._connections = connections
        self.body_budget = connections.body_budget
        """Shared by all bodies of the server."""
        self.is_over_limit = False
        """Whether the connection is beyond the limit: only health is served."""
        self.discards_input = False
        """Whether all further input is ignored, until the connection closes after BODY_DISCARD_TIMEOUT."""
        self._receiving_since = receiving_since
        """When the head, body or message being received started; 0: none is being received."""
        self._received_bytes = 0
        self._request: web.BaseRequest | None = None
        self._is_websocket = False
        """Whether the connection was upgraded; `_received_bytes` then counts the current message."""
        self._unsent_bytes = 0
        self._stalled_since = 0.0
        """When the client stopped reading the unsent bytes; 0: it reads."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._connections.add(self)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._connections.remove(self)
        super().connection_lost(exc)

    def pause_reading(self) -> None:
        if not self.discards_input:
            super().pause_reading()

    def data_received(self, data: bytes) -> None:
        if self.discards_input:
            return
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
        self._connections.rejections.record_invalid_http(type(exc).__name__, peer=request.remote or "")
        error: InvalidRequest
        if not isinstance(exc, LineTooLong):
            error = InvalidRequest(f"the request is not valid HTTP/1.1: {type(exc).__name__}")
        elif MAX_HEADER_BYTES in exc.args:
            error = errors.HeaderTooLong(f"a header may have at most {MAX_HEADER_BYTES} bytes")
        else:
            error = errors.RequestLineTooLong(f"a request line may have at most {MAX_REQUEST_LINE_BYTES} bytes")
        # The dialect is unknown, because the path could not be read. Every client of REST finds this form of the error.
        encoded = errors.rest_error(error, Dialect.V03)
        response = web.Response(status=encoded.status, body=encoded.body, content_type=errors.ERROR_CONTENT_TYPE)
        response.force_close()
        return response

    def request_started(self, request: web.BaseRequest) -> None:
        """Called when the head of a request is complete."""
        self._connections.idle_connections.pop(self, None)
        self._request = request
        self._received_bytes = 0
        self._receiving_since = self._connections.clock()

    def request_answered(self) -> None:
        """Called when the response is complete, though it may not be sent yet."""
        self._request = None
        self._receiving_since = 0.0
        if self.transport is not None:
            self._connections.idle_connections[self] = None

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Sends the response, then drops its body: aiohttp keeps the response while the connection is idle."""
        sent = await super().finish_response(request, resp, start_time)
        if isinstance(sent[0], web.Response):
            sent[0].body = None
        return sent

    def websocket_message_read(self) -> None:
        """Called when a WebSocket message was processed, and at the upgrade."""
        self._is_websocket = True
        self._received_bytes = 0

    @property
    def unread_bytes(self) -> int:
        """Bytes of an incomplete WebSocket message. Bodies are counted by BodyBudget."""
        return self._received_bytes if self._is_websocket else 0

    def drop(self) -> None:
        """Closes the connection at once."""
        self._connections.remove(self)
        if self.transport is not None:
            self.transport.abort()

    def check_timeouts(self, now: float) -> None:
        """Closes the connection if it exceeds a timeout; a slow body fails with BodyTooSlow."""
        http_timeouts = self._connections.timeouts
        transport: Any = self.transport
        if transport is None:
            return
        request = self._request
        if request is None:
            if self._receiving_since and now - self._receiving_since > http_timeouts.head:
                transport.write(REQUEST_TIMEOUT_RESPONSE)
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
                limit = f"{http_timeouts.body:g} s plus 1 s for each {http_timeouts.rate} bytes received"
                request.content.set_exception(BodyTooSlow(f"it arrives too slowly; the limit is {limit}"))
        self._check_write_progress(transport, now, http_timeouts.stalled)

    def _check_write_progress(self, transport: Any, now: float, limit: float) -> None:
        unsent = transport.get_write_buffer_size()
        # Fewer unsent bytes mean that the client reads; more only mean that the server wrote more.
        if not unsent or unsent < self._unsent_bytes:
            self._stalled_since = 0.0
        elif not self._stalled_since:
            self._stalled_since = now
        elif now - self._stalled_since > limit:
            self.drop()
        self._unsent_bytes = unsent


def check_connection(request: web.BaseRequest) -> None:
    """Raises Unavailable on a connection beyond the limit, and closes it after the response."""
    connection = request.protocol
    if isinstance(connection, HttpConnection) and connection.is_over_limit:
        connection.close()
        raise Unavailable("the server has reached its connection limit; try again later")


def note_websocket_message(request: web.BaseRequest) -> None:
    """Records a processed WebSocket message. Call it also at the upgrade."""
    if isinstance(request.protocol, HttpConnection):
        request.protocol.websocket_message_read()


Connection = HttpConnection | PlainConnection
"""An open connection: plain until its first request that is not."""
