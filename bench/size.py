"""`python -m bench.size`: what size costs. One more event of a task of 10 to 10,000, one message of many beside one of
few, room on disk before and after folding.

Without a disk's whims (`synchronous=normal`) and without transports: these are ratios of the same work on a task
that is small and on one that is large. Small and large take turns, so that the machine's drift hits both. Runs in a
process of its own, on the server's core, and prints a row of JSON for each figure.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from bench.rows import Key
from bench.run import FEW, Run
from bench.sections import SIZE
from bench.servers import KEPT, OURS, SERVER_CORE, pin
from dragoman.core.task import states
from dragoman.core.task.log import Appended
from dragoman.ports import Store
from dragoman.stores.sqlite import StorageOptions, open_store
from dragoman.testing.fixtures import by_runner, chunk, follow_up, running, status
from tools.environments import ROOT

EVENT: Final = "0123456789" * 5
SIZES: Final = (10, 100, 1_000, 10_000)
SMALL, LARGE = SIZES[0], SIZES[-1]
FOLDED: Final = 100_000
Figure = tuple[str, float, str]
"""Case, value, unit."""

Asks = dict[int, Callable[[], Awaitable[Any]]]


def appending_case(events: int) -> str:
    """What rows and tables call one more event of a task of so many."""
    return f"one more event after {events:,}"


async def grown(store: Store, events: int) -> Appended:
    """A running task of so many events, each an append of its own."""
    claimed = await running(store)
    await _all(store.append(by_runner(claimed, chunk("out", EVENT))) for _ in range(events - 1))
    return claimed


async def talked(store: Store, messages: int) -> Appended:
    """A running task of so many messages."""
    claimed = await running(store)
    await _all(store.append(follow_up(claimed.record.ref, str(number))) for number in range(messages - 1))
    return claimed


async def _all(work: Iterable[Awaitable[Any]]) -> None:
    waiting = list(work)
    for at in range(0, len(waiting), 500):
        await asyncio.gather(*waiting[at : at + 500])


async def beside(times: int, asks: Asks) -> dict[int, float]:
    """Microseconds of each, by turns: the medians."""
    took: dict[int, list[float]] = {size: [] for size in asks}
    for _ in range(times):
        for size, ask in asks.items():
            begin = time.perf_counter()
            await ask()
            took[size].append((time.perf_counter() - begin) * 1e6)
    return {size: statistics.median(spent) for size, spent in took.items()}


async def appending(store: Store, sizes: Iterable[int], times: int) -> dict[int, float]:
    """One more event of tasks of each size. There are so many tasks of a size that none grows by more than a tenth."""
    asks: Asks = {}
    for events in sizes:
        tasks = itertools.cycle([await grown(store, events) for _ in range(max(1, times * 10 // events))])
        asks[events] = lambda tasks=tasks: store.append(by_runner(next(tasks), chunk("out", EVENT)))  # type: ignore[misc]  # a default binds it
    return await beside(times, asks)


async def reading(store: Store, large: int, times: int) -> dict[int, float]:
    """GetTask with one message of few, and of many."""
    few, many = await talked(store, SMALL), await talked(store, large)
    return await beside(
        times,
        {SMALL: lambda: store.read(few.record.ref, history=1), large: lambda: store.read(many.record.ref, history=1)},
    )


async def resuming(store: Store, large: int, times: int) -> dict[int, float]:
    """The last event of few, and of many."""
    few, many = await grown(store, SMALL), await grown(store, large)
    return await beside(
        times,
        {
            SMALL: lambda: store.events(few.record.ref, SMALL - 1),
            large: lambda: store.events(many.record.ref, large - 1),
        },
    )


async def folding(folder: Path, events: int) -> dict[str, float]:
    """A finished task of many chunks, before and after it is folded and cut: rows, bytes on disk, time of GetTask."""
    now = time.time_ns() // 1_000_000
    store = open_store(
        folder / "folding.db", clock=lambda: now, synchronous="normal", sizes=StorageOptions(cut_after=1)
    )
    claimed = await grown(store, events)
    await store.append(by_runner(claimed, status(states.COMPLETED), end=True))
    found: dict[str, float] = {}

    async def look(name: str) -> None:
        found[f"rows, {name}"] = await store._read(_rows)
        found[f"bytes, {name}"] = await store._read(_bytes)
        found[f"us, {name}"] = (await beside(5, {0: lambda: store.read(claimed.record.ref)}))[0]

    await look("before")
    now += 10_000
    await store.compact()
    await look("after")
    await store.close()
    return found


def _rows(connection: Any) -> int:
    return sum(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in ("log", "chunks"))


def _bytes(connection: Any) -> int:
    used = "(SELECT page_count FROM pragma_page_count) - (SELECT freelist_count FROM pragma_freelist_count)"
    return int(connection.execute(f"SELECT ({used}) * page_size FROM pragma_page_size").fetchone()[0])


async def figures(folder: Path, short: bool) -> list[Figure]:
    """All figures of one round."""
    sizes, times = (SIZES[:-1], 50) if short else (SIZES, 500)
    store = open_store(folder / "tasks.db", synchronous="normal")
    found: list[Figure] = [
        (appending_case(size), us, "us") for size, us in (await appending(store, sizes, times)).items()
    ]
    found += [
        (f"GetTask, 1 message of {size:,}", us, "us") for size, us in (await reading(store, sizes[-1], times)).items()
    ]
    found += [
        (f"events after {size - 1:,}", us, "us") for size, us in (await resuming(store, sizes[-1], times)).items()
    ]
    await store.close()
    units = {"rows": "rows", "bytes": "bytes", "us": "us"}
    folded = await folding(folder, FOLDED // 50 if short else FOLDED)
    return found + [(f"folding: {case}", value, units[case.partition(",")[0]]) for case, value in folded.items()]


def measure(run: Run) -> None:
    """Rounds of it, each in a process that is pinned like a server."""
    for number in range(min(run.plan.rounds, FEW)):
        command = [sys.executable, "-m", "bench.size", *(["--short"] if run.plan.short else [])]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            pin(process.pid, SERVER_CORE)
            text, remote_error_text = process.communicate()
        if process.returncode:
            run.failed(Key(SIZE, "all", OURS), number, remote_error_text.strip().splitlines()[-1])
            return
        for case, value, unit in _figures(text):
            run.figure(Key(SIZE, case, OURS), number, value, unit, text=f"{value:,.0f} {unit}")


def _figures(text: str) -> Iterator[Figure]:
    for line in text.splitlines():
        case, value, unit = json.loads(line)
        yield case, value, unit


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.size", description=__doc__)
    parser.add_argument("--short", action="store_true")
    short = parser.parse_args().short
    KEPT.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=KEPT) as folder:
        for figure in asyncio.run(figures(Path(folder), short)):
            print(json.dumps(figure))


if __name__ == "__main__":
    main()
