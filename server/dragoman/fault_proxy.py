"""A TCP proxy that drops connections, to test clients. `dragoman flaky` runs it.

async with FaultProxy("127.0.0.1:8080", every=3, seed=7) as proxy:
    ...  # connect to proxy.address
    assert proxy.dropped[DropPoint.DURING_RESPONSE] > 0
"""

from __future__ import annotations

import asyncio
import random
import re
import socket
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from enum import StrEnum
from typing import Final, Literal, NamedTuple, Self, get_args

__all__ = ["Drop", "DropLimit", "DropMode", "DropPoint", "FaultProxy"]

PROXY_CHUNK_BYTES: Final = 64 * 1024
_LINGER_ZERO: Final = struct.pack("ii", 1, 0)  # SO_LINGER of zero: closing resets the connection

DropMode = Literal["close", "reset", "hang"]  # closed (FIN), reset (RST), or kept open without forwarding


class DropPoint(StrEnum):
    """When a connection is dropped, relative to its request and response."""

    BEFORE_REQUEST = "before the request"  # the server does not know of the request
    BEFORE_RESPONSE = "after the request, before the response"
    """The server processes the request, or has done so; the client cannot know."""
    DURING_RESPONSE = "in the middle of the response"  # the client has a part of the response
    AFTER_LIMIT = "in the middle of a response, after the limit"  # the limit is the connection's DropLimit


FIRST_REQUEST_POINTS: Final = (DropPoint.BEFORE_REQUEST, DropPoint.BEFORE_RESPONSE, DropPoint.DURING_RESPONSE)

_LIMIT_TEXT: Final = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,6})?)(ms|s|m|B|KiB|MiB)", re.ASCII)
_LIMIT_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "B": 1, "KiB": 1024, "MiB": 1024 * 1024}


