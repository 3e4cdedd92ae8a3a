"""Attacks on the memory of the gRPC port: large messages, and calls whose message never ends."""

from __future__ import annotations

import asyncio
import struct
import time
from contextlib import suppress
from typing import Final

from tests.abuse import h2
from tests.abuse.connections import BROKEN

SEND: Final = "/lf.a2a.v1.A2AService/SendMessage"
CHECK: Final = "/grpc.health.v1.Health/Check"
REFLECTION: Final = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"

MEBI: Final = 1 << 20
MESSAGE_BYTES: Final = 16 * MEBI
SENT_OF_STALLED: Final = 15 * MEBI
STREAMS_OF_CONNECTION: Final = 100
_DEFAULT_WINDOW: Final = 65_535
_INITIAL_WINDOW_SIZE: Final = 4
"""The identifier of the setting (RFC 9113 §6.5.2)."""
_GO_AWAY: Final = 7


class Upload:
    """One connection whose calls send `sent` bytes of a message with a declared size, within the server's windows."""

    def __init__(self, path: str, calls: int, sent: int, headers: bytes = b"") -> None:
        """`headers`: more headers of each call."""
        self._path = path
        self._headers = headers
        self._calls = calls
        self._sent = sent
        self._ends_messages = sent == MESSAGE_BYTES
        self._unsent: dict[int, int] = {}
        self._windows: dict[int, int] = {0: _DEFAULT_WINDOW}
        self._initial_window = _DEFAULT_WINDOW
        self._changed = asyncio.Event()
        self.ended = 0
        """Calls that the server ended."""

    async def run(self, address: str, until: float) -> int:
        """Returns how many calls it made. Keeps the connection open until all calls have ended, or until the time, but
        not before all have begun."""
        try:
            reader, writer = await h2.connect(address)
        except BROKEN:
            return 0
        reading = asyncio.create_task(self._read(reader, writer))
        started = 0
        try:
            while (time.monotonic() < until or started < self._calls) and not reading.done():
                if started < self._calls:
                    started += 1
                    self._start(writer, 2 * started - 1)
                if not self._send(writer) and started == self._calls:
                    if self.ended == self._calls:
                        break
                    self._changed.clear()
                    with suppress(TimeoutError):
                        await asyncio.wait_for(self._changed.wait(), min(0.5, max(until - time.monotonic(), 0)))
                await writer.drain()
                await asyncio.sleep(0)
        except BROKEN:
            pass
        finally:
            writer.transport.abort()
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
        return started

    def _start(self, writer: asyncio.StreamWriter, stream: int) -> None:
        self._windows[stream] = self._initial_window
        self._unsent[stream] = self._sent
        head = h2.call(self._path) + self._headers
        writer.write(h2.frame(h2.HEADERS, h2.END_HEADERS, stream, head))
        self._write(writer, stream, b"\0" + struct.pack("!I", MESSAGE_BYTES))

    def _send(self, writer: asyncio.StreamWriter) -> bool:
        """Sends a frame of each call. Returns whether anything could be sent."""
        sent = False
        for stream, unsent in list(self._unsent.items()):
            size = min(unsent, self._windows[stream], self._windows[0], 16_384)
            if size <= 0:
                continue
            sent = True
            if size == unsent:
                del self._unsent[stream]
            else:
                self._unsent[stream] = unsent - size
            ends = size == unsent and self._ends_messages
            self._write(writer, stream, bytes(size), h2.END_STREAM if ends else 0)
        return sent

    def _write(self, writer: asyncio.StreamWriter, stream: int, data: bytes, flags: int = 0) -> None:
        writer.write(h2.frame(h2.DATA, flags, stream, data))
        self._windows[stream] -= len(data)
        self._windows[0] -= len(data)

    async def _read(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(*BROKEN):
            while True:
                head = await reader.readexactly(9)
                kind, flags, stream = head[3], head[4], int.from_bytes(head[5:], "big")
                payload = await reader.readexactly(int.from_bytes(head[:3], "big"))
                if kind == _GO_AWAY:
                    return
                if kind == h2.WINDOW:
                    self._windows[stream] = self._windows.get(stream, 0) + int.from_bytes(payload, "big")
                elif kind == h2.SETTINGS and not flags & h2.ACK:
                    self._apply_settings(payload)
                elif kind == h2.PING and not flags & h2.ACK:
                    writer.write(h2.frame(h2.PING, h2.ACK, 0, payload))
                elif kind == h2.HEADERS and flags & h2.END_STREAM:
                    self._unsent.pop(stream, None)
                    self.ended += 1
                self._changed.set()

    def _apply_settings(self, payload: bytes) -> None:
        for at in range(0, len(payload), 6):
            name, value = struct.unpack("!HI", payload[at : at + 6])
            if name == _INITIAL_WINDOW_SIZE:
                for stream in self._windows.keys() - {0}:
                    self._windows[stream] += value - self._initial_window
                self._initial_window = value


async def upload(
    address: str, seconds: float, path: str, *, calls: int, sent: int = MESSAGE_BYTES, headers: bytes = b""
) -> int:
    """Makes calls at once, a hundred on each connection, and holds them. Returns how many."""
    until = time.monotonic() + seconds
    shares = [min(STREAMS_OF_CONNECTION, calls - done) for done in range(0, calls, STREAMS_OF_CONNECTION)]
    return sum(await asyncio.gather(*(Upload(path, share, sent, headers).run(address, until) for share in shares)))


async def _repeatedly(address: str, seconds: float, path: str, calls: int, sent: int = MESSAGE_BYTES) -> int:
    until, count = time.monotonic() + seconds, 0
    while time.monotonic() < until:
        count += await upload(address, max(until - time.monotonic(), 0.1), path, calls=calls, sent=sent)
    return count


async def grpc_large_messages(http: str, grpc_address: str, seconds: float) -> int:
    """24 messages of the largest size at once."""
    return await _repeatedly(grpc_address, seconds, SEND, 24)


async def grpc_stalled_messages(http: str, grpc_address: str, seconds: float) -> int:
    """A thousand calls that send 15 of 16 MiB, and then nothing."""
    return await _repeatedly(grpc_address, seconds, SEND, 1000, SENT_OF_STALLED)


async def grpc_large_health_checks(http: str, grpc_address: str, seconds: float) -> int:
    """Health checks of 16 MiB, which need no credentials."""
    return await _repeatedly(grpc_address, seconds, CHECK, 100)


async def grpc_stalled_health_checks(http: str, grpc_address: str, seconds: float) -> int:
    """Health checks that send 15 of 16 MiB, and then nothing."""
    return await _repeatedly(grpc_address, seconds, CHECK, 1000, SENT_OF_STALLED)


async def grpc_large_reflections(http: str, grpc_address: str, seconds: float) -> int:
    """Requests of reflection with 16 MiB, which need no credentials."""
    return await _repeatedly(grpc_address, seconds, REFLECTION, 100)
