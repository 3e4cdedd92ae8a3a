"""The proxy itself: connections come in, go on to one server, and some of them are dropped."""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Self

from dragoman.flaky.faults import HOWS, Drop, Fault, How, Moment, Span, fault_of
from dragoman.flaky.sight import Sight

CHUNK: Final = 64 * 1024

_RESET: Final = struct.pack("ii", 1, 0)
"""SO_LINGER with no time to linger: closing resets the connection."""


def _ignored(_: Drop) -> None:
    pass


class FlakyProxy:
    """Listens for as long as its block runs, and carries connections to a server.

    What it carries is not looked at beyond what `sight` says, and not changed; TLS passes through.
    """

    def __init__(
        self,
        to: str,
        *,
        listen: str = "127.0.0.1:0",
        every: int = 3,
        after: Span | None = None,
        delay: float = 0.0,
        how: How = "close",
        seed: int = 0,
        told: Callable[[Drop], None] = _ignored,
    ) -> None:
        """`to` and `listen` are HOST:PORT; port 0 of `listen` is a free one.

        Each `every`th connection is dropped at its first request, at one of three moments that `seed` chooses; 0: none.
        `after`: all others are dropped, too, in the middle of an answer, after about that time or that many bytes of
        answers. `delay`: seconds for which each piece is held up, both ways. `told` hears of each drop.
        Raises ValueError for what cannot be.
        """
        if every < 0 or delay < 0:
            raise ValueError(f"{'every' if every < 0 else 'delay'}: must be 0 or more")
        if how not in HOWS:
            raise ValueError(f'how: "{how}" is none of {", ".join(HOWS)}')
        _parse(to)
        _parse(listen)
        self.to = to
        """Where connections go; one that is under way stays where it is."""
        self.connections = 0
        self.unreachable = 0
        """Connections for which there was no server."""
        self.up = self.down = 0
        """Bytes that got through."""
        self.dropped: Counter[Moment] = Counter()
        self._listen = listen
        self._every = every
        self._after = after
        self._delay = delay
        self._how: How = how
        self._seed = seed
        self._told = told
        self._carrying: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    @property
    def address(self) -> str:
        """HOST:PORT of where it listens."""
        assert self._server is not None, "use a FlakyProxy inside `async with`"
        host, port = self._server.sockets[0].getsockname()[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    async def __aenter__(self) -> Self:
        """Raises OSError when it cannot listen there."""
        self._server = await asyncio.start_server(self._take, *_parse(self._listen), backlog=1024, limit=CHUNK)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in tuple(self._carrying):
            task.cancel()
        await asyncio.gather(*self._carrying, return_exceptions=True)
        self._server = None

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._carrying.add(task)
        self.connections += 1
        number = self.connections
        try:
            there = await asyncio.open_connection(*_parse(self.to), limit=CHUNK)
        except OSError:
            self.unreachable += 1
            writer.close()
            self._carrying.discard(task)
            return
        fault = fault_of(number, seed=self._seed, every=self._every, after=self._after)
        try:
            await _Connection(self, number, fault, (reader, writer), there).carry()
        except asyncio.CancelledError:
            pass  # the end; nobody waits for this task
        finally:
            for end in (writer, there[1]):
                end.transport.abort()
            self._carrying.discard(task)

    def _note(self, drop: Drop) -> None:
        self.dropped[drop.moment] += 1
        self._told(drop)


Side = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class _Dropped(Exception):
    """It is time."""


class _Connection:
    def __init__(self, proxy: FlakyProxy, number: int, fault: Fault, here: Side, there: Side) -> None:
        self._proxy = proxy
        self._number = number
        self._fault = fault
        self._here = here
        self._there = there
        self._sight = Sight()
        self._began = time.monotonic()
        self._up = self._down = 0

    async def carry(self) -> None:
        """Until both sides have ended, one has broken, or it was dropped."""
        both = [asyncio.create_task(self._upward()), asyncio.create_task(self._downward())]
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            for one in both:
                one.cancel()
            ends = await asyncio.gather(*both, return_exceptions=True)
        if any(isinstance(end, _Dropped) for end in ends):
            await self._drop()
        elif not any(isinstance(end, BaseException) for end in ends):
            await _close(self._here[1])
            await _close(self._there[1])
        for end in ends:
            if isinstance(end, Exception) and not isinstance(end, (_Dropped, OSError)):
                raise end

    async def _upward(self) -> None:
        (reader, _), (_, writer) = self._here, self._there
        while data := await reader.read(CHUNK):
            self._sight.asks(data)
            if self._fault.moment is Moment.REQUEST and self._sight.asked:
                raise _Dropped
            self._up += len(data)
            self._proxy.up += len(data)
            await self._pass_on(writer, data)
        writer.write_eof()

    async def _downward(self) -> None:
        (_, writer), (reader, _) = self._here, self._there
        while data := await reader.read(CHUNK):
            kept = self._kept(data)
            passed = data if kept is None else data[:kept]
            self._down += len(passed)
            self._proxy.down += len(passed)
            await self._pass_on(writer, passed)
            if kept is not None:
                raise _Dropped
        writer.write_eof()

    def _kept(self, data: bytes) -> int | None:
        """How much of what the server said gets through before the connection is dropped; None: it is not."""
        begins = self._sight.answers(data)
        if begins is None:
            return None
        moment, share, span = self._fault
        if moment is Moment.UNANSWERED:
            return begins
        middle = begins + int((len(data) - begins) * share)
        if moment is Moment.ANSWER:
            return middle
        if moment is not Moment.LATER:
            return None
        if span.size:
            return span.size - self._down if self._down + len(data) > span.size else None
        return middle if time.monotonic() - self._began >= span.seconds else None

    async def _pass_on(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        if self._proxy._delay:
            await asyncio.sleep(self._proxy._delay)
        writer.write(data)
        await writer.drain()

    async def _drop(self) -> None:
        moment, how = self._fault.moment, self._proxy._how
        assert moment is not None
        age = time.monotonic() - self._began
        self._proxy._note(Drop(self._number, moment, how, self._up, self._down, age))
        reader, writer = self._here
        if how == "hang":
            with suppress(OSError):
                while await reader.read(CHUNK):  # until the client gives up
                    pass
        elif how == "reset":
            for end in (writer, self._there[1]):
                end.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                end.transport.abort()
        else:
            await _close(writer)


async def _close(writer: asyncio.StreamWriter) -> None:
    """Closes when what was written is on its way."""
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()


def _parse(address: str) -> tuple[str, int]:
    """HOST:PORT, with an IPv6 host in brackets. Raises ValueError."""
    host, colon, port = address.rpartition(":")
    if not (colon and host and port.isascii() and port.isdigit() and int(port) < 65536):
        raise ValueError(f'"{address}" is not HOST:PORT; for example 127.0.0.1:8080 or [::1]:8080')
    return host.removeprefix("[").removesuffix("]"), int(port)
