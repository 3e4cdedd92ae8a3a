"""ListTasks over stores with a thousand to a million tasks: the first page and the hundredth.

Our stores are filled before the server starts (bench.servers.prefill), those of a2a-sdk by its server. Servers of all
sizes run side by side and are measured in turn. The latency of a2a-sdk grows with the store, so only its first page is
measured: reaching the hundredth would take too long.
"""

from __future__ import annotations

import subprocess
import sys
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Final

from bench.load.jobs import Job, LoadFailed
from bench.measurements.rounds import wait_idle
from bench.rows import Key
from bench.run import Run
from bench.sections import LIST
from bench.servers.contestants import CONTESTANTS, DRAGOMAN, RunningServer, ServerFolder, start_server
from tools.environments import ROOT

FEW: Final = 1_000
MANY: Final = 100_000
HUGE: Final = 1_000_000
SHORT: Final = 3_000
"""Number of COMPLETED tasks; a tenth as many are FAILED."""

PEERS: Final = ("a2a-sdk memory", "a2a-sdk SQLite")
"""Peers with ListTasks. Not measured at a million tasks, where one response would take seconds."""

STATES: Final = {"": "no filter", "TASK_STATE_COMPLETED": "by state"}
SECONDS: Final = 0.5
LAST: Final = 100


def case(tasks: int, page: int, state: str) -> str:
    """Returns the case of a page in rows and tables."""
    return f"{tasks:,} tasks, page {page}, {STATES[state]}"


def measure(run: Run, *, huge: bool) -> None:
    """Fills the stores once, and measures them in rounds."""
    sizes = [FEW, SHORT] if run.plan.short else [FEW, MANY, *([HUGE] if huge else [])]
    selected = [(DRAGOMAN, tasks) for tasks in sizes]
    peers = PEERS[1:] if run.plan.short else PEERS
    selected += [(name, tasks) for name in peers for tasks in sizes[: 1 if run.plan.short else 2]]
    with ExitStack() as stack:
        servers: dict[tuple[str, int], RunningServer] = {}
        for name, tasks in selected:
            if not run.plan.takes(name):
                continue
            run.log(f"{LIST}: filling {name} with {tasks:,} tasks")
            try:
                servers[name, tasks] = stack.enter_context(_filled(name, tasks))
            except (RuntimeError, subprocess.CalledProcessError) as error:
                run.record_failure(Key(LIST, f"{tasks:,} tasks", name), 0, str(error))
        for number in range(run.plan.rounds):
            for state in STATES:
                for (_, tasks), server in servers.items():
                    wait_idle([other.pid for other in servers.values() if other is not server])
                    _pages(run, server, tasks, state, number)


def _filled(name: str, tasks: int) -> AbstractContextManager[RunningServer]:
    if name != DRAGOMAN:
        return start_server(CONTESTANTS[name], tasks=tasks)

    def fill(server_folder: ServerFolder) -> None:
        command: list[str | Path] = [
            sys.executable,
            "-m",
            "bench.servers.prefill",
            server_folder.folder / "tasks.db",
            str(tasks),
        ]
        subprocess.run(command, cwd=ROOT, check=True)

    return start_server(CONTESTANTS[name], prepare=fill)


def _pages(run: Run, server: RunningServer, tasks: int, state: str, number: int) -> None:
    pages = (1, LAST) if server.name == DRAGOMAN else (1,)
    job = Job(
        kind="list", binding="grpc", implementation=server.contestant.implementation, pid=server.pid,
        target=server.target("grpc"), seconds=SECONDS, state=state, pages=pages,
    )  # fmt: skip
    try:
        result = run.load_process.run(job)
        expected = tasks if state else tasks + tasks // 10
        if result["total"] != expected:
            raise LoadFailed(f"{result['total']} tasks instead of {expected}")
    except LoadFailed as failed:
        run.record_failure(Key(LIST, case(tasks, 1, state), server.name), number, str(failed))
        return
    for page, ms in result["ms"].items():
        run.record(Key(LIST, case(tasks, int(page), state), server.name), number, ms, "ms", text=f"{ms:.2f} ms")
