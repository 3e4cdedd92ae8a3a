"""`make soak`: steady load on one server; memory, file handles and bytes stored per task have to stay flat.

SOAK_SECONDS (3600) is how long. The first third warms up; what follows is cut into an early and a late half, and the
late one may exceed the early one by the margins below and no more. Ends with exit code 1 when it does.
"""

from __future__ import annotations

import asyncio
import io
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

from tests.chaos.history import Acknowledged, Entry, Recorder, Sent
from tests.chaos.load.clients import RandomClient
from tests.chaos.load.followers import Stage
from tests.chaos.targets.server import running

from dragoman.stores.sqlite.hot.rows import TOTALS
from dragoman.stores.sqlite.schema import connect
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

CLIENTS: Final = 8
STORED_BYTES: Final = "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size"
SAMPLES: Final = 120
"""Minimum samples of a run; at least one every five seconds."""
WORDS: Final = ("echo", "stream 20 1", "ask")

MEMORY: Final = 1.10
MEMORY_BYTES: Final = 8 * 1024 * 1024
"""Permitted growth of resident memory: a tenth, and 8 MiB for caches that fill once."""
HANDLES: Final = 2 * CLIENTS
"""Permitted growth of open files: one or two connections per client."""
STORED: Final = 1.10
CUT_BYTES: Final = 1024 * 1024
"""Bytes of the store for one task: a tenth, and for the half as a whole what an hour does not notice. A half begins and
ends in the middle of its clients' rounds, where one task takes several times another, and a stream on a busy machine
takes more commits than on an idle one: in ten seconds, with 500 tasks, that was 12 % once."""
WAL: Final = 128 * 1024 * 1024
"""Maximum bytes of the write-ahead log, which is checked every 512 commits and truncated at 64 MiB."""


@dataclass(frozen=True, slots=True)
class Look:
    """One sample of a running server."""

    at: float
    memory: int
    handles: int
    stored: int
    wal: int
    tasks: int


def look(pid: int, store: Path, at: float) -> Look:
    """Takes a sample of the process and the store."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    with closing(connect(store, readonly=True)) as connection:
        (stored,) = connection.execute(STORED_BYTES).fetchone()
        (tasks,) = connection.execute(f"SELECT coalesce(sum(tasks), 0) FROM {TOTALS}").fetchone()
    wal = store.with_name(store.name + "-wal")
    return Look(
        at=at,
        memory=pages * os.sysconf("SC_PAGE_SIZE"),
        handles=len(os.listdir(f"/proc/{pid}/fd")),
        stored=stored,
        wal=wal.stat().st_size if wal.exists() else 0,
        tasks=tasks,
    )


def judge(looks: Sequence[Look]) -> list[str]:
    """Returns one line for each value that grew."""
    warm = looks[len(looks) // 3 :]
    early, late = warm[: len(warm) // 2], warm[len(warm) // 2 :]

    def middle(what: Callable[[Look], int], of: Sequence[Look]) -> float:
        return median(map(what, of))

    def taken(of: Sequence[Look]) -> tuple[int, int]:
        return of[-1].stored - of[0].stored, max(1, of[-1].tasks - of[0].tasks)

    found = []
    if len(early) < 4 or late[-1].tasks == early[0].tasks:
        found.append(f"too little to judge by: {len(looks)} looks, {looks[-1].tasks} tasks")
    before, after = middle(lambda one: one.memory, early), middle(lambda one: one.memory, late)
    if after > before * MEMORY + MEMORY_BYTES:
        found.append(f"memory grew from {_mib(before)} to {_mib(after)}")
    before, after = middle(lambda one: one.handles, early), middle(lambda one: one.handles, late)
    if after > before + HANDLES:
        found.append(f"open files grew from {before:.0f} to {after:.0f}")
    (first, some), (then, more) = taken(early), taken(late)
    if then > first / some * STORED * more + CUT_BYTES:
        found.append(f"a task took {first / some:.0f} bytes of the store, and later {then / more:.0f}")
    if (most := max(one.wal for one in looks)) > WAL:
        found.append(f"the write-ahead log grew to {_mib(most)}")
    return found


def _mib(size: float) -> str:
    return f"{size / 1024 / 1024:.1f} MiB"


class Regular(RandomClient):
    """A client that repeats three operations, and follows each task to its end."""

    async def serve(self) -> None:
        while not self._stage.over.is_set():
            for words in WORDS:
                task = await self.send(self._message(words), "", "blocking")
                if task is not None and task.status.state == pb.TASK_STATE_INPUT_REQUIRED:
                    await self.send(self._message("so be it", task.id), "", "blocking")
            await self._streaming()

    def _words(self) -> str:
        return "stream 20 1"


class Forgetful(Recorder):
    """Counts entries without storing them, since this process must not grow either."""

    def __init__(self) -> None:
        super().__init__(io.StringIO())
        self.sent = self.acknowledged = 0

    def add(self, entry: Entry) -> None:
        self.sent += isinstance(entry, Sent)
        self.acknowledged += isinstance(entry, Acknowledged)


async def soak(folder: Path, seconds: float) -> tuple[list[Look], Forgetful, list[str]]:
    """Performs the run."""
    recorder, looks = Forgetful(), []
    async with running(folder) as victim:
        stage = Stage(victim, recorder, 0)
        clients = [asyncio.create_task(Regular(stage, number, keys=False).serve()) for number in range(CLIENTS)]
        began = response = time.monotonic()
        while (now := time.monotonic() - began) < seconds:
            looks.append(look(victim.pid, victim.store, now))
            if time.monotonic() - response > 60:
                response = time.monotonic()
                print(f"soak: {now:4.0f} s, {_describe(looks[-1])}", flush=True)
            await asyncio.wait(clients, timeout=min(5.0, seconds / SAMPLES))
            if any(client.done() for client in clients):
                break
        stage.over.set()
        await asyncio.wait_for(asyncio.gather(*clients), 60)
        return looks, recorder, [f"the server logged {text}" for _, text in victim.errors]


def _describe(one: Look) -> str:
    each = one.stored / max(1, one.tasks)
    return f"{one.tasks} tasks of {each:.0f} bytes, {_mib(one.memory)} in memory, {one.handles} open files"


def main() -> int:
    """Runs the soak test."""
    seconds = max(10, int(os.environ.get("SOAK_SECONDS", "3600")))
    if not Path("/proc/self/statm").exists():
        print("soak: this system does not tell about processes in /proc; nothing was measured")
        return 0
    print(f"soak: {seconds} s", flush=True)
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        looks, recorder, problems = asyncio.run(soak(Path(folder), seconds))
    problems += judge(looks)
    for problem in problems:
        print(f"soak: {problem}")
    verdict = f"{len(problems)} PROBLEMS" if problems else "ok"
    print(f"soak: {recorder.sent} sends, {recorder.acknowledged} acknowledged; begins with {_describe(looks[0])};")
    print(f"soak: ends with {_describe(looks[-1])} in {looks[-1].at:.1f}s: {verdict}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
