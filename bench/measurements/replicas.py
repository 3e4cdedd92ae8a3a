"""Cost of a send and a chunk on servers with one PostgreSQL and one NATS, in CPU, bytes and commits.

Everything but the load runs on the first core, so rates are not meaningful for machines with more cores; the cost per
process is. The cost of an idle second is measured first and subtracted. The load is spread evenly over all servers. A
turn runs on the server that received its message, in a process that only runs agents, or at a connected worker.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import uvloop
from tests import nats, postgres
from tests.cluster import Cluster, Part

from bench.load.codecs import CODECS
from bench.load.connections import Connection, WrongResponse, connect
from bench.load.process import Call, Meter, send_call, stream_call
from bench.resources import bytes_exchanged, child_processes, cpu
from bench.responses import EVENTS
from bench.rows import Key
from bench.run import FEW, Run
from bench.sections import REPLICAS
from bench.servers.contestants import CORES, DRAGOMAN, LOAD_CORE, SERVER_CORE
from tools.environments import ROOT

CALLERS: Final = 16
"""Callers per server, so that the batch size of commits does not depend on the number of servers."""

WARM_UP: Final = 1.0
MIN_SECONDS: Final = 2.0
MIN_SECONDS_SHORT: Final = 0.2
"""Minimum seconds of each measurement, so that periodic work has little influence."""

CALLERS_TIMEOUT: Final = 30.0
"""Seconds in which callers have to end after the clock has stopped."""

AGENTS: Final = str(ROOT / "bench" / "servers" / "agents.py")
IDLE: Final = "idle"
KINDS: Final = {IDLE: "idle second", "send": "send", "stream": "chunk"}
"""Kind of load, and the unit that is counted."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A measured cluster. `runners`: processes with `--role worker`; `workers`: processes that connect to a server."""

    name: str
    servers: int
    runners: int = 0
    workers: int = 0


SHAPES: Final = (
    Shape("1 server", 1),
    Shape("2 servers", 2),
    Shape("3 servers", 3),
    Shape("1 server, 1 worker on the store", 1, runners=1),
    Shape("1 server, 1 connected worker", 1, workers=1),
)
SHORT: Final = (SHAPES[1], SHAPES[3])


def case(shape: Shape, kind: str) -> str:
    """Returns the case of a shape and kind in rows."""
    return f"{shape.name}: {KINDS[kind]}"


def measure(run: Run) -> None:
    """Measures each shape in a new cluster in each round."""
    if postgres.binaries() is None or nats.binary() is None:
        run.log("replicas skipped: no PostgreSQL or NATS for this machine or this Python")
        return
    seconds = max(run.plan.seconds, MIN_SECONDS_SHORT if run.plan.short else MIN_SECONDS)
    for number in range(min(run.plan.rounds, FEW)):
        for shape in SHORT if run.plan.short else SHAPES:
            try:
                with start_cluster(shape) as cluster:
                    idle = dict[str, float]()
                    for kind in KINDS:
                        result = uvloop.run(_costs(cluster, shape, kind, seconds, idle))
                        idle = idle or result
                        text = ", ".join(f"{name} {value:,.1f}" for name, value in result.items())
                        run.record(
                            Key(REPLICAS, case(shape, kind), DRAGOMAN),
                            number,
                            result["servers"],
                            "us",
                            text=text,
                            **result,
                        )
            except (RuntimeError, WrongResponse, OSError, TimeoutError) as error:
                run.record_failure(
                    Key(REPLICAS, case(shape, "send"), DRAGOMAN), number, str(error) or type(error).__name__
                )


@contextmanager
def start_cluster(shape: Shape, *, monitored: bool = False, python: str = sys.executable) -> Iterator[Cluster]:
    """Starts a cluster on the servers' core. `monitored`: with NATS's monitoring port. `python`: of its servers."""
    app = "" if shape.workers else AGENTS
    serving = ["--root", "echo", *(["--role", "server"] if shape.runners else [])]
    with tempfile.TemporaryDirectory() as folder, on_core(SERVER_CORE):
        cluster = Cluster(
            Path(folder), app=app, servers=shape.servers, workers=shape.workers, worker_app=AGENTS, serving=serving
        )
        if monitored:
            cluster.nats.open_monitor()
        for number in range(shape.runners):
            cluster.add_server(f"runner-{number + 1}", "--role", "worker")
        for part in cluster.parts:
            part.python = python
        with cluster, python_path():
            cluster.start()
            with on_core(LOAD_CORE):
                yield cluster


@contextmanager
def on_core(core: int) -> Iterator[None]:
    """Starts processes inside the block on this core."""
    before = os.sched_getaffinity(0) if CORES else set[int]()
    if len(CORES) > 1 and core in CORES:
        os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        if before:
            os.sched_setaffinity(0, before)


