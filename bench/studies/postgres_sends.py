"""Rates and costs of sends on PostgreSQL, of this tree and another commit: `python -m bench.studies.postgres_sends`.

Rounds are interleaved, and ratios are taken inside a round. PostgreSQL, NATS and the servers have the first core, the
callers the second, as on the sizing page. Statements are counted from PostgreSQL's log after the measurement.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Final

import uvloop
from tests import postgres
from tests.cluster import Cluster

from bench.load.codecs import CODECS
from bench.load.connections import connect
from bench.load.process import Meter, percentiles, send_call
from bench.measurements.replicas import ResourceUsage, Shape, start_cluster
from bench.measurements.sizing import busy_seconds
from bench.servers.commits import COMMITS_FOLDER, PREFIX, add_commit
from bench.servers.contestants import DRAGOMAN, LOAD_CORE, SERVER_CORE, pin

SHAPES: Final = (Shape("1 server", 1), Shape("1 server, 1 worker on the store", 1, runners=1))
WARM_UP: Final = 1.0
COUNTED_SECONDS: Final = 0.5
"""Seconds in which PostgreSQL logs every statement."""
STATEMENT: Final = re.compile(rb"LOG:  (?:statement|execute [^:]+):")
LOG_ALL: Final = ("ALTER SYSTEM SET log_statement = 'all'", "SELECT pg_reload_conf()")


async def measure(cluster: Cluster, shape: Shape, callers: int, seconds: float) -> dict[str, float]:
    """Returns the rate, the median response time in ms, and costs per send."""
    codec, meter = CODECS["grpc", DRAGOMAN], Meter(0)
    durations: list[float] = []
    clock = asyncio.get_running_loop().time
    connections = [await connect("grpc", cluster.servers[0].grpc, codec) for _ in range(callers)]

    async def call(number: int) -> None:
        send = send_call(connections[number], codec, meter)
        while meter.running:
            began = clock()
            await send()
            durations.append(clock() - began)

    tasks = [asyncio.create_task(call(number)) for number in range(callers)]
    assert isinstance(cluster.postgres, postgres.Server)
    log = cluster.postgres.folder / "log"
    await asyncio.sleep(WARM_UP)
    before, count, began, busy = await ResourceUsage.of(cluster, shape), meter.count, clock(), busy_seconds(SERVER_CORE)
    durations.clear()
    await asyncio.sleep(seconds)
    elapsed, sends = clock() - began, meter.count - count
    busy = busy_seconds(SERVER_CORE) - busy
    used = (await ResourceUsage.of(cluster, shape)).minus(before)
    p50, _ = percentiles([1000 * duration for duration in durations])
    for sql in LOG_ALL:
        await postgres.execute(cluster.postgres.url(), sql)
    await asyncio.sleep(COUNTED_SECONDS)
    offset, count = log.stat().st_size, meter.count
    await asyncio.sleep(COUNTED_SECONDS)
    with log.open("rb") as file:
        file.seek(offset)
        statements = len(STATEMENT.findall(file.read())) / max(meter.count - count, 1)
    meter.running = False
    await asyncio.gather(*tasks)
    for connection in connections:
        connection.close()
    parts = ("servers", "workers", "postgres", "nats", "commits", "wal")
    return {
        "rate": sends / elapsed,
        "p50": p50,
        "busy": busy / elapsed,
        "statements": statements,
        **{name: used[name] / sends for name in parts},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--against", metavar="COMMIT", help="also measure this commit, in the same rounds")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--callers", type=int, default=16)
    parser.add_argument("--shapes", default="12", help="1: one server; 2: with a worker on the store")
    namespace = parser.parse_args()
    pythons = {"this tree": sys.executable}
    if namespace.against:
        name = add_commit(namespace.against)
        pythons = {name: str(COMMITS_FOLDER / name.removeprefix(PREFIX) / ".venv/bin/python"), **pythons}
    pin(0, LOAD_CORE)
    shapes = [SHAPES[int(number) - 1] for number in namespace.shapes]
    for shape in shapes:
        rounds = [
            {name: one_run(python, shape, namespace.callers, namespace.seconds) for name, python in pythons.items()}
            for _ in range(namespace.rounds)
        ]
        print_medians(shape, rounds)


def one_run(python: str, shape: Shape, callers: int, seconds: float) -> dict[str, float]:
    """Measures a new cluster whose servers run on this Python."""
    with start_cluster(shape, python=python) as cluster:
        result = uvloop.run(measure(cluster, shape, callers, seconds))
    print(
        Path(python).parents[2].name,
        shape.name,
        *(f"{name} {value:,.2f}" for name, value in result.items()),
        flush=True,
    )
    return result


def print_medians(shape: Shape, rounds: Sequence[dict[str, dict[str, float]]]) -> None:
    """Prints the medians of the rounds, and those of the ratios inside a round."""
    for name in rounds[0]:
        medians = {figure: median(one[name][figure] for one in rounds) for figure in rounds[0][name]}
        print(f"{shape.name}: {name}:", *(f"{figure} {value:,.2f}" for figure, value in medians.items()))
    if len(rounds[0]) > 1:
        before, after = rounds[0]
        ratios = sorted(one[after]["rate"] / one[before]["rate"] for one in rounds)
        print(f"{shape.name}: rate x{median(ratios):.2f} ({ratios[0]:.2f}-{ratios[-1]:.2f})")


if __name__ == "__main__":
    main()
