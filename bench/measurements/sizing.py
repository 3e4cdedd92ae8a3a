"""Constants of the sizing model, and the rows that it predicts from them (bench.sizing).

A round measures one server with 1 to 64 callers on SQLite and on PostgreSQL, then a cluster that grows to four servers,
then workers. Everything but the load runs on the first core. The cost of an idle second is subtracted.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import time
import urllib.request
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import uvloop
from tests import nats, postgres
from tests.cluster import Cluster

from bench.load.codecs import CODECS, GrpcCodec
from bench.load.connections import GrpcConnection, WrongResponse, connect
from bench.load.process import percentiles
from bench.measurements.memory import create_tasks, open_streams, stream_connections
from bench.measurements.replicas import ResourceUsage, Shape, on_core, python_path, start_cluster
from bench.resources import cpu, resident
from bench.responses import EVENTS, TEXT
from bench.rows import Key
from bench.run import Run
from bench.sections import SIZING
from bench.servers.contestants import CONTESTANTS, DRAGOMAN, SERVER_CORE, RunningServer, start_server
from bench.sizing.cases import (
    CHUNKS_PER_STREAM,
    GROWING,
    MEMORY_FEW,
    MEMORY_IDLE,
    MEMORY_MANY,
    PACE_MS,
    SQLITE,
    WORKERS,
    Case,
    Kind,
    Memory,
    Worker,
)
from bench.sizing.constants import PARTS

WARM_UP: Final = 0.5
WARM_UP_SHORT: Final = 0.2
SECONDS: Final = 2.0
SECONDS_SHORT: Final = 0.3
MAX_SERVERS_SHORT: Final = 2
CALLERS_TIMEOUT: Final = 30.0
"""Seconds in which callers have to end after the clock has stopped."""

STAMP: Final = re.compile(rb"stamp-(\d{20}) ")
CONNECTIONS: Final = 16

FAILURES: Final = (RuntimeError, WrongResponse, OSError, TimeoutError)


@dataclass
class Observed:
    """What callers saw: units, and the seconds that each took."""

    count: int = 0
    seconds: list[float] = field(default_factory=list)
    running: bool = True


def measure(run: Run) -> None:
    """Measures all cases in each round. A case that fails is recorded, and the others continue."""
    for number in range(run.plan.rounds):
        _measure_sqlite(run, number)
        if postgres.binaries() is None or nats.binary() is None:
            run.log("sizing on PostgreSQL skipped: no PostgreSQL or NATS for this machine or this Python")
        else:
            growing = [case for case in GROWING if case.servers <= MAX_SERVERS_SHORT or not run.plan.short]
            _measure_cluster(run, number, growing, Shape("growing", 1))
            _measure_cluster(run, number, WORKERS[Worker.ON_STORE], Shape("worker on the store", 1, runners=1))
            _measure_cluster(run, number, WORKERS[Worker.CONNECTED], Shape("connected worker", 1, workers=1))
        _measure_memory(run, number)


def _measure_sqlite(run: Run, number: int) -> None:
    try:
        with start_server(CONTESTANTS[DRAGOMAN]) as server:

            async def usage() -> Mapping[str, float]:
                return {"servers": cpu(server.pid) * 1e6, "commits": commits(server.targets["http"])}

            _measure_cases(run, number, SQLITE, lambda _: [server.target("grpc")], lambda _: usage())
    except FAILURES as error:
        _record_failure(run, number, SQLITE[0], error)


def _measure_cluster(run: Run, number: int, cases: Sequence[Case], shape: Shape) -> None:
    try:
        with start_cluster(shape, monitored=True) as cluster:

            def targets(case: Case) -> list[str]:
                while case.servers > len(cluster.servers) - shape.runners:
                    with on_core(SERVER_CORE), python_path():
                        cluster.add_server(f"server-{len(cluster.servers) + 1}").start()
                return [server.grpc for server in cluster.servers[: case.servers]]

            async def usage(case: Case) -> Mapping[str, float]:
                measured = Shape("", case.servers, shape.runners, shape.workers)
                figures = (await ResourceUsage.of(cluster, measured)).figures
                return {**figures, "nats_messages": bus_messages(cluster)}

            _measure_cases(run, number, cases, targets, usage)
    except FAILURES as error:
        _record_failure(run, number, cases[0], error)


def _measure_cases(
    run: Run,
    number: int,
    cases: Sequence[Case],
    targets: Callable[[Case], list[str]],
    usage: Callable[[Case], Awaitable[Mapping[str, float]]],
) -> None:
    """Measures one case after the other on the same processes."""
    idle: Mapping[str, float] = {}
    for case in cases:
        try:
            result = uvloop.run(_measure_case(case, targets(case), partial(usage, case), idle, run.plan.short))
        except FAILURES as error:
            _record_failure(run, number, case, error)
            continue
        if case.kind is Kind.IDLE:
            idle = result
        text = ", ".join(f"{name} {value:,.4g}" for name, value in result.items())
        value, unit = (result["servers"], "us") if case.kind is Kind.IDLE else (result["rate"], "per second")
        run.record(Key(SIZING, case.name, DRAGOMAN), number, value, unit, text=text, **result)


def _record_failure(run: Run, number: int, case: Case, error: Exception) -> None:
    run.record_failure(Key(SIZING, case.name, DRAGOMAN), number, str(error) or type(error).__name__)


async def _measure_case(
    case: Case,
    targets: Sequence[str],
    usage: Callable[[], Awaitable[Mapping[str, float]]],
    idle: Mapping[str, float],
    short: bool,
) -> dict[str, float]:
    """Returns rate, p50 in ms, and costs per unit without those of an idle second. Raises WrongResponse."""
    observed, codec = Observed(), CODECS["grpc", DRAGOMAN]
    assert isinstance(codec, GrpcCodec)
    clock = time.perf_counter
    calls: list[Callable[[], Awaitable[None]]] = []
    connections = []
    for number in range(case.callers):
        connection = await connect("grpc", targets[number % len(targets)], codec)
        assert isinstance(connection, GrpcConnection)
        connections.append(connection)
        calls.append(_call(case.kind, connection, codec, observed))
    callers = [asyncio.create_task(_repeat(call, observed)) for call in calls]
    try:
        await asyncio.sleep(WARM_UP_SHORT if short else WARM_UP)
        before, load, busy = await usage(), time.process_time(), busy_seconds(SERVER_CORE)
        observed.count, began = 0, clock()
        observed.seconds.clear()
        await asyncio.sleep(SECONDS_SHORT if short else SECONDS)
        count, seconds, load = observed.count, clock() - began, time.process_time() - load
        p50, _ = percentiles([1000 * one for one in observed.seconds])
        after = await usage()
        elapsed, busy = clock() - began, busy_seconds(SERVER_CORE) - busy
    finally:
        observed.running = False
        done = await asyncio.wait_for(asyncio.gather(*callers, return_exceptions=True), CALLERS_TIMEOUT)
        for connection in connections:
            connection.close()
    used = {name: value - before[name] for name, value in after.items()}
    if case.kind is Kind.IDLE:
        return {name: value / elapsed for name, value in used.items()}
    if (wrong := [repr(error) for error in done if error is not None]) or not count:
        raise WrongResponse(f"{len(wrong)} wrong, {count} right: {wrong[:1]}")
    units = count / seconds * elapsed  # `usage` itself takes some milliseconds, in which the load continues
    costs = {name: (value - idle.get(name, 0.0) * elapsed) / units for name, value in used.items()}
    ours = sum(used.get(part, 0.0) for part in PARTS) / 1e6
    costs["others"] = max(busy - ours, 0.0) / elapsed if busy else 0.0
    return {"rate": count / seconds, "p50": p50, "load_us": load / count * 1e6, **costs}


def busy_seconds(core: int) -> float:
    """Returns the seconds that a core has worked or was taken away since the start of the system; 0 if not known."""
    try:
        lines = Path("/proc/stat").read_text().splitlines()
    except OSError:
        return 0.0
    for line in lines:
        name, *ticks = line.split()
        if name == f"cpu{core}":
            user, nice, system, _, _, irq, softirq, steal, *_ = map(int, ticks)
            return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")
    return 0.0


async def _repeat(call: Callable[[], Awaitable[None]], observed: Observed) -> None:
    while observed.running:
        await call()


def _call(
    kind: Kind, connection: GrpcConnection, codec: GrpcCodec, observed: Observed
) -> Callable[[], Awaitable[None]]:
    """Returns one caller's call of this kind."""
    send, burst = codec.send(TEXT), codec.stream(f"chunks {EVENTS}")
    paced = codec.stream(f"stamps {CHUNKS_PER_STREAM} {PACE_MS}")

    async def send_call() -> None:
        began = time.perf_counter()
        response = await connection.call(send)
        if not codec.is_completed(response):
            raise WrongResponse(response[:500].decode("utf-8", "replace"))
        observed.count += 1
        observed.seconds.append(time.perf_counter() - began)

    async def burst_call() -> None:
        def on_events(count: int) -> None:
            observed.count += count

        await connection.stream(burst, on_events)

    async def paced_call() -> None:
        def on_message(message: bytes) -> None:
            if stamp := STAMP.search(message):
                observed.count += 1
                observed.seconds.append((time.monotonic_ns() - int(stamp[1])) / 1e9)

        await connection.stream_messages(paced, on_message)

    return {Kind.BURST: burst_call, Kind.PACED: paced_call}.get(kind, send_call)


