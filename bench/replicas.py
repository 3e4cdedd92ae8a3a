"""Servers on one PostgreSQL and one NATS: what a send and a chunk cost each of them, in CPU, bytes and commits.

Everything but the load is on the first core, so that rates say nothing of machines with more of them; what one of
something costs each process does. What they spend in the same time without any load is measured first, and taken off.
The load goes to all servers evenly. A turn runs at the server that took its message, or in a process that only runs
agents, or at a worker that dialled in.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import uvloop
from tests import nats, postgres
from tests.cluster import Cluster, Part

from bench.answers import EVENTS
from bench.asking import FORMS
from bench.lines import Line, Wrong, connect
from bench.load import Ask, Meter, sending, streaming
from bench.rows import Key
from bench.run import FEW, Run
from bench.sections import REPLICAS
from bench.servers import CORES, LOAD_CORE, OURS, SERVER_CORE
from bench.sockets import exchanged
from bench.spent import children, cpu
from tools.environments import ROOT

CALLERS: Final = 16
"""For each server: so what commits together does not depend on how many servers there are."""

WARM_UP: Final = 1.0
LEAST: Final = 2.0
LEAST_SHORT: Final = 0.2
"""Seconds of each measurement: what happens once in a while shall not decide it."""

WAIT_TIMEOUT: Final = 30.0
"""Seconds that callers may take to end after the clock has stopped."""

AGENTS: Final = str(ROOT / "bench" / "agents.py")
IDLE: Final = "idle"
KINDS: Final = {IDLE: "idle second", "send": "send", "stream": "chunk"}
"""What is asked for, and what is counted."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A cluster that is measured. `runners`: processes that only run agents; `workers`: those that dial in."""

    name: str
    servers: int
    runners: int = 0
    workers: int = 0


SHAPES: Final = (
    Shape("1 server", 1),
    Shape("2 servers", 2),
    Shape("3 servers", 3),
    Shape("1 server, 1 worker on the store", 1, runners=1),
    Shape("1 server, 1 worker that dials in", 1, workers=1),
)
SHORT: Final = (SHAPES[1], SHAPES[3])


def case(shape: Shape, kind: str) -> str:
    """What rows call one of these."""
    return f"{shape.name}: {KINDS[kind]}"


def measure(run: Run) -> None:
    """A fresh cluster for each shape of each round."""
    if postgres.binaries() is None or nats.binary() is None:
        run.say("no replicas: there is no PostgreSQL or no NATS for this machine or this Python")
        return
    seconds = max(run.plan.seconds, LEAST_SHORT if run.plan.short else LEAST)
    for number in range(min(run.plan.rounds, FEW)):
        for shape in SHORT if run.plan.short else SHAPES:
            try:
                with started(shape) as cluster:
                    idle = dict[str, float]()
                    for kind in KINDS:
                        found = uvloop.run(_costs(cluster, shape, kind, seconds, idle))
                        idle = idle or found
                        text = ", ".join(f"{name} {value:,.1f}" for name, value in found.items())
                        run.figure(
                            Key(REPLICAS, case(shape, kind), OURS), number, found["servers"], "us", text=text, **found
                        )
            except (RuntimeError, Wrong, OSError, TimeoutError) as error:
                run.failed(Key(REPLICAS, case(shape, "send"), OURS), number, str(error) or type(error).__name__)


@contextmanager
def started(shape: Shape) -> Iterator[Cluster]:
    """The cluster, all of it on the servers' core."""
    app = "" if shape.workers else AGENTS
    serving = ["--root", "echo", *(["--role", "server"] if shape.runners else [])]
    with tempfile.TemporaryDirectory() as folder, _on(SERVER_CORE):
        cluster = Cluster(
            Path(folder), app=app, servers=shape.servers, workers=shape.workers, worker_app=AGENTS, serving=serving
        )
        for number in range(shape.runners):
            cluster.add_server(f"runner-{number + 1}", "--role", "worker")
        with cluster, _path():
            cluster.start()
            with _on(LOAD_CORE):
                yield cluster


@contextmanager
def _on(core: int) -> Iterator[None]:
    """What is started meanwhile begins on this core."""
    before = os.sched_getaffinity(0) if CORES else set[int]()
    if len(CORES) > 1 and core in CORES:
        os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        if before:
            os.sched_setaffinity(0, before)


