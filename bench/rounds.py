"""The interleaved rounds: in each, every case of every section, on every server that has it, one after the other.

All servers of a round are fresh and share the first core. Only one is asked at a time, and nobody is asked before the
others have come to rest, so that what one does after its turn is not paid for by the next.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable
from contextlib import ExitStack
from typing import Final

from bench import disk
from bench.job import Job
from bench.loader import LoadFailed
from bench.rows import Key
from bench.run import Run
from bench.sections import START, Section, commit_before
from bench.servers import CONTESTANTS, KEPT, Running, started
from bench.spent import cpu

PROBES: Final = 200
REST: Final = 0.05
"""Seconds over which servers are watched to see whether they rest."""

INACTIVE: Final = 0.05
"""Share of a core that they may use and be at rest."""

WAIT_TIMEOUT: Final = 3.0
"""Seconds that they get to come to rest; after that the row says how busy they were."""


def measure(run: Run) -> None:
    """All rounds. What fails is told, and the others go on."""
    plan = run.plan
    names = [name for name in CONTESTANTS if any(name in plan.servers_of(section) for section in plan.sections)]
    for number in range(plan.rounds if names else 0):
        with ExitStack() as stack:
            servers = start(run, stack, names, number)
            for section in plan.sections:
                if section.kind == "send":
                    probe(run, section, number)
                for callers in section.of(plan.short):
                    # Every other round goes backwards, so that nobody always comes after the same one.
                    for name in plan.servers_of(section)[:: -1 if number % 2 else 1]:
                        if name in servers:
                            cell(run, section, callers, servers, name, number)


def probe(run: Run, section: Section, number: int) -> None:
    """The disk, as a commit of ours meets it in this section."""
    took = sorted(disk.commits(KEPT, PROBES))
    p50, p99 = statistics.median(took), took[int(len(took) * 0.99)]
    text = f"write and fdatasync, p50 {p50:.3f} ms, p99 {p99:.3f} ms"
    run.figure(commit_before(section.name), number, p50, "ms", text=text, p99=p99)


def start(run: Run, stack: ExitStack, names: Iterable[str], number: int) -> dict[str, Running]:
    """The servers, one after the other. One that does not start is left out."""
    servers: dict[str, Running] = {}
    for name in names:
        key = Key(START, "to listening", name)
        try:
            servers[name] = stack.enter_context(started(CONTESTANTS[name]))
        except RuntimeError as error:
            run.failed(key, number, str(error))
        else:
            seconds = servers[name].seconds
            run.figure(key, number, seconds, "s", text=f"{seconds:.2f} s")
    return servers


def cell(run: Run, section: Section, callers: int, servers: dict[str, Running], name: str, number: int) -> None:
    """One case on one server."""
    server, key = servers[name], Key(section.name, section.case(callers), name)
    others = [other.pid for other in servers.values() if other is not server]
    rest(others)
    job = Job(
        kind=section.kind, binding=section.binding, whose=server.contestant.whose, pid=server.pid, callers=callers,
        target=server.target(section.binding), seconds=run.plan.seconds, tools=run.plan.tools,
        go=str(server.place.go),
    )  # fmt: skip
    before, began = sum(map(cpu, others)), time.perf_counter()
    try:
        found = run.loader.ask(job)
    except LoadFailed as failed:
        run.failed(key, number, str(failed))
        return
    others_busy = (sum(map(cpu, others)) - before) / (time.perf_counter() - began)
    load_busy = found["load_cpu"] / found["seconds"]
    rate = found["count"] / found["seconds"]
    times = f", p50 {found['p50']:.2f} p99 {found['p99']:.2f} ms" if found["p50"] else ""
    text = f"{rate:,.0f} {section.unit}{times} ({found['tool']}, its core {load_busy:.0%} busy)"
    run.figure(
        key, number, rate, section.unit, text=text, p50=found["p50"], p99=found["p99"], tool=found["tool"],
        bytes=found["size"], cpu_us=found["server_cpu"] / found["count"] * 1e6, load=load_busy, others=others_busy,
    )  # fmt: skip


def rest(pids: list[int]) -> None:
    """Waits until these processes do nothing to speak of."""
    deadline = time.monotonic() + WAIT_TIMEOUT
    before = sum(map(cpu, pids))
    while time.monotonic() < deadline:
        time.sleep(REST)
        now = sum(map(cpu, pids))
        if now - before < REST * INACTIVE:
            return
        before = now
