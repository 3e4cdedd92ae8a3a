"""HTTP connections: plain unary calls without aiohttp, everything else with it, and limits for misbehaving clients.

A connection begins as a `PlainConnection`. A *plain* request is a complete GET, POST or DELETE of at most
MAX_PLAIN_BYTES with a body of known length, without anything that changes how the connection or the response is
treated. It is parsed by one strict pattern and answered in one write. At the first other request the connection goes
to aiohttp, with the bytes not yet answered, and stays there: streams, WebSocket, pages, large or slow bodies, invalid
HTTP.
"""

# aiohttp adds 35 to 45 µs of CPU to each request. Its bare handler takes 57 µs with 64 callers, and 85 µs with one.
#
# A connection is *idle* from its start, or its last response, until the next request's head is complete. At the limit,
# a new connection replaces the one idle longest. If none is idle, some more are accepted (`overflow_connections`):
# health checks are served on them, other requests get Unavailable in their dialect.
#
# aiohttp times idle connections. Slow heads, slow bodies and unread responses are checked once a second for all
# connections: a timer per request would cost more than all of this module.

from __future__ import annotations

import asyncio
import logging
import os
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from email.utils import formatdate
from functools import cached_property, lru_cache
from http import HTTPStatus
from typing import Any, Final, NamedTuple, Never

from aiohttp import HttpVersion10, HttpVersion11, web
from aiohttp.http_exceptions import HttpProcessingError, LineTooLong
from multidict import CIMultiDict, MultiMapping
from yarl import URL

from dragoman.bindings.options import ServerOptions
from dragoman.core.errors import InvalidRequest, Unavailable
from dragoman.supervision import log_fault
from dragoman.wire import errors
from dragoman.wire.dialects import Dialect

_log: Final = logging.getLogger("dragoman.http")

HttpHandler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]

MAX_PLAIN_BYTES: Final = 16 * 1024
"""Maximum bytes of a plain request, head and body. Larger ones are counted and timed while they arrive (aiohttp)."""

MAX_PLAIN_TARGET_BYTES: Final = 2048
MAX_PLAIN_HEADERS: Final = 64  # far below the limits of requests, which aiohttp enforces

_PLAIN_HEAD: Final = re.compile(
    rb"(?:GET|POST|DELETE) /(?!/)[!\"$-~]{0,%d} HTTP/1\.1\r\n" % (MAX_PLAIN_TARGET_BYTES - 1)
    + rb"(?:[!#$%%&'*+.^_`|~0-9A-Za-z-]+:[\t -~]*\r\n){1,%d}\r\n" % MAX_PLAIN_HEADERS
)
"""The head of a plain request: of the grammar of RFC 9112, the part that all readers understand in the same way."""
_HEADER_LINE: Final = re.compile(r"(?<=\n)([^:\r]+):[\t ]*([^\r]*[!-~])?[\t ]*\r")  # in linear time

_PORT: Final = r"\d{0,4}|[0-5]\d{4}|6[0-4]\d{3}|65[0-4]\d\d|655[0-2]\d|6553[0-5]"
_HOST: Final = re.compile(rf"(?:[\w.~!$&'()*+,;=%-]*|\[[\w.:]+\])(?::(?:{_PORT}))?", re.ASCII)
"""The value of `Host` (RFC 9112 §3.2): a name or an address, and a port of at most 65535."""

_SPECIAL_HEADERS: Final = frozenset((
    "access-control-request-method", "content-encoding", "expect", "origin", "sec-fetch-site", "transfer-encoding",
    "upgrade", "x-request-id",
))  # fmt: skip
"""Headers that change how a connection or a response is treated, as `Connection` does, except for `keep-alive`."""

REQUEST_TIMEOUT_RESPONSE: Final = b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


COMMON_HEADERS: Final = {"X-Content-Type-Options": "nosniff", "Server": "dragoman"}
"""Headers of every response. aiohttp's own `Server` would name its version and that of Python."""


