"""What telemetry costs: the same sends on servers that are looked at more and more closely.

All of them are started together and share the first core. They are asked one after the other, a short while each and
every other round backwards, so that what the machine does meanwhile meets all of them. Each round has processes of its
own: one differs from the next by as much as is looked for. Who collects spans, and who scrapes, is in the process of
the load.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import uvloop

from bench.asking import FORMS
from bench.lines import Wrong, connect
from bench.load import Meter, drive, sending
from bench.rows import Key
from bench.run import Run
from bench.sections import WATCHED
from bench.servers import CONTESTANTS, OURS, Place, Running, started

CALLERS: Final = 16
WARM_UP: Final = 0.2
SCRAPE: Final = 1.0
"""Seconds between two scrapes: fifteen times as often as Prometheus does by itself."""

OFF: Final = "nobody looks"
SCRAPED: Final = "/metrics every second"
TENTH: Final = "and every tenth trace"
TRACED: Final = "and every trace"
CASES: Final = {OFF: None, SCRAPED: 0.0, TENTH: 0.1, TRACED: 1.0}
"""The share of traces that is recorded; None: nothing is looked at."""

BINDINGS: Final = ("grpc", "jsonrpc")

TAKEN: Final = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


def case(binding: str, looked: str) -> str:
    """What rows call it."""
    return f"{binding}: {looked}"


def measure(run: Run) -> None:
    """All rounds, over each binding."""
    try:
        uvloop.run(_measure(run))
    except (RuntimeError, Wrong, OSError, TimeoutError) as error:
        run.failed(Key(WATCHED, "all", OURS), 0, str(error) or type(error).__name__)


async def _measure(run: Run) -> None:
    async with AsyncExitStack() as stack:
        collectors = {looked: await stack.enter_async_context(collector()) for looked in CASES}
        for number in range(run.plan.rounds):
            with ExitStack() as processes:
                servers = {
                    looked: processes.enter_context(_server(_options(share, collectors[looked][0])))
                    for looked, share in CASES.items()
                }
                await _round(run, servers, number)
        for looked, (_, came) in collectors.items():
            if bool(came) is not bool(CASES[looked]):
                raise Wrong(f"{looked}: {len(came)} messages of spans came")


async def _round(run: Run, servers: dict[str, Running], number: int) -> None:
    """Each case once over each binding, after a go that only warms the server up."""
    for binding in BINDINGS:
        for warm in (False, True):
            for looked in list(CASES)[:: -1 if number % 2 else 1]:
                await _slice(run, binding, looked, servers[looked], number if warm else None)


def _server(options: list[str]) -> AbstractContextManager[Running]:
    ours = CONTESTANTS[OURS]

    def command(place: Place) -> list[str | Path]:
        return [*ours.command(place), *options]

    return started(replace(ours, command=command))


def _options(share: float | None, url: str) -> list[str]:
    return [f"--otlp={url}", f"--trace-share={share}"] if share else []


async def _slice(run: Run, binding: str, looked: str, server: Running, number: int | None) -> None:
    """One server for a while. Without a number nothing is kept of it."""
    form = FORMS[binding, OURS]
    meter = Meter(server.pid)
    lines = [await connect(binding, server.target(binding), form) for _ in range(CALLERS)]
    scraping = asyncio.create_task(_scrape(server)) if CASES[looked] is not None else None
    try:
        asks = [sending(line, form, meter) for line in lines]
        seconds = WARM_UP if number is None else max(run.plan.seconds, SCRAPE)
        measured = await drive(asks, meter, "send", WARM_UP, seconds)
    finally:
        if scraping is not None:
            scraping.cancel()
        for line in lines:
            line.close()
    rate, spent = measured.count / measured.seconds, measured.server_cpu / measured.count * 1e6
    if number is None:
        return
    told = f"{rate:.0f} req/s, {spent:.0f} µs of the server's CPU each"
    run.figure(Key(WATCHED, case(binding, looked), OURS), number, rate, "req/s", told=told, cpu=spent)


async def _scrape(server: Running) -> None:
    """Reads /metrics every SCRAPE seconds. Runs until cancelled."""
    host, _, port = server.target("rest").rpartition(":")
    while True:
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"GET /metrics HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n")
        answer = await reader.read()
        writer.close()
        if not answer.startswith(b"HTTP/1.1 200 "):
            raise Wrong(answer[:200].decode("utf-8", "replace"))
        await asyncio.sleep(SCRAPE)


@asynccontextmanager
async def collector() -> AsyncIterator[tuple[str, list[int]]]:
    """Takes whatever is posted. Gives its address, and the sizes of what came."""
    came: list[int] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        fields = dict(line.lower().split(b":", 1) for line in head.split(b"\r\n") if b":" in line)
        length = int(fields[b"content-length"])
        await reader.readexactly(length)
        came.append(length)
        writer.write(TAKEN)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", came
