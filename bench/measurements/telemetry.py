"""Cost of telemetry: the same sends on servers with increasing observation, and the CPU time of single operations.

All servers of a round start together and share the first core. They are loaded in turn for a fraction of a second each,
in alternating order, so that disturbances of the machine affect all of them. Each round has new processes, since two
identical processes differ by as much as the effect. The collector and the scraper run in the load process.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, AsyncExitStack, ExitStack, asynccontextmanager, suppress
from contextvars import copy_context
from dataclasses import replace
from pathlib import Path
from typing import Final, Self

import uvloop

from bench.load.codecs import CODECS, Codec
from bench.load.connections import Connection, WrongResponse, connect
from bench.load.process import Meter, drive, send_call
from bench.resources import cpu
from bench.rows import Key
from bench.run import Run
from bench.sections import TELEMETRY
from bench.servers.contestants import CONTESTANTS, DRAGOMAN, RunningServer, ServerFolder, start_server
from dragoman.bindings.options import ServerOptions
from dragoman.bindings.pipeline import RequestLogEntry
from dragoman.core import trace
from dragoman.core.counters import Histogram
from dragoman.ports.tracing import Span
from dragoman.telemetry.spans import SpanRecorder

CALLERS: Final = 16
WARM_UP: Final = 0.05
SLICE: Final = 0.15
"""Seconds of load on one server before the next one."""

SLICES: Final = 20
"""Slices of each server in a round."""

SCRAPE_INTERVAL: Final = 1.0
"""Seconds between two scrapes, 15 times as often as Prometheus's default."""

BASELINE: Final = "no scraper, no traces"
SCRAPED: Final = "scraper"
TENTH: Final = "scraper, 10% of traces"
TRACED: Final = "scraper, all traces"
CASES: Final = {BASELINE: None, SCRAPED: 0.0, TENTH: 0.1, TRACED: 1.0}
"""The share of traces that is recorded; None: neither scrapes nor traces."""

BINDINGS: Final = ("grpc", "jsonrpc")

HTTP_OK: Final = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


def case(binding: str, observation: str) -> str:
    """Returns the case in rows and tables."""
    return f"{binding}: {observation}"


def measure(run: Run) -> None:
    """Measures the single operations once, then all rounds over each binding."""
    for name, cost in operation_costs().items():
        run.record(Key(TELEMETRY, name, DRAGOMAN), 0, cost, "us", text=f"{cost:.2f} µs")
    try:
        uvloop.run(_measure(run))
    except (RuntimeError, WrongResponse, OSError, TimeoutError) as error:
        run.record_failure(Key(TELEMETRY, "all", DRAGOMAN), 0, str(error) or type(error).__name__)


async def _measure(run: Run) -> None:
    async with AsyncExitStack() as stack:
        collectors = {name: await stack.enter_async_context(collector()) for name in CASES}
        for number in range(run.plan.rounds):
            with ExitStack() as processes:
                servers = {
                    name: processes.enter_context(_server(_options(share, collectors[name][0])))
                    for name, share in CASES.items()
                }
                await _round(run, servers, number)
        for name, (_, sizes) in collectors.items():
            if bool(sizes) is not bool(CASES[name]):
                raise WrongResponse(f"{name}: the collector received {len(sizes)} span messages")


async def _round(run: Run, servers: dict[str, RunningServer], number: int) -> None:
    """Measures all cases in turn over each binding. The first slice only warms up the servers."""
    for binding in BINDINGS:
        async with AsyncExitStack() as stack:
            measured = {
                name: await stack.enter_async_context(
                    MeasuredServer.open(binding, server, scraped=CASES[name] is not None)
                )
                for name, server in servers.items()
            }
            for turn in range(1 + SLICES):
                for server in list(measured.values())[:: -1 if (number + turn) % 2 else 1]:
                    await server.run_slice()
                if turn == 0:
                    for server in measured.values():
                        server.reset()
            for name, server in measured.items():
                rate, cost = server.count / server.seconds, server.cpu_used() / server.correct * 1e6
                text = f"{rate:.0f} req/s, {cost:.0f} µs of server CPU per request"
                run.record(Key(TELEMETRY, case(binding, name), DRAGOMAN), number, rate, "req/s", text=text, cpu=cost)


def _server(options: list[str]) -> AbstractContextManager[RunningServer]:
    dragoman = CONTESTANTS[DRAGOMAN]

    def command(server_folder: ServerFolder) -> list[str | Path]:
        return [*dragoman.command(server_folder), *options]

    return start_server(replace(dragoman, command=command))


def _options(share: float | None, url: str) -> list[str]:
    return [f"--otlp={url}", f"--trace-share={share}"] if share else []