class Response(NamedTuple):
    """A complete response. `body`: its content, also if it is empty."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class HandOver(BaseException):
    """The request needs aiohttp, and nothing has been done yet."""


class PlainRequest:
    """A complete request. It has the attributes of aiohttp's request that unary calls read."""

    def __init__(self, method: str, target: str, headers: CIMultiDict[str], body: bytes, transport: Any) -> None:
        self.method = method
        self.path, _, self.query_string = target.partition("?")
        self.headers = headers
        self.body = body
        self.can_read_body = bool(body)
        self.transport = transport
        self._target = target

    @cached_property
    def query(self) -> MultiMapping[str]:
        return URL(self._target, encoded=True).query

    @property
    def remote(self) -> str:
        peer = self.transport.get_extra_info("peername")
        return str(peer[0]) if peer else ""


PlainCall = Callable[[PlainRequest], Coroutine[Any, Any, Response | web.StreamResponse] | None]
"""Returns the coroutine that serves a plain request; None if it has to be served by aiohttp."""


def parse_plain(received: bytes, transport: Any) -> PlainRequest | None:
    """Returns the request; None while it is incomplete. Raises HandOver if the bytes are not those of a plain one."""
    if len(received) > MAX_PLAIN_BYTES:
        raise HandOver
    head = _PLAIN_HEAD.match(received)
    if head is None:
        if b"\r\n\r\n" in received or b"\n\n" in received:
            raise HandOver
        return None
    method, target, lines = head[0].decode().split(" ", 2)
    headers = CIMultiDict(_HEADER_LINE.findall(lines))
    lengths, connection = headers.getall("Content-Length", ()), headers.getall("Connection", ("keep-alive",))
    if (
        not _SPECIAL_HEADERS.isdisjoint(map(str.lower, headers))
        or len(connection) > 1
        or connection[0].lower() != "keep-alive"
        or len(hosts := headers.getall("Host", [])) != 1
        or not _HOST.fullmatch(hosts[0])
        or (lengths and (len(lengths) > 1 or not lengths[0].isdecimal() or len(lengths[0]) > 9))  # `int` has a limit
    ):
        raise HandOver
    missing = head.end() + (int(lengths[0]) if lengths else 0) - len(received)
    if missing < 0 or len(received) + missing > MAX_PLAIN_BYTES:  # a second request, or a large one
        raise HandOver
    return None if missing else PlainRequest(method, target, headers, received[head.end() :], transport)


class OpenConnection(asyncio.Protocol, ABC):
    """One connection of either kind, and the state of its client, by which `check_client` drops it."""

    _connections: HttpConnections
    transport: Any
    is_over_limit = False  # whether the connection is beyond the limit: only health is served
    eof_since = 0.0  # when the client closed its side; 0: it has not
    unsent_bytes = 0
    stalled_since = 0.0  # when the client stopped reading the unsent bytes; 0: it reads

    @property
    def unread_bytes(self) -> int:
        """Bytes of an incomplete WebSocket message. Bodies are counted by BodyBudget."""
        return 0

    @abstractmethod
    def check_timeouts(self, now: float) -> None:
        """Closes the connection if it exceeds a timeout."""

    def drop(self) -> None:
        self._connections.remove(self)
        if self.transport is not None:
            self.transport.abort()

    def end_input(self, *, is_waiting: bool) -> bool:
        """Keeps the connection of a client that has closed its side, and `is_waiting` for a response, for a while."""
        # TLS does not go on writing at the end of what it reads.
        if is_waiting and self.transport is not None and self.transport.get_extra_info("ssl_object") is None:
            self.eof_since = self._connections.clock()
        return bool(self.eof_since)

    def resume_writing(self) -> None:
        """The client has read what was too much. A check would miss it, if as much is unsent again by then."""
        self.stalled_since = self.unsent_bytes = 0
        super().resume_writing()

    def check_client(self, now: float) -> None:
        """Drops a connection whose client reads none of the unsent bytes, or has probably gone."""
        unsent, timeouts = self.transport.get_write_buffer_size(), self._connections.timeouts
        # Fewer unsent bytes mean that the client reads; more only mean that the server wrote more.
        is_read = not unsent or unsent < self.unsent_bytes
        self.stalled_since = 0.0 if is_read else self.stalled_since or now
        self.unsent_bytes = unsent
        for since, limit in ((self.stalled_since, timeouts.stalled), (self.eof_since, timeouts.half_closed)):
            if since and now - since > limit:
                self.drop()