def commits(http: str) -> float:
    """Returns the commits of a server since its start, from its metrics. Raises OSError."""
    with urllib.request.urlopen(f"http://{http}/metrics", timeout=5) as response:
        return metric(response.read().decode(), "dragoman_commit_changes_count")


def metric(text: str, name: str) -> float:
    """Returns the sum of a metric's series in Prometheus's text format; 0 without any."""
    return sum(float(line.rpartition(" ")[2]) for line in text.splitlines() if re.match(rf"{name}[ {{]", line))


def bus_messages(cluster: Cluster) -> float:
    """Returns the messages that NATS has received, from its monitoring port. Raises OSError."""
    with urllib.request.urlopen(f"http://127.0.0.1:{cluster.nats.monitor_port}/varz", timeout=5) as response:
        return float(json.load(response)["in_msgs"])


def _measure_memory(run: Run, number: int) -> None:
    for steps in (MEMORY_FEW, MEMORY_MANY):
        try:
            with start_server(CONTESTANTS[DRAGOMAN]) as server:
                results = uvloop.run(
                    _measure_steps(server, [_short(step) if run.plan.short else step for step in steps])
                )
        except FAILURES as error:
            run.record_failure(Key(SIZING, steps[0].name, DRAGOMAN), number, str(error) or type(error).__name__)
            continue
        names = [MEMORY_IDLE, *(step.name for step in steps)]
        for name, value in zip(names, results, strict=True):
            if name != MEMORY_IDLE or steps is MEMORY_FEW:
                run.record(Key(SIZING, name, DRAGOMAN), number, value, "bytes", text=f"{value / 1e6:,.2f} MB")


