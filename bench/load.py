"""Load from a process of its own: so many callers, each waiting for its answer before it asks again.

Every answer is looked at; anything but what was asked for counts as an error. Prints one JSON line:
{"count", "seconds", "errors", "p50", "p99"} where count is answers (unary) or events (streams), p in ms.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from typing import cast

import grpc
import uvloop

from bench.answers import EVENTS, TEXT, send_json, send_request
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

Ask = Callable[[], Awaitable[int]]
"""Asks once and gives what it counted; 0 is an error."""


async def over_grpc(target: str, kind: str, callers: int, *, agents: bool) -> list[Ask]:
    channel = grpc.aio.insecure_channel(target)
    metadata = (("a2a-version", "1.0"),)
    request = send_request(TEXT)
    if kind == "stream":
        request = send_request(str(EVENTS))
        request.tenant = "chunks" if agents else ""
    payload = request.SerializeToString()
    send: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary("/lf.a2a.v1.A2AService/SendMessage")
    stream: grpc.aio.UnaryStreamMultiCallable[bytes, bytes] = channel.unary_stream(
        "/lf.a2a.v1.A2AService/SendStreamingMessage"
    )

    async def unary() -> int:
        answer = pb.SendMessageResponse.FromString(await send(payload, metadata=metadata))
        return int(answer.task.status.state == pb.TASK_STATE_COMPLETED)

    async def streaming() -> int:
        count = 0
        async for _ in stream(payload, metadata=metadata):
            count += 1
        return count if count > EVENTS else 0

    return [unary if kind == "unary" else streaming] * callers


class Connection(asyncio.Protocol):
    """A keep-alive HTTP/1.1 connection that does as little as a load generator may."""

    def __init__(self) -> None:
        self._seen = bytearray()
        self._done: asyncio.Future[bytes] | None = None
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's does not inherit from it

    def data_received(self, data: bytes) -> None:
        self._seen += data
        seen, head = self._seen, self._seen.find(b"\r\n\r\n")
        if head < 0 or self._done is None:
            return
        at = seen.lower().find(b"content-length:", 0, head)
        if at >= 0:
            if len(seen) < head + 4 + int(seen[at + 15 : seen.index(b"\r\n", at)]):
                return
        elif not seen.endswith(b"0\r\n\r\n"):
            return
        done, self._done = self._done, None
        answer = bytes(seen)
        seen.clear()
        if not done.done():
            done.set_result(answer)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_exception(exc or ConnectionResetError())

    async def ask(self, request: bytes) -> bytes:
        self._done = asyncio.get_running_loop().create_future()
        assert self._transport is not None
        self._transport.write(request)
        return await self._done


async def over_http(target: str, kind: str, callers: int, *, agents: bool) -> list[Ask]:
    host, port = target.split(":")
    path, text = ("/message:send", TEXT) if kind == "unary" else ("/message:stream", str(EVENTS))
    if kind == "stream" and agents:
        path = "/chunks" + path
    body = send_json(text)
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {target}\r\nContent-Type: application/json\r\n"
        f"A2A-Version: 1.0\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    request = head.encode() + body
    asks: list[Ask] = []
    for _ in range(callers):
        _, connection = await asyncio.get_running_loop().create_connection(Connection, host, int(port))

        async def ask(connection: Connection = connection) -> int:
            answer = await connection.ask(request)
            if not answer.startswith(b"HTTP/1.1 200"):
                return 0
            if kind == "unary":
                return int(b"TASK_STATE_COMPLETED" in answer)
            events = answer.count(b"data: ")
            return events if events > EVENTS else 0

        asks.append(ask)
    return asks


async def run(asks: list[Ask], seconds: float) -> dict[str, float]:
    took: list[float] = []
    count = errors = 0
    begin = time.perf_counter()
    end = begin + seconds

    async def caller(ask: Ask) -> None:
        nonlocal count, errors
        while (start := time.perf_counter()) < end:
            got = await ask()
            took.append(time.perf_counter() - start)
            count += got
            errors += not got

    await asyncio.gather(*(caller(ask) for ask in asks))
    spent = time.perf_counter() - begin
    took.sort()
    return {
        "count": count,
        "seconds": spent,
        "errors": errors,
        "p50": took[len(took) // 2] * 1000,
        "p99": took[int(len(took) * 0.99)] * 1000,
    }


async def main(arguments: argparse.Namespace) -> None:
    connect = over_grpc if arguments.transport == "grpc" else over_http
    asks = await connect(arguments.target, arguments.kind, arguments.callers, agents=arguments.agents)
    await run(asks, min(0.5, arguments.seconds / 4))
    print(json.dumps(await run(asks, arguments.seconds)), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("transport", choices=["grpc", "http"])
    parser.add_argument("kind", choices=["unary", "stream"])
    parser.add_argument("target", help="HOST:PORT")
    parser.add_argument("--callers", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--agents", action="store_true", help="the target serves our agents, not fixed bytes")
    uvloop.run(main(parser.parse_args()))
