"""What telemetry costs: the same sends on servers that are looked at more and more closely.

All of them are started together and share the first core. They are asked by turns, a fraction of a second each and
every other time backwards, so that what the machine does meanwhile meets all of them. Each round has processes of its
own: one differs from the next by as much as is looked for. Who collects spans, and who scrapes, is in the process of
the load.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, AsyncExitStack, ExitStack, asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Final, Self

import uvloop

from bench.asking import FORMS, Form
from bench.lines import Line, Wrong, connect
from bench.load import Meter, drive, sending
from bench.rows import Key
from bench.run import Run
from bench.sections import WATCHED
from bench.servers import CONTESTANTS, OURS, Place, Running, started
from bench.spent import cpu

CALLERS: Final = 16
WARM_UP: Final = 0.05
SLICE: Final = 0.15
"""Seconds for which one of them is asked before the next one is."""

TURNS: Final = 20
"""Slices of each in a round."""

SCRAPE: Final = 1.0
"""Seconds between two scrapes: fifteen times as often as Prometheus does by itself."""

OFF: Final = "nobody looks"
SCRAPED: Final = "/metrics every second"
TENTH: Final = "and every tenth trace"
TRACED: Final = "and every trace"
CASES: Final = {OFF: None, SCRAPED: 0.0, TENTH: 0.1, TRACED: 1.0}
"""The share of traces that is recorded; None: nothing is looked at."""

BINDINGS: Final = ("grpc", "jsonrpc")

TAKEN: Final = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


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
    """Over each binding: all cases by turns, after a go that only warms the servers up."""
    for binding in BINDINGS:
        async with AsyncExitStack() as stack:
            values = {
                looked: await stack.enter_async_context(
                    MeasuredServer.open(binding, server, scraped=CASES[looked] is not None)
                )
                for looked, server in servers.items()
            }
            for turn in range(1 + TURNS):
                for each in list(values.values())[:: -1 if (number + turn) % 2 else 1]:
                    await each.for_a_while()
                if turn == 0:
                    for each in values.values():
                        each.forget()
            for looked, each in values.items():
                rate, spent = each.count / each.seconds, each.spent() / each.right * 1e6
                text = f"{rate:.0f} req/s, {spent:.0f} µs of the server's CPU each"
                run.figure(Key(WATCHED, case(binding, looked), OURS), number, rate, "req/s", text=text, cpu=spent)


def _server(options: list[str]) -> AbstractContextManager[Running]:
    ours = CONTESTANTS[OURS]

    def command(place: Place) -> list[str | Path]:
        return [*ours.command(place), *options]

    return started(replace(ours, command=command))


def _options(share: float | None, url: str) -> list[str]:
    return [f"--otlp={url}", f"--trace-share={share}"] if share else []


class MeasuredServer:
    """A server, its callers' lines, and what was seen of it.

    Its CPU is that of the whole time, also while others are asked: who collects spans is told of them afterwards.
    """

    def __init__(self, server: Running, lines: list[Line], form: Form) -> None:
        self._server = server
        self._lines = lines
        self._form = form
        self.forget()

    @classmethod
    @asynccontextmanager
    async def open(cls, binding: str, server: Running, *, scraped: bool) -> AsyncIterator[Self]:
        """Connects CALLERS lines; `scraped`: and reads its metrics all the while."""
        form = FORMS[binding, OURS]
        lines = [await connect(binding, server.target(binding), form) for _ in range(CALLERS)]
        scraping = asyncio.create_task(_scrape(server)) if scraped else None
        try:
            yield cls(server, lines, form)
        finally:
            if scraping is not None:
                scraping.cancel()
            for line in lines:
                line.close()

    def forget(self) -> None:
        """Begins anew."""
        self.count = self.right = 0
        self.seconds = 0.0
        self._before = cpu(self._server.pid)

    def spent(self) -> float:
        """Seconds of CPU for all that was right."""
        return cpu(self._server.pid) - self._before

    async def for_a_while(self) -> None:
        """Asks it for SLICE seconds."""
        meter = Meter(self._server.pid)
        asks = [sending(line, self._form, meter) for line in self._lines]
        measured = await drive(asks, meter, "send", WARM_UP, SLICE)
        self.count += measured.count
        self.right += meter.right
        self.seconds += measured.seconds


async def _scrape(server: Running) -> None:
    """Reads /metrics every SCRAPE seconds. Runs until canceled."""
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
        with suppress(asyncio.IncompleteReadError):  # it is closed between two messages
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                fields = dict(line.lower().split(b":", 1) for line in head.split(b"\r\n") if b":" in line)
                length = int(fields[b"content-length"])
                await reader.readexactly(length)
                came.append(length)
                writer.write(TAKEN)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", came
