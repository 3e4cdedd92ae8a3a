"""What a connection may cost that does not behave: HTTP's, counted, timed and, when there are too many, chosen from.

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

from dragoman.bindings.refusals import Refusals
from dragoman.bindings.serving import Patience
from dragoman.core.errors import Unavailable

RESERVE: Final = 64
"""Connections beyond the limit that are told so."""

LINGER: Final = 5.0
"""Seconds for which the rest of a body is thrown away that was refused, so that its sender hears why."""

LOOKS: Final = 1.0
"""Seconds between two looks at all connections."""

LINE: Final = 8190
"""Bytes of a request line."""

FIELD: Final = 16 * 1024
"""Bytes of one header: the largest credentials that are looked at get here, to be refused in our own words."""

FIELDS: Final = 96
"""Headers of a request."""

NOISE: Final = 16
"""Bytes a second that are no part of a message on a WebSocket: its signs of life."""

_LATE: Final = b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class TooSlow(web.RequestPayloadError, TimeoutError):
    """A body that comes too slowly: for its reader one that cannot be read, for aiohttp one not worth waiting for."""


class Budget:
    """Bytes of bodies that may be held at the same time, while they come in."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.held = 0

    def take(self, size: int) -> None:
        """Raises Unavailable when there is no room."""
        if self.held + size > self.size:
            raise Unavailable(f"{self.held} bytes of requests are coming in, and {self.size} may be; try again")
        self.held += size

    def give_back(self, size: int) -> None:
        self.held -= size


class Connections(web.Server):
    """The connections of one HTTP server. Made on the loop that it serves."""

    def __init__(
        self,
        handler: Handler,
        *,
        limit: int,
        bodies: int,
        patience: Patience,
        clock: Callable[[], float] | None = None,
        refusals: Refusals | None = None,
    ) -> None:
        """`limit`: open connections. `bodies`: bytes of bodies coming in. `refusals` hears of what is no HTTP."""
        # A handler whose client is gone is cancelled: it would only wait and write to nobody.
        super().__init__(self._serve, handler_cancellation=True)
        self._site = handler
        self._limit = limit
        self.patience = patience
        self.refusals = refusals or Refusals()
        self.clock = clock or asyncio.get_running_loop().time
        self.bodies = Budget(bodies)
        self.open: set[Connection] = set()
        self.idle: dict[Connection, None] = {}
        """Those without a request, longest first."""

    def __call__(self) -> Connection:
        return Connection(self)

    def came(self, connection: Connection) -> None:
        """Lets a connection in, or closes it."""
        if len(self.open) >= self._limit and self.idle:
            next(iter(self.idle)).drop()
        if len(self.open) >= self._limit + RESERVE:
            connection.drop()
            return
        connection.surplus = len(self.open) >= self._limit
        self.open.add(connection)
        self.idle[connection] = None

    def went(self, connection: Connection) -> None:
        self.open.discard(connection)
        self.idle.pop(connection, None)

    async def watch(self) -> Never:
        """Looks at all connections once a second, until it is cancelled."""
        while True:
            await asyncio.sleep(LOOKS)
            self.look()

    def look(self) -> None:
        """Ends what is too slow."""
        now = self.clock()
        for connection in list(self.open):
            connection.look(now)
        unread = sorted((each for each in self.open if each.unread), key=lambda each: each.unread)
        together = self.bodies.held + sum(each.unread for each in unread)
        while together > self.bodies.size and unread:
            largest = unread.pop()
            together -= largest.unread
            largest.drop()

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        connection = request.protocol
        assert isinstance(connection, Connection)
        connection.begin(request)
        try:
            return await self._site(request)
        finally:
            connection.end()