@contextmanager
def python_path() -> Iterator[None]:
    """Sets PYTHONPATH, since servers start in another folder and their agents import our modules."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = str(ROOT)
    try:
        yield
    finally:
        os.environ.pop("PYTHONPATH")
        if before is not None:
            os.environ["PYTHONPATH"] = before


async def _costs(
    cluster: Cluster, shape: Shape, kind: str, seconds: float, idle: Mapping[str, float]
) -> dict[str, float]:
    """Returns the cost of one unit, without the idle cost, by field of FIGURES. Raises WrongResponse."""
    codec, meter = CODECS["grpc", DRAGOMAN], Meter(0)
    targets = [server.grpc for server in cluster.servers[: shape.servers]]
    make: dict[str, Callable[[Connection], Call]] = {
        "send": lambda connection: send_call(connection, codec, meter),
        "stream": lambda connection: stream_call(connection, codec.stream(f"chunks {EVENTS}"), meter),
    }
    callers = range(CALLERS * shape.servers if kind != IDLE else 0)
    connections = [await connect("grpc", targets[number % len(targets)], codec) for number in callers]
    caller_tasks = [asyncio.create_task(_call(make[kind](connection), meter)) for connection in connections]
    clock = asyncio.get_running_loop().time
    try:
        await asyncio.sleep(WARM_UP)
        before, count, began = await ResourceUsage.of(cluster, shape), meter.count, clock()
        await asyncio.sleep(seconds)
        usage, count, seconds_measured = (
            (await ResourceUsage.of(cluster, shape)).minus(before),
            meter.count - count,
            clock() - began,
        )
    finally:
        meter.running = False
        results = await asyncio.wait_for(asyncio.gather(*caller_tasks, return_exceptions=True), CALLERS_TIMEOUT)
        for connection in connections:
            connection.close()
    if kind == IDLE:
        return {name: value / seconds_measured for name, value in usage.items()}
    if (wrong := [repr(error) for error in results if error is not None]) or not count:
        raise WrongResponse(f"{len(wrong)} wrong, {count} right: {wrong[:1]}")
    return {name: (value - idle[name] * seconds_measured) / count for name, value in usage.items()} | {
        "rate": count / seconds_measured
    }


async def _call(call: Call, meter: Meter) -> None:
    while meter.running:
        await call()


@dataclass(frozen=True, slots=True)
class ResourceUsage:
    """Accumulated resource usage of the parts of a cluster."""

    figures: Mapping[str, float]

    @classmethod
    async def of(cls, cluster: Cluster, shape: Shape) -> ResourceUsage:
        """Reads CPU in µs, bytes over open connections, writing commits, and bytes of the write-ahead log."""
        (row,) = await postgres.execute(
            cluster.postgres.url(),
            "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS commits,"
            " pg_current_wal_lsn() - '0/0'::pg_lsn AS wal,"
            " pg_database_size(current_database()) AS stored",
        )
        to_database, from_database = bytes_exchanged(cluster.postgres.port)
        to_bus, from_bus = bytes_exchanged(cluster.nats.port)
        servers, runners = cluster.servers[: shape.servers], cluster.servers[shape.servers :]
        return cls(
            {
                "servers": _cpu(servers),
                "workers": _cpu([*runners, *cluster.workers]),
                "postgres": sum(map(cpu, (cluster.postgres.pid, *child_processes(cluster.postgres.pid)))) * 1e6,
                "nats": cpu(cluster.nats.pid) * 1e6,
                "commits": float(row["commits"]),
                "wal": float(row["wal"]),
                "stored": float(row["stored"]),
                "to_postgres": to_database,
                "from_postgres": from_database,
                "to_nats": to_bus,
                "from_nats": from_bus,
            }
        )

    def minus(self, earlier: ResourceUsage) -> dict[str, float]:
        """Returns the difference to an earlier state."""
        return {name: value - earlier.figures[name] for name, value in self.figures.items()}


def _cpu(parts: Sequence[Part]) -> float:
    return sum(cpu(part.pid) for part in parts) * 1e6


FIGURES: Final[dict[str, str]] = {
    "servers": "CPU of the servers, µs",
    "workers": "CPU of workers, µs",
    "postgres": "CPU of PostgreSQL, µs",
    "nats": "CPU of NATS, µs",
    "commits": "commits",
    "wal": "bytes of PostgreSQL's WAL",
    "stored": "growth of the database, bytes",
    "to_postgres": "bytes to PostgreSQL",
    "from_postgres": "bytes from PostgreSQL",
    "to_nats": "bytes to NATS",
    "from_nats": "bytes from NATS",
    "rate": "rate on one core, per second",
}
"""Fields of a row, and their labels in tables."""


def lines(kind: str, cell: Callable[[Key, str], Any]) -> list[tuple[str, ...]]:
    """Returns the table of a kind: a column per shape, a line per figure. `cell` returns the content of a cell."""
    shapes = [shape for shape in SHAPES if cell(Key(REPLICAS, case(shape, kind), DRAGOMAN), "servers")]
    result = [(f"one {KINDS[kind]}", *(shape.name for shape in shapes))]
    for name, title in FIGURES.items():
        cells = [cell(Key(REPLICAS, case(shape, kind), DRAGOMAN), name) for shape in shapes]
        if any(cells):
            result.append((title, *(str(cell_value or "") for cell_value in cells)))
    return result if shapes else []