def _short(step: Memory) -> Memory:
    return Memory(step.waiting // 100, step.streams // 100, step.running // 100)


async def _measure_steps(server: RunningServer, steps: Sequence[Memory]) -> list[float]:
    """Returns the resident bytes before the first and after each step. Raises WrongResponse."""
    codec = CODECS["grpc", DRAGOMAN]
    connections = [await connect("grpc", server.target("grpc"), codec) for _ in range(CONNECTIONS)]
    lines = await stream_connections("grpc", server.target("grpc"), codec, max(step.streams for step in steps))
    await create_tasks(connections, codec, TEXT, steps[0].waiting)
    results, tasks, streams, had = [await _resident(server)], list[str](), list[asyncio.Task[None]](), Memory(0, 0)
    for step in steps:
        tasks += await create_tasks(connections, codec, "ask", step.waiting - had.waiting)
        streams += await open_streams(lines, codec, tasks[had.streams : step.streams])
        if step.running > had.running:
            await create_tasks(connections, codec, "hold", step.running - had.running, wait=False)
        results.append(await _resident(server))
        had = step
    if any(stream.done() for stream in streams):
        raise WrongResponse("a stream ended while its task waits")
    for connection in (*connections, *lines):
        connection.close()
    await asyncio.gather(*streams, return_exceptions=True)
    return results


async def _resident(server: RunningServer) -> float:
    await asyncio.sleep(WARM_UP)  # for work that continues after the last response
    return float(resident(server.pid))