@contextmanager
def _path() -> Iterator[None]:
    """Servers are started in a folder of their own, and their agents use our modules."""
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
    """What one of a kind costs, less what was spent anyway: µs of CPU of each part, bytes, commits. Raises Wrong."""
    form, meter = FORMS["grpc", OURS], Meter(0)
    targets = [server.grpc for server in cluster.servers[: shape.servers]]
    make: dict[str, Callable[[Line], Ask]] = {
        "send": lambda line: sending(line, form, meter),
        "stream": lambda line: streaming(line, form.stream(f"chunks {EVENTS}"), meter),
    }
    callers = range(CALLERS * shape.servers if kind != IDLE else 0)
    lines = [await connect("grpc", targets[number % len(targets)], form) for number in callers]
    calling = [asyncio.create_task(_call(make[kind](line), meter)) for line in lines]
    clock = asyncio.get_running_loop().time
    try:
        await asyncio.sleep(WARM_UP)
        before, count, began = await Spent.of(cluster, shape), meter.count, clock()
        await asyncio.sleep(seconds)
        spent, count, took = (await Spent.of(cluster, shape)).less(before), meter.count - count, clock() - began
    finally:
        meter.running = False
        results = await asyncio.wait_for(asyncio.gather(*calling, return_exceptions=True), WAIT_TIMEOUT)
        for line in lines:
            line.close()
    if kind == IDLE:
        return {name: value / took for name, value in spent.items()}
    if (wrong := [repr(one) for one in results if one is not None]) or not count:
        raise Wrong(f"{len(wrong)} wrong, {count} right: {wrong[:1]}")
    return {name: (value - idle[name] * took) / count for name, value in spent.items()} | {"rate": count / took}


async def _call(ask: Ask, meter: Meter) -> None:
    while meter.running:
        await ask()


@dataclass(frozen=True, slots=True)
class Spent:
    """What parts have spent so far."""

    figures: Mapping[str, float]

    @classmethod
    async def of(cls, cluster: Cluster, shape: Shape) -> Spent:
        """CPU in µs, bytes by connections that are open, the database's commits that wrote, and bytes of its log."""
        (row,) = await postgres.execute(
            cluster.postgres.url(),
            "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS commits,"
            " pg_current_wal_lsn() - '0/0'::pg_lsn AS wal,"
            " pg_database_size(current_database()) AS stored",
        )
        to_database, from_database = exchanged(cluster.postgres.port)
        to_bus, from_bus = exchanged(cluster.nats.port)
        servers, runners = cluster.servers[: shape.servers], cluster.servers[shape.servers :]
        return cls(
            {
                "servers": _cpu(servers),
                "workers": _cpu([*runners, *cluster.workers]),
                "postgres": sum(map(cpu, (cluster.postgres.pid, *children(cluster.postgres.pid)))) * 1e6,
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

    def less(self, earlier: Spent) -> dict[str, float]:
        """What was spent since."""
        return {name: value - earlier.figures[name] for name, value in self.figures.items()}


def _cpu(parts: Sequence[Part]) -> float:
    return sum(cpu(part.pid) for part in parts) * 1e6


FIGURES: Final[dict[str, str]] = {
    "servers": "CPU of the servers, µs",
    "workers": "CPU of workers, µs",
    "postgres": "CPU of PostgreSQL, µs",
    "nats": "CPU of NATS, µs",
    "commits": "commits",
    "wal": "bytes of PostgreSQL's log",
    "stored": "bytes that the database grew by",
    "to_postgres": "bytes to PostgreSQL",
    "from_postgres": "bytes from PostgreSQL",
    "to_nats": "bytes to NATS",
    "from_nats": "bytes from NATS",
    "rate": "a second, on this one core",
}
"""What a row holds of each, and what tables call it."""


def lines(kind: str, cell: Callable[[Key, str], Any]) -> list[tuple[str, ...]]:
    """A table of one kind: a column for each shape, a line for each figure. `cell` gives what stands in it."""
    shapes = [shape for shape in SHAPES if cell(Key(REPLICAS, case(shape, kind), OURS), "servers")]
    found = [(f"one {KINDS[kind]}", *(shape.name for shape in shapes))]
    for name, title in FIGURES.items():
        cells = [cell(Key(REPLICAS, case(shape, kind), OURS), name) for shape in shapes]
        if any(cells):
            found.append((title, *(str(one or "") for one in cells)))
    return found if shapes else []
