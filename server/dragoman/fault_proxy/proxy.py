"""The proxy itself: connections come in, go on to one server, and some of them are dropped."""

from __future__ import annotations

import asyncio
import random
import re
import socket
import struct
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal, NamedTuple, Self, get_args

from dragoman.fault_proxy.detector import ExchangeDetector

PROXY_CHUNK_BYTES: Final = 64 * 1024

_LINGER_ZERO: Final = struct.pack("ii", 1, 0)
"""SO_LINGER with no time to linger: closing resets the connection."""


def _ignore_drop(_: Drop) -> None:
    pass


class FaultProxy:
    """Listens for as long as its block runs, and carries connections to a server.

    What it carries is not looked at beyond what `sight` says, and not changed; TLS passes through.
    """

    def __init__(
        self,
        target: str,
        *,
        listen: str = "127.0.0.1:0",
        every: int = 3,
        after: DropLimit | None = None,
        delay: float = 0.0,
        how: DropMode = "close",
        seed: int = 0,
        on_drop: Callable[[Drop], None] = _ignore_drop,
    ) -> None:
        """`target` and `listen` are HOST:PORT; port 0 of `listen` is a free one.

        Each `every`th connection is dropped at its first request, at one of three moments that `seed` chooses; 0: none.
        `after`: all others are dropped, too, in the middle of an answer, after about that time or that
        many bytes of
        answers. `delay`: seconds for which each piece is held up, both ways. `told` hears of each drop.
        Raises ValueError for what cannot be.
        """
        if every < 0 or delay < 0:
            raise ValueError(f"{'every' if every < 0 else 'delay'}: must be 0 or more")
        if how not in DROP_MODES:
            raise ValueError(f'how: "{how}" is none of {", ".join(DROP_MODES)}')
        _parse(target)
        _parse(listen)
        self.target = target
        """Where connections go; one that is under way stays where it is."""
        self.connections = 0
        self.unreachable = 0
        """Connections for which there was no server."""
        self.up = self.down = 0
        """Bytes that got through."""
        self.dropped: Counter[DropPoint] = Counter()
        self._listen = listen
        self._every = every
        self._after = after
        self._delay = delay
        self._how: DropMode = how
        self._seed = seed
        self._on_drop = on_drop
        self._connection_tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    @property
    def address(self) -> str:
        """HOST:PORT of where it listens."""
        assert self._server is not None, "use a FaultProxy inside `async with`"
        host, port = self._server.sockets[0].getsockname()[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    async def __aenter__(self) -> Self:
        """Raises OSError when it cannot listen there."""
        self._server = await asyncio.start_server(
            self._accept, *_parse(self._listen), backlog=1024, limit=PROXY_CHUNK_BYTES
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in tuple(self._connection_tasks):
            task.cancel()
        await asyncio.gather(*self._connection_tasks, return_exceptions=True)
        self._server = None

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connection_tasks.add(task)
        self.connections += 1
        number = self.connections
        try:
            there = await asyncio.open_connection(*_parse(self.target), limit=PROXY_CHUNK_BYTES)
        except OSError:
            self.unreachable += 1
            writer.close()
            self._connection_tasks.discard(task)
            return
        fault = choose_fault(number, seed=self._seed, every=self._every, after=self._after)
        try:
            await _ProxiedConnection(self, number, fault, (reader, writer), there).forward()
        except asyncio.CancelledError:
            pass  # the end; nobody waits for this task
        finally:
            for end in (writer, there[1]):
                end.transport.abort()
            self._connection_tasks.discard(task)

    def _record_drop(self, drop: Drop) -> None:
        self.dropped[drop.point] += 1
        self._on_drop(drop)


StreamPair = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class _Dropped(Exception):
    """It is time."""


class _ProxiedConnection:
    def __init__(self, proxy: FaultProxy, number: int, fault: Fault, client: StreamPair, server: StreamPair) -> None:
        self._proxy = proxy
        self._number = number
        self._fault = fault
        self._client = client
        self._server = server
        self._detector = ExchangeDetector()
        self._started_at = time.monotonic()
        self._up = self._down = 0

    async def forward(self) -> None:
        """Until both sides have ended, one has broken, or it was dropped."""
        both = [asyncio.create_task(self._forward_to_server()), asyncio.create_task(self._forward_to_client())]
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            for one in both:
                one.cancel()
            ends = await asyncio.gather(*both, return_exceptions=True)
        if any(isinstance(end, _Dropped) for end in ends):
            await self._drop()
        elif not any(isinstance(end, BaseException) for end in ends):
            await _close(self._client[1])
            await _close(self._server[1])
        for end in ends:
            if isinstance(end, Exception) and not isinstance(end, (_Dropped, OSError)):
                raise end

    async def _forward_to_server(self) -> None:
        (reader, _), (_, writer) = self._client, self._server
        while data := await reader.read(PROXY_CHUNK_BYTES):
            self._detector.observe_client(data)
            if self._fault.point is DropPoint.BEFORE_REQUEST and self._detector.request_started:
                raise _Dropped
            self._up += len(data)
            self._proxy.up += len(data)
            await self._write(writer, data)
        writer.write_eof()

    async def _forward_to_client(self) -> None:
        (_, writer), (reader, _) = self._client, self._server
        while data := await reader.read(PROXY_CHUNK_BYTES):
            kept = self._bytes_before_drop(data)
            passed = data if kept is None else data[:kept]
            self._down += len(passed)
            self._proxy.down += len(passed)
            await self._write(writer, passed)
            if kept is not None:
                raise _Dropped
        writer.write_eof()

    def _bytes_before_drop(self, data: bytes) -> int | None:
        """How much of what the server said gets through before the connection is dropped; None: it is not."""
        begins = self._detector.observe_server(data)
        if begins is None:
            return None
        moment, share, span = self._fault
        if moment is DropPoint.BEFORE_RESPONSE:
            return begins
        middle = begins + int((len(data) - begins) * share)
        if moment is DropPoint.DURING_RESPONSE:
            return middle
        if moment is not DropPoint.AFTER_LIMIT:
            return None
        if span.response_bytes:
            return span.response_bytes - self._down if self._down + len(data) > span.response_bytes else None
        return middle if time.monotonic() - self._started_at >= span.seconds else None

    async def _write(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        if self._proxy._delay:
            await asyncio.sleep(self._proxy._delay)
        writer.write(data)
        await writer.drain()

    async def _drop(self) -> None:
        moment, how = self._fault.point, self._proxy._how
        assert moment is not None
        age = time.monotonic() - self._started_at
        self._proxy._record_drop(Drop(self._number, moment, how, self._up, self._down, age))
        reader, writer = self._client
        if how == "hang":
            with suppress(OSError):
                while await reader.read(PROXY_CHUNK_BYTES):  # until the client gives up
                    pass
        elif how == "reset":
            for end in (writer, self._server[1]):
                end.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_ZERO)
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


DropMode = Literal["close", "reset", "hang"]
"""What a drop looks like: the end of the stream (FIN), a reset (RST), or nothing at all, not even an end."""

DROP_MODES: Final[tuple[str, ...]] = get_args(DropMode)


class DropPoint(StrEnum):
    """When a connection is dropped, and what a caller may conclude."""

    BEFORE_REQUEST = "before its request went up"
    """Nobody has heard of it."""
    BEFORE_RESPONSE = "after its request went up, before the answer"
    """It was carried out, or is, and the caller does not know."""
    DURING_RESPONSE = "in the middle of its answer"
    AFTER_LIMIT = "in the middle of an answer, after a while"
    """As `--after` has it."""


FIRST_REQUEST_POINTS: Final = (DropPoint.BEFORE_REQUEST, DropPoint.BEFORE_RESPONSE, DropPoint.DURING_RESPONSE)

_LIMIT_TEXT: Final = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,6})?)(ms|s|m|B|KiB|MiB)", re.ASCII)
_LIMIT_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "B": 1, "KiB": 1024, "MiB": 1024 * 1024}