@dataclass(frozen=True, slots=True)
class DropLimit:
    """The time or response size after which a connection is dropped: exactly one of them is positive."""

    seconds: float = 0.0
    response_bytes: int = 0

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parses `5s`, `500ms`, `2m`, `100B`, `64KiB` or `1MiB`. Raises ValueError that names the format."""
        match = _LIMIT_TEXT.fullmatch(text.strip())
        if not match or not float(match[1]):
            raise ValueError(f'"{text}" is not a time or size; use a positive number with ms, s, m, B, KiB or MiB')
        amount = float(match[1]) * _LIMIT_UNITS[match[2]]
        return cls(response_bytes=max(1, round(amount))) if match[2].endswith("B") else cls(seconds=amount)


class Fault(NamedTuple):
    """When and after how much data one connection is dropped."""

    point: DropPoint | None  # None: the connection is not dropped
    fraction: float  # for DURING_RESPONSE and time limits: the part of the last chunk that is still forwarded, 0 to 1
    limit: DropLimit  # used by AFTER_LIMIT only


class Drop(NamedTuple):
    """One dropped connection."""

    number: int  # the number of the connection, from 1
    point: DropPoint
    how: DropMode
    up: int  # bytes forwarded to the server
    down: int  # bytes forwarded to the client
    seconds: float  # the age of the connection


@dataclass(eq=False)
class FaultProxy:
    """Forwards TCP connections to a server while its block runs, and drops some of them.

    Forwarded bytes are not changed; only ExchangeDetector looks at them. TLS passes through. Addresses are HOST:PORT.
    Raises ValueError for invalid arguments.
    """

    target: str  # address of the server; a change applies to new connections
    _: KW_ONLY
    listen: str = "127.0.0.1:0"  # port 0 is any free port
    every: int = 3  # each `every`th connection is dropped at its first request, at one of three points; 0 drops none
    after: DropLimit | None = None
    """The other connections are dropped inside the first response chunk past this time or size, which is scaled by 0.5
    to 1.5 for each connection."""
    delay: float = 0.0  # seconds added to each chunk, in both directions
    how: DropMode = "close"
    seed: int = 0  # decides where connections are dropped
    on_drop: Callable[[Drop], None] = lambda _: None

    def __post_init__(self) -> None:
        if self.every < 0 or self.delay < 0:
            raise ValueError(f"{'every' if self.every < 0 else 'delay'}: must be 0 or more")
        if self.how not in get_args(DropMode):
            raise ValueError(f'how: "{self.how}" is invalid; use one of {", ".join(get_args(DropMode))}')
        _parse_address(self.target)
        _parse_address(self.listen)
        self.connections = 0
        self.unreachable = 0  # connections closed because the server could not be reached
        self.up = self.down = 0  # bytes forwarded to the server, and to clients
        self.dropped: Counter[DropPoint] = Counter()
        self._connection_tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    @property
    def address(self) -> str:
        """HOST:PORT on which the proxy listens."""
        assert self._server is not None, "use a FaultProxy inside `async with`"
        host, port = self._server.sockets[0].getsockname()[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    async def __aenter__(self) -> Self:
        """Starts listening. Raises OSError if the address cannot be bound."""
        self._server = await asyncio.start_server(
            self._accept, *_parse_address(self.listen), backlog=1024, limit=PROXY_CHUNK_BYTES
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
            server = await asyncio.open_connection(*_parse_address(self.target), limit=PROXY_CHUNK_BYTES)
        except (OSError, asyncio.CancelledError) as error:  # canceled by __aexit__, which ignores the result
            self.unreachable += isinstance(error, OSError)
            writer.close()
            self._connection_tasks.discard(task)
            return
        fault = choose_fault(number, seed=self.seed, every=self.every, after=self.after)
        try:
            await _ProxiedConnection(self, number, fault, (reader, writer), server).forward()
        except asyncio.CancelledError:
            pass  # canceled by __aexit__, which ignores the result
        finally:
            for stream in (writer, server[1]):
                stream.transport.abort()
            self._connection_tasks.discard(task)


StreamPair = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class _Dropped(Exception):
    """Stops forwarding: the connection is to be dropped."""


@dataclass(eq=False)
class _ProxiedConnection:
    """One client connection, forwarded to the server until its fault occurs."""

    _proxy: FaultProxy
    _number: int
    _fault: Fault
    _client: StreamPair
    _server: StreamPair

    def __post_init__(self) -> None:
        self._detector = ExchangeDetector()
        self._started_at = time.monotonic()
        self._up = self._down = 0

    async def forward(self) -> None:
        """Forwards in both directions until both sides end, one fails, or the connection is dropped."""
        tasks = [asyncio.create_task(self._forward_to_server()), asyncio.create_task(self._forward_to_client())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
        if any(isinstance(result, _Dropped) for result in results):
            await self._drop()
        elif not any(isinstance(result, BaseException) for result in results):
            await _close(self._client[1])
            await _close(self._server[1])
        for result in results:
            if isinstance(result, Exception) and not isinstance(result, (_Dropped, OSError)):
                raise result

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
            size = self._bytes_before_drop(data)
            forwarded = data if size is None else data[:size]
            self._down += len(forwarded)
            self._proxy.down += len(forwarded)
            await self._write(writer, forwarded)
            if size is not None:
                raise _Dropped
        writer.write_eof()

    def _bytes_before_drop(self, data: bytes) -> int | None:
        """Returns how many bytes of a server chunk to forward before dropping the connection; None: do not drop."""
        start = self._detector.observe_server(data)
        if start is None:
            return None
        point, fraction, limit = self._fault
        if point is DropPoint.BEFORE_RESPONSE:
            return start
        middle = start + int((len(data) - start) * fraction)
        if point is DropPoint.DURING_RESPONSE:
            return middle
        if point is not DropPoint.AFTER_LIMIT:
            return None
        if limit.response_bytes:
            return limit.response_bytes - self._down if self._down + len(data) > limit.response_bytes else None
        return middle if time.monotonic() - self._started_at >= limit.seconds else None

    async def _write(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        if self._proxy.delay:
            await asyncio.sleep(self._proxy.delay)
        writer.write(data)
        await writer.drain()

    async def _drop(self) -> None:
        point, how = self._fault.point, self._proxy.how
        assert point is not None
        age = time.monotonic() - self._started_at
        self._proxy.dropped[point] += 1
        self._proxy.on_drop(Drop(self._number, point, how, self._up, self._down, age))
        reader, writer = self._client
        if how == "hang":
            with suppress(OSError):
                while await reader.read(PROXY_CHUNK_BYTES):  # until the client disconnects
                    pass
        elif how == "reset":
            for stream in (writer, self._server[1]):
                stream.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_ZERO)
                stream.transport.abort()
        else:
            await _close(writer)


async def _close(writer: asyncio.StreamWriter) -> None:
    """Closes after sending what was written."""
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()


def _parse_address(address: str) -> tuple[str, int]:
    """Parses HOST:PORT, with an IPv6 host in brackets. Raises ValueError."""
    host, colon, port = address.rpartition(":")
    if not (colon and host and port.isascii() and port.isdigit() and int(port) < 65536):
        raise ValueError(f'"{address}" is not HOST:PORT; for example 127.0.0.1:8080 or [::1]:8080')
    return host.removeprefix("[").removesuffix("]"), int(port)


def choose_fault(number: int, *, seed: int, every: int, after: DropLimit | None) -> Fault:
    """Returns the fault of connection `number`, from 1. It depends on nothing but the arguments."""
    rng = random.Random(f"{seed}/{number}")
    point, fraction, scale = rng.choice(FIRST_REQUEST_POINTS), rng.random(), rng.uniform(0.5, 1.5)
    if every and number % every == 0:
        return Fault(point, fraction, DropLimit())
    if after is None:
        return Fault(None, 0.0, DropLimit())
    # Scaled by 0.5 to 1.5, so connections that start together are not dropped together.
    limit = DropLimit(after.seconds * scale, round(after.response_bytes * scale))
    return Fault(DropPoint.AFTER_LIMIT, fraction, limit)


HeaderParser = Callable[[bytes], tuple[int, int]]  # of a frame: its type and length

_HTTP2_FRAME: Final[tuple[int, HeaderParser]] = (9, lambda header: (header[3], int.from_bytes(header[:3], "big")))
_TLS_RECORD: Final[tuple[int, HeaderParser]] = (5, lambda header: (header[0], int.from_bytes(header[3:5], "big")))
_HTTP2_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_HTTP2_HEADERS: Final = 1  # a frame type of HTTP/2
_TLS_CHANGE_CIPHER_SPEC, _TLS_HANDSHAKE, _TLS_APPLICATION_DATA = 20, 22, 23  # record types of TLS


class ExchangeDetector:
    """Detects where the request and its response start in the bytes of one connection.

    HTTP/1 and unknown protocols: with the first byte of each side. Unencrypted HTTP/2 (gRPC): with the first HEADERS
    frame of each side, because settings come first (RFC 9113 §3.4, §4.1). TLS: estimated from the record types
    (RFC 8446 §5.1), without decryption.
    """

    request_started = False
    response_started = False
    _early_server_bytes = b""
    _client_frames: _FrameScanner | None = None
    _server_frames: _FrameScanner | None = None
    _protocol_known = False
    _tls = False
    _cipher_changed = False
    _encrypted_records = 0

    def observe_client(self, data: bytes) -> None:
        if self.request_started or not data:
            return
        if not self._protocol_known:
            self._detect_protocol(data)
        if self._client_frames is None:
            self.request_started = True
            return
        for kind, _ in self._client_frames.scan(data):
            self.request_started = self.request_started or (
                self._observe_client_record(kind) if self._tls else kind == _HTTP2_HEADERS
            )

    def observe_server(self, data: bytes) -> int | None:
        """Processes bytes from the server. Returns where the response starts in them.

        0 if it started earlier; None if it has not started.
        """
        if self.response_started:
            return 0
        if not self._protocol_known:  # the server sends first
            self._early_server_bytes += data
            return None
        starts = [0]
        if self._server_frames is not None:
            response_kind = _TLS_APPLICATION_DATA if self._tls else _HTTP2_HEADERS
            starts = [position for kind, position in self._server_frames.scan(data) if kind == response_kind]
        self.response_started = self.request_started and bool(starts)
        return starts[0] if self.response_started else None

    def _detect_protocol(self, first: bytes) -> None:
        self._protocol_known = True
        if first[0] == _TLS_HANDSHAKE:
            self._tls = True
            self._client_frames, self._server_frames = _FrameScanner(*_TLS_RECORD), _FrameScanner(*_TLS_RECORD)
        elif first.startswith(_HTTP2_PREFACE[: len(first)]):
            self._client_frames = _FrameScanner(*_HTTP2_FRAME, skip=len(_HTTP2_PREFACE))
            self._server_frames = _FrameScanner(*_HTTP2_FRAME)
        if self._server_frames is not None:
            for _ in self._server_frames.scan(self._early_server_bytes):
                pass
        self._early_server_bytes = b""

    def _observe_client_record(self, kind: int) -> bool:
        """Counts a client record. Returns whether the request has started. Call once for each record.

        The client's first encrypted record ends the handshake: in TLS 1.2 a handshake record after ChangeCipherSpec,
        in 1.3 a record that looks like application data. The second one is therefore the request.
        """
        self._cipher_changed = self._cipher_changed or kind == _TLS_CHANGE_CIPHER_SPEC
        self._encrypted_records += kind == _TLS_APPLICATION_DATA or (kind == _TLS_HANDSHAKE and self._cipher_changed)
        return self._encrypted_records > 1


class _FrameScanner:
    """Splits one direction into frames, whose header contains their type and length."""

    def __init__(self, header_size: int, parse_header: HeaderParser, *, skip: int = 0) -> None:
        self._header_size = header_size
        self._parse_header = parse_header
        self._header_bytes = b""
        self._remaining = skip

    def scan(self, data: bytes) -> Iterator[tuple[int, int]]:
        """Yields the type of each frame whose header ends in `data`, and where in `data` it starts, at least 0."""
        position = 0
        while position < len(data):
            if self._remaining:
                skipped = min(self._remaining, len(data) - position)
                self._remaining -= skipped
                position += skipped
                continue
            start = max(position - len(self._header_bytes), 0)
            chunk = data[position : position + self._header_size - len(self._header_bytes)]
            self._header_bytes += chunk
            position += len(chunk)
            if len(self._header_bytes) == self._header_size:
                kind, self._remaining = self._parse_header(self._header_bytes)
                self._header_bytes = b""
                yield kind, start
