"""The ladder: the CPU time that each layer of a blocking send adds, from the bare transport to the whole path.

Every rung is a server of its own (bench/servers/ladder.py). A round measures all rungs one after the other, from the
bottom in even rounds and from the top in odd ones, and the cost of a rung is the median of its differences to the rung
below within a round. Differences of a few microseconds may be noise: the range says so.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Final

from bench.load.jobs import Job, LoadFailed
from bench.measurements.rounds import wait_idle
from bench.rows import Key, Rows, Spread, format_number
from bench.run import Run
from bench.servers.contestants import (
    CONTESTANTS,
    DRAGOMAN,
    Contestant,
    ServerFolder,
    bare_server_of,
    start_server,
)
from bench.servers.ladder import BARE, LADDER, Rung

SECTION: Final = "ladder"
BINDINGS: Final = ("jsonrpc", "grpc")
CALLERS: Final = (1, 64)
NAMES: Final = {"jsonrpc": "JSON-RPC", "grpc": "gRPC"}


def case(binding: str, callers: int) -> str:
    """Returns the case in rows and tables."""
    return f"{binding}, {callers} caller{'s' if callers > 1 else ''}"


def row_key(name: str, rung: Rung) -> Key:
    """Returns the key of a rung in a case."""
    return Key(SECTION, f"{name}: {rung.name}", DRAGOMAN)


def measure(run: Run) -> None:
    """Measures all rungs in every round. A rung that fails is recorded, and its row of the table has a gap."""
    for number in range(run.plan.rounds):
        for rung in LADDER[:: -1 if number % 2 else 1]:
            for binding in BINDINGS:
                _measure_rung(run, rung, binding, number)


def _measure_rung(run: Run, rung: Rung, binding: str, number: int) -> None:
    contestant = _contestant(rung, binding)
    try:
        with start_server(contestant) as server:
            for callers in CALLERS:
                wait_idle([server.pid])
                job = Job(
                    kind="send", binding=binding, implementation=contestant.implementation, pid=server.pid,
                    callers=callers, target=server.target(binding), seconds=run.plan.seconds, tools=run.plan.tools,
                )  # fmt: skip
                result = run.load_process.run(job)
                cpu_us = result["server_cpu"] / result["count"] * 1e6
                run.record(
                    row_key(case(binding, callers), rung),
                    number,
                    cpu_us,
                    "us",
                    text=f"{cpu_us:,.0f} µs of CPU for each send",
                )
    except (RuntimeError, LoadFailed) as error:
        run.record_failure(row_key(case(binding, CALLERS[0]), rung), number, str(error))


def _contestant(rung: Rung, binding: str) -> Contestant:
    if rung.name == BARE:
        return CONTESTANTS[bare_server_of(binding)]

    def command(server_folder: ServerFolder) -> list[str]:
        addresses = [f"--{name}=127.0.0.1:{port}" for name, port in server_folder.ports.items()]
        store = f"sqlite:///{server_folder.folder}/tasks.db" if rung.durable else "memory:"
        return [sys.executable, "-m", "bench.servers.ladder", rung.name, *addresses, f"--store={store}"]

    return replace(CONTESTANTS[DRAGOMAN], command=command)


def render(rows: Rows) -> str:
    """Returns the table; empty without rows of a ladder."""
    if not any(key.section == SECTION for key in rows):
        return ""
    cases = [case(binding, callers) for binding in BINDINGS for callers in CALLERS]
    head = ["rung", *cases, "what it adds"]
    lines = [head, ["---", *["---:"] * len(cases), "---"]]
    for below, rung in zip((None, *LADDER), LADDER, strict=False):
        lines.append([rung.name, *(_added(rows, name, rung, below) for name in cases), rung.adds])
    lines.append(["**all**", *(_total(rows, name) for name in cases), ""])
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return f"### The ladder: µs of the server's CPU that each rung adds to a blocking send\n\n{table}"


def _added(rows: Rows, name: str, rung: Rung, below: Rung | None) -> str:
    here = row_key(name, rung)
    if below is None:
        return str(rows.spread(here) or "")
    pairs = rows.joined(here, row_key(name, below))
    return str(Spread.of(above["value"] - under["value"] for above, under in pairs) or "")


def _total(rows: Rows, name: str) -> str:
    spread = rows.spread(row_key(name, LADDER[-1]))
    return format_number(spread.median) if spread is not None else ""