@dataclass(frozen=True, slots=True)
class DropLimit:
    """For how long connections are left alone: one of the two is positive."""

    seconds: float = 0.0
    response_bytes: int = 0
    """Bytes of answers."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads `5s`, `500ms`, `2m`, `100B`, `64KiB` or `1MiB`. Raises ValueError, naming the form."""
        found = _LIMIT_TEXT.fullmatch(text.strip())
        if not found or not float(found[1]):
            raise ValueError(f'"{text}" is neither a time nor a size: a positive number with ms, s, m, B, KiB or MiB')
        amount = float(found[1]) * _LIMIT_UNITS[found[2]]
        return cls(response_bytes=max(1, round(amount))) if found[2].endswith("B") else cls(seconds=amount)


class Fault(NamedTuple):
    """What happens to one connection."""

    point: DropPoint | None
    """None: nothing does."""
    fraction: float
    """How much of the piece in which it happens still gets through, from 0 to below 1."""
    limit: DropLimit
    """For LATER: for how long it is left alone."""


class Drop(NamedTuple):
    """One connection that was dropped."""

    number: int
    """Of the connection, from 1."""
    point: DropPoint
    how: DropMode
    up: int
    down: int
    """Bytes that got through, to the server and back."""
    seconds: float
    """How old it was."""


def choose_fault(number: int, *, seed: int, every: int, after: DropLimit | None) -> Fault:
    """The fault of connection `number`, counted from 1: the same for the same arguments, whatever the others do."""
    chance = random.Random(f"{seed}/{number}")
    moment, share, length = chance.choice(FIRST_REQUEST_POINTS), chance.random(), chance.uniform(0.5, 1.5)
    if every and number % every == 0:
        return Fault(moment, share, DropLimit())
    if after is None:
        return Fault(None, 0.0, DropLimit())
    # Between half and one and a half times of it, so that connections that began together do not end together.
    return Fault(DropPoint.AFTER_LIMIT, share, DropLimit(after.seconds * length, round(after.response_bytes * length)))