class PlainConnection(OpenConnection):
    """One connection, until its first request that is not plain."""

    def __init__(self, connections: HttpConnections) -> None:
        self._connections = connections
        self._pending = b""  # bytes of requests without a response
        self._task: asyncio.Task[None] | None = None
        self._receiving_since = connections.clock()
        """When the connection was made, or the request being received began; 0: none is being received."""
        self._idle_since = 0.0
        self._is_closing = False
        self.transport = None

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
        try:
            request = parse_plain(self._pending, self.transport)
        except HandOver:
            self._hand_over()
            return
        if request is None:
            return
        response = None if self.is_over_limit else self._connections.plain_call(request)
        if response is None:
            self._hand_over()
            return
        self._connections.idle_connections.pop(self, None)
        self._task = asyncio.get_running_loop().create_task(self._respond(response, len(self._pending)))

    def eof_received(self) -> bool:
        return self.end_input(is_waiting=self._task is not None)

    async def _respond(self, response: Any, size: int) -> None:
        """Writes the response to a request of `size` bytes. No response to a plain request is one of aiohttp."""
        try:
            encoded = encode_response(await response)
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
        self.transport.write(encoded)
        self._task = None
        self._receiving_since, self._idle_since = 0.0, self._connections.clock()
        later, self._pending = self._pending[size:], b""
        if self._is_closing or (self.eof_since and not later):
            self.transport.close()
            return
        self._connections.idle_connections[self] = None
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
        connection = HttpConnection(self._connections, self._receiving_since)
        transport.set_protocol(connection)
        connection.connection_made(transport)
        transport.resume_reading()
        connection.data_received(received)
        if self.eof_since and not connection.eof_received():
            transport.close()
        return connection

    def pause_writing(self) -> None:
        """The client does not read: no further request is served until it does."""
        self.transport.pause_reading()

    def resume_writing(self) -> None:
        super().resume_writing()
        self.transport.resume_reading()

    def check_timeouts(self, now: float) -> None:
        """Closes an idle or stalled connection. aiohttp goes on with a request that has not arrived in a second."""
        timeouts = self._connections.timeouts
        if self.transport is None:
            return
        self.check_client(now)
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
    length, date = len(response.body), _http_date(int(time.time()))
    head.append(f"X-Content-Type-Options: nosniff\r\nContent-Length: {length}\r\nDate: {date}\r\n\r\n")
    return "".join(head).encode("latin-1") + response.body


@lru_cache(maxsize=64)
def _status_line(status: int) -> str:
    return f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n"


@lru_cache(maxsize=2)
def _http_date(second: int) -> str:
    return formatdate(second, usegmt=True)


# ---- Limits


BODY_DISCARD_TIMEOUT: Final = 5.0  # seconds to discard the rest of a rejected body, so its sender can read the error

MAX_REQUEST_LINE_BYTES: Final = 8190

MAX_HEADER_BYTES: Final = 16 * 1024
"""Maximum bytes of one header: larger than the credentials limit, so that Dragoman itself rejects those."""

MAX_HEADERS: Final = 96

IDLE_WEBSOCKET_BYTES_PER_SECOND: Final = 16  # bytes per second of WebSocket traffic outside of messages, such as pings