class MeasuredServer:
    """A server, the connections of its callers, and its counters.

    CPU time covers the whole round, including the slices of other servers, since spans are exported with a delay.
    """

    def __init__(self, server: RunningServer, connections: list[Connection], codec: Codec) -> None:
        self._server = server
        self._connections = connections
        self._codec = codec
        self.reset()

    @classmethod
    @asynccontextmanager
    async def open(cls, binding: str, server: RunningServer, *, scraped: bool) -> AsyncIterator[Self]:
        """Opens CALLERS connections, and scrapes the server's metrics if `scraped`."""
        codec = CODECS[binding, DRAGOMAN]
        connections = [await connect(binding, server.target(binding), codec) for _ in range(CALLERS)]
        scraper = asyncio.create_task(_scrape(server)) if scraped else None
        try:
            yield cls(server, connections, codec)
        finally:
            if scraper is not None:
                scraper.cancel()
            for connection in connections:
                connection.close()

    def reset(self) -> None:
        """Resets the counters."""
        self.count = self.correct = 0
        self.seconds = 0.0
        self._cpu_before = cpu(self._server.pid)

    def cpu_used(self) -> float:
        """Returns the CPU seconds since the last reset."""
        return cpu(self._server.pid) - self._cpu_before

    async def run_slice(self) -> None:
        """Loads the server for SLICE seconds."""
        meter = Meter(self._server.pid)
        calls = [send_call(connection, self._codec, meter) for connection in self._connections]
        result = await drive(calls, meter, "send", WARM_UP, SLICE)
        self.count += result.count
        self.correct += meter.correct
        self.seconds += result.seconds


async def _scrape(server: RunningServer) -> None:
    """Reads /metrics every SCRAPE_INTERVAL seconds until canceled."""
    host, _, port = server.target("rest").rpartition(":")
    while True:
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"GET /metrics HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n")
        response = await reader.read()
        writer.close()
        if not response.startswith(b"HTTP/1.1 200 "):
            raise WrongResponse(response[:200].decode("utf-8", "replace"))
        await asyncio.sleep(SCRAPE_INTERVAL)


@asynccontextmanager
async def collector() -> AsyncIterator[tuple[str, list[int]]]:
    """Runs a collector that accepts every message. Yields its URL and the sizes of the received messages."""
    sizes: list[int] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError):  # closed between two messages
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                fields = dict(line.lower().split(b":", 1) for line in head.split(b"\r\n") if b":" in line)
                length = int(fields[b"content-length"])
                await reader.readexactly(length)
                sizes.append(length)
                writer.write(HTTP_OK)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", sizes


# Single operations ----------------------------------------------------------------------------------------------------
#
# The minimum CPU time of a thread over many repetitions. Rates decide, but need a quiet machine; these figures hardly
# depend on other processes.

REPETITIONS: Final = 60
CALLS: Final = 2000

METHOD: Final = "lf.a2a.v1.A2AService/SendMessage"
TASK: Final = "01a1ffb1-fc95-7f79-839e-d0636d382268"
ENVELOPE: Final = b"\x12\x0c\x0a\x0atext/plain"


def minimum_cost(operation: Callable[[], object], calls: int = CALLS) -> float:
    """Returns the microseconds of one call."""
    costs = []
    for _ in range(REPETITIONS):
        began = time.thread_time()
        for _ in range(calls):
            operation()
        costs.append((time.thread_time() - began) / calls * 1e6)
    return min(costs)


def operation_costs() -> dict[str, float]:
    """Returns the microseconds of each operation by its row label. Leaves the caller's trace context unchanged."""
    log = logging.getLogger("dragoman.access")
    before = log.level
    log.setLevel(logging.WARNING)  # the default, except with the JSON log
    try:
        return copy_context().run(_operation_costs)
    finally:
        log.setLevel(before)


def _operation_costs() -> dict[str, float]:
    plain, histogram, recorder = ServerOptions(), Histogram(), SpanRecorder()

    def count_request() -> None:
        RequestLogEntry(plain, "grpc", METHOD, "1.0").finish("OK")

    def trace_request() -> str:
        entry = RequestLogEntry(traced, "grpc", METHOD, "1.0")
        entry.start_trace("")
        entry.finish("OK")
        return trace.CURRENT_TRACE.get()

    def skip_trace() -> None:
        entry = RequestLogEntry(untraced, "grpc", METHOD, "1.0")
        entry.start_trace("")
        entry.finish("OK")

    def trace_turn() -> None:
        parent = trace.trace_of(stamped)
        context, began = recorder.start_span(parent), time.perf_counter()
        if not trace.is_recorded(context):
            return
        recorder.activate(context)
        keys = ("dragoman.agent", "dragoman.task", "dragoman.attempt", "dragoman.state")
        seconds = time.perf_counter() - began
        recorder.record_span(
            Span("run echo", "consumer", context, parent, seconds, keys, ("echo", TASK, 1, "COMPLETED"))
        )

    def with_export(operation: Callable[[], object]) -> Callable[[], None]:
        def both() -> None:
            operation()
            recorder.take(1)

        return both

    traced, untraced = ServerOptions(tracer=recorder), ServerOptions(tracer=SpanRecorder(0.0))
    stamped = trace.add_trace(ENVELOPE, trace_request())
    recorder.take(1)
    return {
        "request, counted": minimum_cost(count_request),
        "value added to a histogram": minimum_cost(lambda: histogram.add(0.003)),
        "request, counted, trace not recorded": minimum_cost(skip_trace),
        "request, counted, traced, encoded": minimum_cost(with_export(trace_request)),
        "turn, traced, encoded": minimum_cost(with_export(trace_turn)),
    }
