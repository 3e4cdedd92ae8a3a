"""Interleaved rounds: each runs every case of every section on every server, one after the other.

Each round starts new servers, which share the first core. One server is loaded at a time, and only once all others are
idle, so that no server pays for the remaining work of another.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable
from contextlib import ExitStack
from typing import Final

from bench import machine
from bench.load.jobs import Job, LoadFailed
from bench.resources import cpu
from bench.rows import Key
from bench.run import Run
from bench.sections import START, Section, disk_key
from bench.servers.contestants import BENCH_FOLDER, CONTESTANTS, RunningServer, start_server

DISK_SAMPLES: Final = 200
IDLE_CHECK_SECONDS: Final = 0.05
"""Seconds of CPU measurement to decide whether servers are idle."""

IDLE_CPU_SHARE: Final = 0.05
"""Share of a core up to which servers count as idle."""

IDLE_TIMEOUT: Final = 3.0
"""Maximum seconds to wait for idle servers; after that, the row has their CPU share."""


def measure(run: Run) -> None:
    """Runs all rounds. Failures are recorded, and the run continues."""
    plan = run.plan
    names = [name for name in CONTESTANTS if any(name in plan.servers_of(section) for section in plan.sections)]
    for number in range(plan.rounds if names else 0):
        with ExitStack() as stack:
            servers = start_servers(run, stack, names, number)
            for section in plan.sections:
                if section.kind == "send":
                    measure_disk(run, section.name, number)
                for callers in section.run_cases(plan.short):
                    # The order alternates, so that no server always follows the same one.
                    for name in plan.servers_of(section)[:: -1 if number % 2 else 1]:
                        if name in servers:
                            measure_case(run, section, callers, servers, name, number)


def measure_disk(run: Run, section: str, number: int) -> None:
    """Measures the latency of a commit on the disk before a section."""
    durations = sorted(machine.measure_commits(BENCH_FOLDER, DISK_SAMPLES))
    p50, p99 = statistics.median(durations), durations[int(len(durations) * 0.99)]
    text = f"write and fdatasync, p50 {p50:.3f} ms, p99 {p99:.3f} ms"
    run.record(disk_key(section), number, p50, "ms", text=text, p99=p99)


def start_servers(run: Run, stack: ExitStack, names: Iterable[str], number: int) -> dict[str, RunningServer]:
    """Starts the servers one after the other. A server that fails to start is skipped."""
    servers: dict[str, RunningServer] = {}
    for name in names:
        key = Key(START, "to listening", name)
        try:
            servers[name] = stack.enter_context(start_server(CONTESTANTS[name]))
        except RuntimeError as error:
            run.record_failure(key, number, str(error))
        else:
            seconds = servers[name].seconds
            run.record(key, number, seconds, "s", text=f"{seconds:.2f} s")
    return servers


def measure_case(
    run: Run, section: Section, callers: int, servers: dict[str, RunningServer], name: str, number: int
) -> None:
    """Measures one case on one server."""
    server, key = servers[name], Key(section.name, section.case(callers), name)
    others = [other.pid for other in servers.values() if other is not server]
    wait_idle(others)
    job = Job(
        kind=section.kind, binding=section.binding, implementation=server.contestant.implementation, pid=server.pid,
        callers=callers, target=server.target(section.binding), seconds=run.plan.seconds, tools=run.plan.tools,
        start_file=str(server.folder.start_file),
    )  # fmt: skip
    before, began = sum(map(cpu, others)), time.perf_counter()
    try:
        result = run.load_process.run(job)
    except LoadFailed as failed:
        run.record_failure(key, number, str(failed))
        return
    others_busy = (sum(map(cpu, others)) - before) / (time.perf_counter() - began)
    load_busy = result["load_cpu"] / result["seconds"]
    rate = result["count"] / result["seconds"]
    times = f", p50 {result['p50']:.2f} p99 {result['p99']:.2f} ms" if result["p50"] else ""
    text = f"{rate:,.0f} {section.unit}{times} ({result['tool']}, its core {load_busy:.0%} busy)"
    run.record(
        key, number, rate, section.unit, text=text, p50=result["p50"], p99=result["p99"], tool=result["tool"],
        bytes=result["size"], cpu_us=result["server_cpu"] / result["count"] * 1e6, load=load_busy, others=others_busy,
    )  # fmt: skip


def wait_idle(pids: list[int]) -> None:
    """Waits until these processes are idle, at most IDLE_TIMEOUT seconds."""
    deadline = time.monotonic() + IDLE_TIMEOUT
    before = sum(map(cpu, pids))
    while time.monotonic() < deadline:
        time.sleep(IDLE_CHECK_SECONDS)
        now = sum(map(cpu, pids))
        if now - before < IDLE_CHECK_SECONDS * IDLE_CPU_SHARE:
            return
        before = now