class BodyTooSlow(web.RequestPayloadError, TimeoutError):
    """The body arrives too slowly. The handler gets the error, and aiohttp does not wait for the rest."""


@dataclass(slots=True)
class BodyBudget:
    """Limits the total bytes of all bodies being received."""

    size: int
    used: int = 0

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
        plain_call: PlainCall = lambda _: None,
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
        self.open_connections: set[OpenConnection] = set()
        self.idle_connections: dict[OpenConnection, None] = {}  # idle connections, longest idle first

    def __call__(self) -> Any:
        return PlainConnection(self)

    async def shutdown(self, timeout: float | None = None) -> None:  # noqa: ASYNC109  # aiohttp's signature
        """Closes all connections; requests being served get `timeout` seconds."""
        plain = [each.shutdown(timeout or 0.0) for each in self.open_connections if isinstance(each, PlainConnection)]
        await asyncio.gather(super().shutdown(timeout), *plain)

    def add(self, connection: OpenConnection) -> None:
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

    def remove(self, connection: OpenConnection) -> None:
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


class HttpConnection(OpenConnection, web.RequestHandler):
    """One HTTP connection with its timeouts, as aiohttp serves it."""

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
            auto_decompress=False,  # aiohttp takes some codings as none, and decodes without a limit
        )
        self._connections = connections
        self.body_budget = connections.body_budget
        self._receiving_since = receiving_since  # when the head, body or message being received started; 0: none
        self._received_bytes = 0
        self._request: web.BaseRequest | None = None
        self._begun_requests = 0  # of those that aiohttp has parsed
        self._is_websocket = False  # the connection was upgraded; `_received_bytes` counts the current message

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

    def eof_received(self) -> bool:  # type: ignore[override]  # aiohttp's always closes
        request = self._request
        # Clients leave streams in the same way: they wait for no more of them.
        is_waiting = request is not None and request.content.is_eof() and not request.writer.output_size
        return self.end_input(is_waiting=is_waiting or self._begun_requests < self._request_count)

    def handle_error(
        self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> web.StreamResponse:
        """Responds to invalid HTTP: aiohttp would log a traceback and echo the bytes, which may contain credentials."""
        if not isinstance(exc, HttpProcessingError) or request.writer.output_size > 0:
            return super().handle_error(request, status, exc, message)
        error = _invalid_http(exc)
        rule = error.message.removeprefix(_NOT_HTTP)
        self._connections.rejections.record_invalid_http(rule, peer=request.remote or "")
        # The dialect is unknown, because the path could not be read. Every client of REST finds this form of the error.
        encoded = errors.rest_error(error, Dialect.V03)
        response = web.Response(status=encoded.status, body=encoded.body, content_type=errors.ERROR_CONTENT_TYPE)
        response.force_close()
        return response

    def request_started(self, request: web.BaseRequest) -> None:
        """Called when the head of a request is complete."""
        self._connections.idle_connections.pop(self, None)
        self._request = request
        self._begun_requests += 1
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
        if self.eof_since and self._begun_requests == self._request_count:
            resp.force_close()
        if not resp.prepared:
            for name, value in COMMON_HEADERS.items():
                resp.headers.setdefault(name, value)
        sent = await super().finish_response(request, resp, start_time)
        if isinstance(sent[0], web.Response):
            sent[0].body = None
        return sent

    @property
    def unread_bytes(self) -> int:
        return self._received_bytes if self._is_websocket else 0

    def check_timeouts(self, now: float) -> None:
        """Closes the connection if it exceeds a timeout; a slow body fails with BodyTooSlow."""
        timeouts = self._connections.timeouts
        if self.transport is None:
            return
        request = self._request
        if request is None:
            if self._receiving_since and now - self._receiving_since > timeouts.head:
                self.transport.write(REQUEST_TIMEOUT_RESPONSE)
                self.force_close()
                return
        elif self._is_websocket:
            self._received_bytes = max(0, self._received_bytes - IDLE_WEBSOCKET_BYTES_PER_SECOND)
            allowed = timeouts.body + self._received_bytes / timeouts.rate
            if self._received_bytes and now - self._receiving_since > allowed:
                self.drop()
                return
        elif not request.content.is_eof():
            allowed = timeouts.body + self._received_bytes / timeouts.rate
            if now - self._receiving_since > allowed and request.content.exception() is None:
                limit = f"{timeouts.body:g} s plus 1 s for each {timeouts.rate} bytes received"
                request.content.set_exception(BodyTooSlow(f"it arrives too slowly; the limit is {limit}"))
        self.check_client(now)


_NOT_HTTP: Final = "the request is not valid HTTP/1.1: "
_HEADER_RULE: Final = re.compile(r"(Duplicate|Missing) '([\w-]+)' header")


def _invalid_http(error: HttpProcessingError) -> InvalidRequest:
    """The rule of HTTP, or the limit, that a request breaks. Its bytes, which aiohttp quotes, are left out."""
    if isinstance(error, LineTooLong):
        if MAX_HEADER_BYTES in error.args:
            return errors.HeaderTooLong(f"a header may have at most {MAX_HEADER_BYTES} bytes")
        return errors.RequestLineTooLong(f"a request line may have at most {MAX_REQUEST_LINE_BYTES} bytes")
    if error.message == "Too many headers received":
        return errors.HeaderTooLong(f"a request may have at most {MAX_HEADERS} headers")
    if found := _HEADER_RULE.match(error.message):
        rule = f"{found[2]}: must be given {'once' if found[1] == 'Duplicate' else 'in HTTP/1.1'} (RFC 9112 §3.2)"
        return InvalidRequest(_NOT_HTTP + rule)
    reason, quotes, _ = error.message.removeprefix("Bad status line:\n  ").partition(":\n\n")
    return InvalidRequest(_NOT_HTTP + (reason if quotes else "its first line or a header has no valid form"))


def check_request(request: web.BaseRequest) -> None:
    """Raises InvalidRequest for a request that another server could take for one to another host or path."""
    if request.version not in (HttpVersion10, HttpVersion11):
        raise InvalidRequest("the request line must end with HTTP/1.1 or HTTP/1.0 (RFC 9112 §2.3)")
    hosts = len(request.headers.getall("Host", ()))
    if hosts > 1 or (not hosts and request.version >= HttpVersion11):
        raise InvalidRequest("Host: must be given once (RFC 9112 §3.2)")
    if not _HOST.fullmatch(request.headers.get("Host", "")):
        raise InvalidRequest("Host: must be a name or an address, with or without a port up to 65535 (RFC 9112 §3.2)")
    codings = request.headers.getall("Transfer-Encoding", ())
    if codings and request.version < HttpVersion11:
        request.protocol.close()  # after the response: a proxy may have read another end of the body
        raise InvalidRequest("Transfer-Encoding: HTTP/1.0 has none; send HTTP/1.1 or Content-Length (RFC 9112 §6.1)")
    if codings and [coding.strip().lower() for coding in codings] != ["chunked"]:
        raise errors.TransferCodingNotSupported("Transfer-Encoding: only chunked is supported (RFC 9112 §6.1)")
    if "#" in request.raw_path:
        raise InvalidRequest('the request target has a "#"; send it as %23 (RFC 9112 §3.2)')


def check_connection(request: web.BaseRequest) -> None:
    """Raises Unavailable on a connection beyond the limit, and closes it after the response."""
    connection = request.protocol
    if isinstance(connection, HttpConnection) and connection.is_over_limit:
        connection.close()
        raise Unavailable("the server has reached its connection limit; try again later")


def note_websocket_message(request: web.BaseRequest) -> None:
    """Records a processed WebSocket message. Call it also at the upgrade."""
    connection = request.protocol
    if isinstance(connection, HttpConnection):
        connection._is_websocket, connection._received_bytes = True, 0
