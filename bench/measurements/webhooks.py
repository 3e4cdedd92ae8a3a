"""Cost of push notifications for streams (G6): streams with a webhook compared with streams without.

The receivers run in the load process. A down receiver refuses every connection, one that drops them closes each without
a response, a silent one reads and never responds, a healthy one accepts everything immediately. Each case has a new
server, and the run checks that its receiver was called.
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Final

import aiohttp
import orjson
import uvloop
from tests.load.requests import WireRequest

from bench.load.codecs import CODECS
from bench.load.connections import WrongResponse, connect
from bench.load.process import Meter, drive, stream_call
from bench.responses import EVENTS
from bench.rows import Key
from bench.run import FEW, Run
from bench.sections import WEBHOOKS
from bench.servers.contestants import CONTESTANTS, DRAGOMAN, RunningServer, start_server

STREAMS: Final = 4
WARM_UP: Final = 0.5
MIN_SECONDS: Final = 0.5
"""Minimum seconds of each case: retries begin after up to one second."""

NO_WEBHOOK: Final = "no webhook"
RECEIVER_DOWN: Final = "receiver down"
RECEIVER_DROPS: Final = "receiver drops connections"
RECEIVER_SILENT: Final = "receiver silent"
RECEIVER_HEALTHY: Final = "receiver healthy"
CASES: Final = (NO_WEBHOOK, RECEIVER_DOWN, RECEIVER_DROPS, RECEIVER_SILENT, RECEIVER_HEALTHY)

NO_CONTENT: Final = b"HTTP/1.1 204 No Content\r\n\r\n"


def measure(run: Run) -> None:
    """Measures each case on a new server; the order alternates between rounds."""
    for number in range(min(run.plan.rounds, FEW)):
        for case in CASES[:: -1 if number % 2 else 1]:
            key = Key(WEBHOOKS, case, DRAGOMAN)
            try:
                with start_server(CONTESTANTS[DRAGOMAN]) as server:
                    result = uvloop.run(_streams(server, case, max(run.plan.seconds, MIN_SECONDS)))
            except (RuntimeError, WrongResponse, OSError, TimeoutError) as error:
                run.record_failure(key, number, str(error) or type(error).__name__)
                continue
            text = f"a stream in {result['p50']:.1f} ms, p99 {result['p99']:.1f} ms, {result['calls']} webhook calls"
            run.record(key, number, result.pop("p50"), "ms", text=text, **result)


async def _streams(server: RunningServer, case: str, seconds: float) -> dict[str, float]:
    """Returns the milliseconds of a stream of EVENTS chunks, and the number of webhook calls. Raises WrongResponse."""
    codec, target = CODECS["rest", DRAGOMAN], server.target("rest")
    async with receiver(case) as (url, calls):
        plain = codec.stream(f"chunks {EVENTS}")
        request = with_webhook(plain, url) if url else plain
        meter = Meter(server.pid)
        connections = [await connect("rest", target, codec) for _ in range(STREAMS)]
        load_result = await drive(
            [stream_call(connection, request, meter) for connection in connections], meter, "stream", WARM_UP, seconds
        )
        for connection in connections:
            connection.close()
        count = await _failed_calls(target) if case == RECEIVER_DOWN else len(calls)
    if bool(url) != bool(count):
        raise WrongResponse(f"the receiver was called {count} times")
    return {"p50": load_result.p50, "p99": load_result.p99, "calls": count}


async def _failed_calls(target: str) -> int:
    """The calls of receivers that failed, by the server's own metrics: a receiver that is down counts none."""
    async with aiohttp.request("GET", f"http://{target}/metrics") as response:
        found = re.search(r'push_deliveries_total\{outcome="failed"\} (\d+)', await response.text())
    return int(found[1]) if found else 0


def with_webhook(request: WireRequest, url: str) -> WireRequest:
    """Adds a webhook to a send over REST."""
    body = orjson.loads(request.body)
    body["configuration"] = {"taskPushNotificationConfig": {"url": url}}
    return replace(request, body=orjson.dumps(body))


@asynccontextmanager
async def receiver(case: str) -> AsyncIterator[tuple[str, list[None]]]:
    """Runs the receiver of a case. Yields its URL (empty for no receiver), and a list with an entry per call."""
    calls: list[None] = []
    writers: set[asyncio.StreamWriter] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.add(writer)
        with suppress(OSError, asyncio.IncompleteReadError):
            if case == RECEIVER_DROPS:
                calls.append(None)
            else:
                await _serve(reader, writer if case == RECEIVER_HEALTHY else None, calls)
        writers.discard(writer)
        writer.close()

    if case == NO_WEBHOOK:
        yield "", calls
        return
    if case == RECEIVER_DOWN:
        with socket.create_server(("127.0.0.1", 0)) as closed:
            port = closed.getsockname()[1]
        yield f"http://127.0.0.1:{port}/hook", calls
        return
    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/hook", calls
    finally:
        server.close()
        for writer in writers:
            writer.close()


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter | None, calls: list[None]) -> None:
    """Reads requests until the connection ends. Without a writer it sends no responses."""
    while True:
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        await reader.readexactly(int(head.partition(b"content-length:")[2].partition(b"\r\n")[0]))
        calls.append(None)
        if writer is not None:
            writer.write(NO_CONTENT)
