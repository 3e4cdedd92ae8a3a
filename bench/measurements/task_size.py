"""Cost of task size in the SQLite store: appends, reads, and compaction of small and large tasks.

`python -m bench.measurements.task_size` runs in its own process on the server's core and prints a JSON row per figure.
The store runs without transports and with `synchronous=normal`, which excludes the disk: the results are ratios of the
same work on a small and a large task. Both take turns, so that drift of the machine affects both.
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
from bench.servers.contestants import BENCH_FOLDER, DRAGOMAN, SERVER_CORE, pin
from dragoman.core.task import states
from dragoman.core.task.log import Appended
from dragoman.ports import Store
from dragoman.stores.sqlite import StorageOptions, open_store
from dragoman.testing.fixtures import by_runner, chunk, follow_up, running, status
from tools.environments import ROOT

EVENT: Final = "0123456789" * 5
SIZES: Final = (10, 100, 1_000, 10_000)
SMALL, LARGE = SIZES[0], SIZES[-1]
COMPACTED_EVENTS: Final = 100_000
Figure = tuple[str, float, str]
"""Case, value, unit."""

Calls = dict[int, Callable[[], Awaitable[Any]]]


def append_case(events: int) -> str:
    """Returns the case of an append to a task with `events` events."""
    return f"one more event after {events:,}"


async def task_with_events(store: Store, events: int) -> Appended:
    """Creates a running task with `events` events, each a separate append."""
    claimed = await running(store)
    await _all(store.append(by_runner(claimed, chunk("out", EVENT))) for _ in range(events - 1))
    return claimed


async def task_with_messages(store: Store, messages: int) -> Appended:
    """Creates a running task with `messages` messages."""
    claimed = await running(store)
    await _all(store.append(follow_up(claimed.record.ref, str(number))) for number in range(messages - 1))
    return claimed


async def _all(work: Iterable[Awaitable[Any]]) -> None:
    waiting = list(work)
    for at in range(0, len(waiting), 500):
        await asyncio.gather(*waiting[at : at + 500])


async def alternate(times: int, calls: Calls) -> dict[int, float]:
    """Measures the operations in turn, and returns the median microseconds of each."""
    durations: dict[int, list[float]] = {size: [] for size in calls}
    for _ in range(times):
        for size, call in calls.items():
            begin = time.perf_counter()
            await call()
            durations[size].append((time.perf_counter() - begin) * 1e6)
    return {size: statistics.median(spent) for size, spent in durations.items()}


async def measure_appends(store: Store, sizes: Iterable[int], times: int) -> dict[int, float]:
    """Measures appends to tasks of each size. Enough tasks per size are used that none grows by more than a tenth."""
    calls: Calls = {}
    for events in sizes:
        tasks = itertools.cycle([await task_with_events(store, events) for _ in range(max(1, times * 10 // events))])
        calls[events] = lambda tasks=tasks: store.append(by_runner(next(tasks), chunk("out", EVENT)))  # type: ignore[misc]  # a default binds it
    return await alternate(times, calls)


async def measure_reads(store: Store, large: int, times: int) -> dict[int, float]:
    """Measures GetTask with one message, for a short and a long history."""
    few, many = await task_with_messages(store, SMALL), await task_with_messages(store, large)
    return await alternate(
        times,
        {SMALL: lambda: store.read(few.record.ref, history=1), large: lambda: store.read(many.record.ref, history=1)},
    )


async def measure_resumes(store: Store, large: int, times: int) -> dict[int, float]:
    """Measures reading the last event of a short and a long log."""
    few, many = await task_with_events(store, SMALL), await task_with_events(store, large)
    return await alternate(
        times,
        {
            SMALL: lambda: store.events(few.record.ref, SMALL - 1),
            large: lambda: store.events(many.record.ref, large - 1),
        },
    )


async def measure_compaction(folder: Path, events: int) -> dict[str, float]:
    """Measures a finished task before and after compaction and truncation: rows, bytes on disk, latency of GetTask."""
    now = time.time_ns() // 1_000_000
    store = open_store(
        folder / "compaction.db", clock=lambda: now, synchronous="normal", sizes=StorageOptions(truncate_log_after=1)
    )
    claimed = await task_with_events(store, events)
    await store.append(by_runner(claimed, status(states.COMPLETED), end=True))
    results: dict[str, float] = {}

    async def record(name: str) -> None:
        results[f"rows, {name}"] = await store._read(_rows)
        results[f"bytes, {name}"] = await store._read(_bytes)
        results[f"us, {name}"] = (await alternate(5, {0: lambda: store.read(claimed.record.ref)}))[0]

    await record("before")
    now += 10_000
    await store.compact()
    await record("after")
    await store.close()
    return results


def _rows(connection: Any) -> int:
    return sum(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in ("log", "chunks"))


def _bytes(connection: Any) -> int:
    used = "(SELECT page_count FROM pragma_page_count) - (SELECT freelist_count FROM pragma_freelist_count)"
    return int(connection.execute(f"SELECT ({used}) * page_size FROM pragma_page_size").fetchone()[0])


async def figures(folder: Path, short: bool) -> list[Figure]:
    """Returns all figures of one round."""
    sizes, times = (SIZES[:-1], 50) if short else (SIZES, 500)
    store = open_store(folder / "tasks.db", synchronous="normal")
    results: list[Figure] = [
        (append_case(size), us, "us") for size, us in (await measure_appends(store, sizes, times)).items()
    ]
    results += [
        (f"GetTask, 1 message of {size:,}", us, "us")
        for size, us in (await measure_reads(store, sizes[-1], times)).items()
    ]
    results += [
        (f"events after {size - 1:,}", us, "us")
        for size, us in (await measure_resumes(store, sizes[-1], times)).items()
    ]
    await store.close()
    units = {"rows": "rows", "bytes": "bytes", "us": "us"}
    compaction = await measure_compaction(folder, COMPACTED_EVENTS // 50 if short else COMPACTED_EVENTS)
    return results + [
        (f"compaction: {case}", value, units[case.partition(",")[0]]) for case, value in compaction.items()
    ]


def measure(run: Run) -> None:
    """Runs the rounds, each in its own process on the server's core."""
    for number in range(min(run.plan.rounds, FEW)):
        command = [sys.executable, "-m", "bench.measurements.task_size", *(["--short"] if run.plan.short else [])]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            pin(process.pid, SERVER_CORE)
            text, errors = process.communicate()
        if process.returncode:
            run.record_failure(Key(SIZE, "all", DRAGOMAN), number, errors.strip().splitlines()[-1])
            return
        for case, value, unit in _figures(text):
            run.record(Key(SIZE, case, DRAGOMAN), number, value, unit, text=f"{value:,.0f} {unit}")


def _figures(text: str) -> Iterator[Figure]:
    for line in text.splitlines():
        case, value, unit = json.loads(line)
        yield case, value, unit


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.measurements.task_size", description=__doc__)
    parser.add_argument("--short", action="store_true")
    short = parser.parse_args().short
    BENCH_FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=BENCH_FOLDER) as folder:
        for figure in asyncio.run(figures(Path(folder), short)):
            print(json.dumps(figure))


if __name__ == "__main__":
    main()
