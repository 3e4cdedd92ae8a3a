"""The HTTP port: plain or TLS, alone or shared with other server processes."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from aiohttp import web

from dragoman.bindings.http.connections import HttpConnections, PlainCall
from dragoman.bindings.options import BoundAddress, ServerOptions
from dragoman.ports.security import ServerCertificates
from dragoman.supervision import Background, start_task

LISTEN_BACKLOG: Final = 1024

_TLS_HANDSHAKE_BYTE: Final = b"\x16"  # the first byte of TLS: a handshake record (RFC 8446 §5.1)

_PLAIN_HTTP_TEXT: Final = b"This port speaks HTTPS; use https://\n"
PLAIN_HTTP_RESPONSE: Final = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n"
    b"Content-Length: %d\r\n\r\n%s" % (len(_PLAIN_HTTP_TEXT), _PLAIN_HTTP_TEXT)
)

log = logging.getLogger("dragoman.tls")


@asynccontextmanager
async def listen_http(
    handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]],
    options: ServerOptions,
    plain_call: PlainCall = lambda _: None,
) -> AsyncIterator[BoundAddress]:
    """Serves requests while the block runs, then gives those in flight `options.grace` seconds.

    Raises OSError if the address cannot be bound.
    """
    server = HttpConnections(handler, options, plain_call)
    runner = web.ServerRunner(server, shutdown_timeout=options.grace)
    await runner.setup()
    watch_task = start_task(Background.HTTP_CONNECTIONS, server.watch)
    tls_listener = TlsListener(server, options.certificates, shared=options.shared) if options.certificates else None
    try:
        if tls_listener is not None:
            host, port = await tls_listener.open(options.host, options.port)
        else:
            site = web.TCPSite(
                runner, options.host, options.port, backlog=LISTEN_BACKLOG, reuse_port=options.shared or None
            )
            await site.start()
            host, port = runner.addresses[0][:2]
        yield BoundAddress(host, port, tls=tls_listener is not None)
    finally:
        watch_task.cancel()
        if tls_listener is not None:
            await tls_listener.close()
        await runner.cleanup()


@dataclass(eq=False)
class TlsListener:
    """Accepts TLS connections on one address, with a timeout in seconds and a limit for concurrent handshakes.

    Plain HTTP on the port gets a 400 that names https.
    """

    factory: Callable[[], asyncio.BaseProtocol]
    certificates: ServerCertificates
    handshake_timeout: float = 10.0
    max_handshakes: int = 512
    shared: bool = False  # other server processes listen on the same port
    _sockets: list[socket.socket] = field(default_factory=list, init=False)
    _accept_tasks: list[asyncio.Task[None]] = field(default_factory=list, init=False)
    _handshakes: dict[asyncio.Task[None], None] = field(default_factory=dict, init=False)

    async def open(self, host: str, port: int) -> tuple[str, int]:
        """Starts listening and returns the host and port of the first socket. Raises OSError."""
        loop = asyncio.get_running_loop()
        addresses = await loop.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        try:
            for family, _, _, _, address in dict.fromkeys(addresses):
                listening = socket.create_server(address, family=family, backlog=LISTEN_BACKLOG, reuse_port=self.shared)
                listening.setblocking(False)
                self._sockets.append(listening)
        except OSError:
            await self.close()
            raise
        self._accept_tasks = [
            start_task(Background.TLS_LISTENER, partial(self._accept, each)) for each in self._sockets
        ]
        host, port, *_ = self._sockets[0].getsockname()
        return host, port

    async def close(self) -> None:
        """Stops accepting. Connections with a finished handshake belong to the server."""
        for task in (*self._accept_tasks, *self._handshakes):
            task.cancel()
        await asyncio.gather(*self._accept_tasks, *self._handshakes, return_exceptions=True)
        for each in self._sockets:
            each.close()

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(listening)
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    await asyncio.sleep(1)  # `HttpConnections` logs it, also for ports without TLS
                continue
            if len(self._handshakes) >= self.max_handshakes:
                next(iter(self._handshakes)).cancel()
            task = asyncio.create_task(self._start_tls(connection), name="tls-handshake")
            self._handshakes[task] = None
            task.add_done_callback(lambda done: self._handshakes.pop(done, None))

    async def _start_tls(self, connection: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self.handshake_timeout):
                connection.setblocking(False)
                first_byte = await _peek_byte(loop, connection)
                if first_byte == _TLS_HANDSHAKE_BYTE:
                    await loop.connect_accepted_socket(
                        self.factory,
                        connection,
                        ssl=self.certificates.ssl_context,
                        ssl_handshake_timeout=self.handshake_timeout,
                    )
                    return
                if first_byte:
                    await _reject_plain_http(loop, connection)
        except (OSError, TimeoutError) as error:  # ssl.SSLError is an OSError
            log.debug("a TLS handshake failed: %s", error)
        except asyncio.CancelledError:
            connection.close()
            raise
        connection.close()


async def _peek_byte(loop: asyncio.AbstractEventLoop, connection: socket.socket) -> bytes:
    """Returns the first byte without consuming it; empty at the end of the stream."""
    while True:
        try:
            return connection.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            readable = asyncio.Event()
            loop.add_reader(connection, readable.set)
            try:
                await readable.wait()
            finally:
                loop.remove_reader(connection)


async def _reject_plain_http(loop: asyncio.AbstractEventLoop, connection: socket.socket) -> None:
    await loop.sock_sendall(connection, PLAIN_HTTP_RESPONSE)
    connection.shutdown(socket.SHUT_WR)
    for _ in range(16):  # closing with unread bytes would reset the connection and lose the response
        if not await loop.sock_recv(connection, 65536):
            return
