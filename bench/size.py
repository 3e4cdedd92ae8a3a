"""`python -m bench.size`: what size costs. The last event of many beside an early one, one message of many beside one
of few, room on disk before and after folding, memory after many tasks.

Without a disk's whims (`synchronous=normal`) and without transports: these are ratios of the same work on a task
that is small and on one that is large. Small and large take turns, so that the machine's drift hits both.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import os
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

from bench.agents import echo
from bench.answers import TEXT, send_request
from dragoman.bus.local import LocalBus
from dragoman.core import states
from dragoman.core.identity import NOBODY
from dragoman.core.log import Appended
from dragoman.ports import Store
from dragoman.runtime import Call, open_runtime
from dragoman.stores.sqlite import Sizes, open_store
from dragoman.testing.changes import by_runner, chunk, follow_up, running, status

EVENT = "0123456789" * 5
SMALL = 10


async def grown(store: Store, events: int) -> Appended:
    """A running task of so many events, each an append of its own."""
    claimed = await running(store)
    await _all(store.append(by_runner(claimed, chunk("out", EVENT))) for _ in range(events - 1))
    return claimed


async def talked(store: Store, messages: int) -> Appended:
    """A running task of so many messages."""
    claimed = await running(store)
    await _all(store.append(follow_up(claimed.head.ref, str(number))) for number in range(messages - 1))
    return claimed


async def _all(work: Iterable[Awaitable[Any]]) -> None:
    waiting = list(work)
    for at in range(0, len(waiting), 500):
        await asyncio.gather(*waiting[at : at + 500])


async def beside(times: int, small: Callable[[], Awaitable[Any]], large: Callable[[], Awaitable[Any]]) -> list[float]:
    """Microseconds of both, by turns: the medians."""
    took: tuple[list[float], list[float]] = ([], [])
    for _ in range(times):
        for asked, spent in zip((small, large), took, strict=True):
            begin = time.perf_counter()
            await asked()
            spent.append((time.perf_counter() - begin) * 1e6)
    return [statistics.median(spent) for spent in took]


async def appending(store: Store, large: int, times: int) -> list[float]:
    """One more event of a task that has `SMALL`, and of one that has `large`."""
    tasks = iter([await grown(store, SMALL) for _ in range(times)])
    one = await grown(store, large)
    return await beside(
        times,
        lambda: store.append(by_runner(next(tasks), chunk("out", EVENT))),
        lambda: store.append(by_runner(one, chunk("out", EVENT))),
    )


async def reading(store: Store, large: int, times: int) -> list[float]:
    """GetTask with one message of few, and of many."""
    few, many = await talked(store, SMALL), await talked(store, large)
    return await beside(
        times, lambda: store.read(few.head.ref, history=1), lambda: store.read(many.head.ref, history=1)
    )


async def resuming(store: Store, large: int, times: int) -> list[float]:
    """The last event of few, and of many."""
    few, many = await grown(store, SMALL), await grown(store, large)
    return await beside(
        times, lambda: store.events(few.head.ref, SMALL - 1), lambda: store.events(many.head.ref, large - 1)
    )


async def folding(folder: Path, events: int) -> dict[str, float]:
    """A finished task of many chunks, before and after it is folded and cut: rows, bytes on disk, time of GetTask."""
    now = time.time_ns() // 1_000_000
    store = open_store(folder / "folding.db", clock=lambda: now, synchronous="normal", sizes=Sizes(cut_after=1))
    claimed = await grown(store, events)
    await store.append(by_runner(claimed, status(states.COMPLETED), end=True))
    found: dict[str, float] = {}

    async def look(name: str) -> None:
        found[f"{name} rows"] = await store._read(_rows)
        found[f"{name} bytes"] = await store._read(_bytes)
        found[f"{name} us"], _ = await beside(5, lambda: store.read(claimed.head.ref), _nothing)

    await look("before")
    now += 10_000
    begin = time.perf_counter()
    await store.tidy()
    found["seconds"] = time.perf_counter() - begin
    await look("after")
    await store.close()
    return found


def _rows(connection: Any) -> int:
    return sum(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in ("log", "chunks"))


def _bytes(connection: Any) -> int:
    used = "(SELECT page_count FROM pragma_page_count) - (SELECT freelist_count FROM pragma_freelist_count)"
    return int(connection.execute(f"SELECT ({used}) * page_size FROM pragma_page_size").fetchone()[0])


async def _nothing() -> None:
    return None


async def remembering(folder: Path, first: int, tasks: int) -> dict[str, float]:
    """Memory of a process after `first` finished tasks, and after `tasks`."""
    logging.disable(logging.INFO)
    store = open_store(folder / "memory.db", synchronous="normal")
    async with open_runtime(store, LocalBus(), [echo]) as runtime:
        call = Call(runtime.service.caller("", NOBODY))
        request = send_request(TEXT)

        async def send(count: int) -> None:
            for _ in range(count):
                await runtime.service.send_message(call, request)

        await asyncio.gather(*(send(first // 64) for _ in range(64)))
        early = resident()
        begin = time.perf_counter()
        await asyncio.gather(*(send((tasks - first) // 64) for _ in range(64)))
        spent = time.perf_counter() - begin
        late = resident()
    await store.close()
    return {"early": early, "late": late, "rate": (tasks - first) / spent}


def resident() -> float:
    """MiB of memory this process holds."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


