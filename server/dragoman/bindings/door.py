"""Where HTTP connections come in when they have to be encrypted.

Connections are accepted here and not by the loop, because who speaks plain HTTP to this port should hear what is
wrong, and because a connection costs something before its handshake is done: a time limit, and when too many are
shaking hands, the one that has done so for longest goes.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Callable
from typing import Any, Final

HANDSHAKE: Final = 10.0
"""Seconds from the connection to the end of the handshake."""

AT_ONCE: Final = 512
"""Handshakes under way."""

BACKLOG: Final = 1024

PAUSE: Final = 1.0
"""Seconds to wait when the system has no more room for connections."""

_HELLO: Final = b"\x16"
"""The first byte of TLS: a handshake record (RFC 8446 §5.1)."""

_TEXT: Final = b"This port speaks HTTPS; use https://\n"
PLAIN: Final = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n"
    b"Content-Length: %d\r\n\r\n%s" % (len(_TEXT), _TEXT)
)

log = logging.getLogger("dragoman.tls")


class Door:
    """The listening sockets of one address, and whoever is still shaking hands."""

    def __init__(
        self,
        factory: Callable[[], asyncio.BaseProtocol],
        context: ssl.SSLContext,
        *,
        handshake: float = HANDSHAKE,
        shared: bool = False,
    ) -> None:
        """`shared`: other processes of ours listen on the same port."""
        self._factory = factory
        self._context = context
        self._handshake = handshake
        self._shared = shared
        self._sockets: list[socket.socket] = []
        self._accepting: list[asyncio.Task[None]] = []
        self._coming: dict[asyncio.Task[None], None] = {}

    async def open(self, host: str, port: int) -> tuple[str, int]:
        """Listens, and gives the address of the first socket. Raises OSError."""
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        try:
            for info in dict.fromkeys(found):
                self._sockets.append(_listen(info, self._shared))
        except OSError:
            await self.close()
            raise
        self._accepting = [asyncio.create_task(self._accept(each), name="tls-door") for each in self._sockets]
        address = self._sockets[0].getsockname()
        return address[0], address[1]

    async def close(self) -> None:
        """Accepts no more. Connections past their handshake are the server's."""
        for task in (*self._accepting, *self._coming):
            task.cancel()
        await asyncio.gather(*self._accepting, *self._coming, return_exceptions=True)
        for each in self._sockets:
            each.close()

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(listening)
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    log.error("no more connections can be accepted: %s", error.strerror)
                    await asyncio.sleep(PAUSE)
                continue
            if len(self._coming) >= AT_ONCE:
                next(iter(self._coming)).cancel()
            task = asyncio.create_task(self._admit(connection), name="tls-handshake")
            self._coming[task] = None
            task.add_done_callback(lambda done: self._coming.pop(done, None))

    async def _admit(self, connection: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._handshake):
                connection.setblocking(False)
                first = await _peek(loop, connection)
                if first == _HELLO:
                    await loop.connect_accepted_socket(
                        self._factory, connection, ssl=self._context, ssl_handshake_timeout=self._handshake
                    )
                    return
                if first:
                    await _answer_plainly(loop, connection)
        except (OSError, TimeoutError) as error:  # ssl.SSLError is an OSError
            log.debug("a handshake failed: %s", error)
        except asyncio.CancelledError:
            connection.close()
            raise
        connection.close()


def _listen(info: tuple[Any, ...], shared: bool) -> socket.socket:
    family, kind, proto, _, address = info
    listening = socket.socket(family, kind, proto)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)  # as asyncio has it
        listening.bind(address)
        listening.listen(BACKLOG)
        listening.setblocking(False)
    except OSError:
        listening.close()
        raise
    return listening


async def _peek(loop: asyncio.AbstractEventLoop, connection: socket.socket) -> bytes:
    """The first byte, which stays where it is; empty at the end."""
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


async def _answer_plainly(loop: asyncio.AbstractEventLoop, connection: socket.socket) -> None:
    await loop.sock_sendall(connection, PLAIN)
    connection.shutdown(socket.SHUT_WR)
    for _ in range(16):  # a connection that is closed on unread bytes is reset, and the answer with it
        if not await loop.sock_recv(connection, 65536):
            return
