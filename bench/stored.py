"""ListTasks over stores of a thousand tasks and of many more: the first page and the hundredth.

Our stores are filled before the server starts (bench.fill), those of a2a-sdk by its server itself. Servers of all sizes
run beside each other, and are asked by turns. What a2a-sdk takes grows with what is stored, so only its first page is
asked for: the way to the hundredth would take the rest of the run.
"""

from __future__ import annotations

import subprocess
import sys
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Final

from bench.job import Job
from bench.loader import LoadFailed
from bench.rounds import rest
from bench.rows import Key
from bench.run import Run
from bench.sections import LIST
from bench.servers import CONTESTANTS, OURS, Place, Running, started
from tools.environments import ROOT

FEW: Final = 1_000
MANY: Final = 100_000
HUGE: Final = 1_000_000
SHORT: Final = 3_000
"""Tasks that are COMPLETED; a tenth as many are FAILED."""

PEERS: Final = ("a2a-sdk memory", "a2a-sdk SQLite")
"""Those that have ListTasks. They are not asked at a million tasks: one answer would take seconds."""

STATES: Final = {"": "no filter", "TASK_STATE_COMPLETED": "by state"}
SECONDS: Final = 0.5
LAST: Final = 100


def case(tasks: int, page: int, state: str) -> str:
    """What rows and tables call a page."""
    return f"{tasks:,} tasks, page {page}, {STATES[state]}"


def measure(run: Run, *, huge: bool) -> None:
    """Fills the stores once, and measures in rounds."""
    sizes = [FEW, SHORT] if run.plan.short else [FEW, MANY, *([HUGE] if huge else [])]
    wanted = [(OURS, tasks) for tasks in sizes]
    peers = PEERS[1:] if run.plan.short else PEERS
    wanted += [(name, tasks) for name in peers for tasks in sizes[: 1 if run.plan.short else 2]]
    with ExitStack() as stack:
        servers: dict[tuple[str, int], Running] = {}
        for name, tasks in wanted:
            if not run.plan.takes(name):
                continue
            run.say(f"{LIST}: filling {name} with {tasks:,} tasks")
            try:
                servers[name, tasks] = stack.enter_context(_filled(name, tasks))
            except (RuntimeError, subprocess.CalledProcessError) as error:
                run.failed(Key(LIST, f"{tasks:,} tasks", name), 0, str(error))
        for number in range(run.plan.rounds):
            for state in STATES:
                for (_, tasks), server in servers.items():
                    rest([other.pid for other in servers.values() if other is not server])
                    _pages(run, server, tasks, state, number)


def _filled(name: str, tasks: int) -> AbstractContextManager[Running]:
    if name != OURS:
        return started(CONTESTANTS[name], tasks=tasks)

    def fill(place: Place) -> None:
        command: list[str | Path] = [sys.executable, "-m", "bench.fill", place.folder / "tasks.db", str(tasks)]
        subprocess.run(command, cwd=ROOT, check=True)

    return started(CONTESTANTS[name], prepare=fill)


def _pages(run: Run, server: Running, tasks: int, state: str, number: int) -> None:
    pages = (1, LAST) if server.name == OURS else (1,)
    job = Job(
        kind="list", binding="grpc", whose=server.contestant.whose, pid=server.pid, target=server.target("grpc"),
        seconds=SECONDS, state=state, pages=pages,
    )  # fmt: skip
    try:
        found = run.loader.ask(job)
        expected = tasks if state else tasks + tasks // 10
        if found["total"] != expected:
            raise LoadFailed(f"{found['total']} tasks instead of {expected}")
    except LoadFailed as failed:
        run.failed(Key(LIST, case(tasks, 1, state), server.name), number, str(failed))
        return
    for page, ms in found["ms"].items():
        run.figure(Key(LIST, case(tasks, int(page), state), server.name), number, ms, "ms", text=f"{ms:.2f} ms")