async def measure(short: bool) -> dict[str, Any]:
    large, times = (10_000, 50) if short else (10_000, 500)
    first, tasks = (1_000, 5_000) if short else (5_000, 200_000)
    with tempfile.TemporaryDirectory() as folder:
        memory = await remembering(Path(folder), first, tasks)  # first, while nothing else was held
        store = open_store(Path(folder) / "tasks.db", synchronous="normal")
        found: dict[str, Any] = {"large": large, "first": first, "tasks": tasks}
        found["append"] = await appending(store, large, times)
        found["read"] = await reading(store, large, times)
        found["resume"] = await resuming(store, large, times)
        await store.close()
        found["folding"] = await folding(Path(folder), 20_000 if short else 100_000)
        found["memory"] = memory
    return found


def report(found: dict[str, Any]) -> None:
    """Prints the section."""
    large, fold, memory = f"{found['large']:,}", found["folding"], found["memory"]
    print(f"\n{'size (SQLite, synchronous=normal)':44}{'small':>14}{'large':>14}{'ratio':>10}")
    for name, (small, big) in (
        (f"append event {large} beside event {SMALL}", found["append"]),
        (f"GetTask, 1 message of {large} beside {SMALL}", found["read"]),
        (f"events after {found['large'] - 1:,} beside after {SMALL - 1}", found["resume"]),
    ):
        print(f"{name:44}{f'{small:.0f} us':>14}{f'{big:.0f} us':>14}{big / small:>10.2f}")
    print(f"{'':44}{'before':>14}{'after':>14}{'ratio':>10}")
    for name, unit, per in (("rows", "", 1), ("bytes", " MiB", 2**20), ("us", " ms", 1000)):
        before, after = fold[f"before {name}"] / per, fold[f"after {name}"] / per
        what = {"rows": "rows of a finished task", "bytes": "room on disk", "us": "its GetTask"}[name]
        print(f"{f'folding, {what}':44}{f'{before:,.1f}{unit}':>14}{f'{after:,.1f}{unit}':>14}{after / before:>10.3f}")
    name = f"memory after {found['first']:,} and {found['tasks']:,} tasks"
    early, late = memory["early"], memory["late"]
    print(f"{name:44}{f'{early:.0f} MiB':>14}{f'{late:.0f} MiB':>14}{late / early:>10.2f}", end="")
    print(f"  ({memory['rate']:.0f} tasks/s)")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.size", description=__doc__)
    parser.add_argument("--short", action="store_true")
    report(asyncio.run(measure(parser.parse_args().short)))