class Connection(web.RequestHandler):
    """One connection."""

    __slots__ = ("_began", "_connections", "_framed", "_received", "_request", "_stalled", "_unsent", "surplus")

    def __init__(self, connections: Connections) -> None:
        super().__init__(
            connections,
            loop=asyncio.get_running_loop(),
            keepalive_timeout=connections.patience.idle,
            lingering_time=LINGER,
            max_line_size=LINE,
            max_field_size=FIELD,
            max_headers=FIELDS,
            access_log=None,  # type: ignore[arg-type]  # aiohttp's own way to say that there is none
        )
        self._connections = connections
        self.surplus = False
        """Came when there were as many as may be; served health alone."""
        self._began = connections.clock()
        """When the head or the body now coming in began; 0: nothing is."""
        self._received = 0
        self._request: web.BaseRequest | None = None
        self._framed = False
        """It is a WebSocket, and what was received is that of the message now coming in."""
        self._unsent = 0
        self._stalled = 0.0
        """Since when nothing of what is unsent was taken; 0: it was."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._connections.came(self)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._connections.went(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if not self._began if self._request is None else self._framed and not self._received:
            self._began = self._connections.clock()
        self._received += len(data)
        super().data_received(data)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answers what is no HTTP in words of our own: aiohttp logs a trace and sends back what came, and that may hold
        credentials."""
        if not isinstance(exc, HttpProcessingError) or request.writer.output_size > 0:
            return super().handle_error(request, status, exc, message)
        self._connections.refusals.unreadable(type(exc).__name__, peer=request.remote or "")
        if isinstance(exc, LineTooLong):
            is_field = FIELD in exc.args
            status = 431 if is_field else 414
            text = f"a header has at most {FIELD} bytes" if is_field else f"a request line has at most {LINE} bytes"
        else:
            status, text = 400, f"this is no HTTP/1.1 that can be read: {type(exc).__name__}"
        response = web.Response(status=status, text=f"{text}\n")
        response.force_close()
        return response

    def begin(self, request: web.BaseRequest) -> None:
        """The head of a request is complete."""
        self._connections.idle.pop(self, None)
        self._request = request
        self._received = 0
        self._began = self._connections.clock()

    def end(self) -> None:
        """Its answer is made, though perhaps not all of it is sent."""
        self._request = None
        self._began = 0.0
        if self.transport is not None:
            self._connections.idle[self] = None

    def framed(self) -> None:
        """A message of a WebSocket was taken; or it became one."""
        self._framed = True
        self._received = 0

    @property
    def unread(self) -> int:
        """Bytes of a WebSocket's message that is not complete; bodies are counted by who reads them."""
        return self._received if self._framed else 0

    def drop(self) -> None:
        """Closes at once: nothing is lost but a connection."""
        self._connections.went(self)
        if self.transport is not None:
            self.transport.abort()

    def look(self, now: float) -> None:
        """Ends what is too slow."""
        patience = self._connections.patience
        transport: Any = self.transport
        if transport is None:
            return
        request = self._request
        if request is None:
            if self._began and now - self._began > patience.head:
                transport.write(_LATE)
                self.force_close()
                return
        elif self._framed:
            self._received = max(0, self._received - NOISE)
            if self._received and now - self._began > patience.body + self._received / patience.rate:
                self.drop()
                return
        elif not request.content.is_eof():
            allowed = patience.body + self._received / patience.rate
            if now - self._began > allowed and request.content.exception() is None:
                text = f"it came too slowly; it has {patience.body:g} s, and 1 s more for each {patience.rate} bytes"
                request.content.set_exception(TooSlow(text))
        self._look_at_answer(transport, now, patience.stalled)

    def _look_at_answer(self, transport: Any, now: float, limit: float) -> None:
        unsent = transport.get_write_buffer_size()
        # Less than before means that somebody takes it; more only that we made more.
        if not unsent or unsent < self._unsent:
            self._stalled = 0.0
        elif not self._stalled:
            self._stalled = now
        elif now - self._stalled > limit:
            self.drop()
        self._unsent = unsent


def check(request: web.BaseRequest) -> None:
    """Raises Unavailable for a request on a connection that is one too many, and has it closed after the answer."""
    connection = request.protocol
    if isinstance(connection, Connection) and connection.surplus:
        connection.close()
        raise Unavailable("more connections are open than this server takes; try again")


def budget(request: web.BaseRequest) -> Budget | None:
    """What limits the body of this request together with all others."""
    connection = request.protocol
    return connection._connections.bodies if isinstance(connection, Connection) else None


def unpack_no_more(request: web.BaseRequest) -> None:
    """Does not wait for the rest of a body that was refused, as is done otherwise: it may unpack to a thousand times
    its size, for nobody."""
    if isinstance(request.protocol, Connection):
        request.protocol._lingering_time = 0.0


def framed(request: web.BaseRequest) -> None:
    """Notes that a message of a WebSocket was taken; first of all that the request became one."""
    if isinstance(request.protocol, Connection):
        request.protocol.framed()
