"""Load from a process of its own: so many callers, each waiting for its answer before it asks again.

Reads jobs from its input, JSON and one a line, and prints a result for each. Every answer is looked at; anything but
what was asked for is an error, and told. The clock runs between two moments of steady load, so neither connecting nor
the end of the last stream is in the figures.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

import uvloop

from bench import listing, subscribers, tools
from bench.answers import EVENTS, SENTENCES, TEXT
from bench.asking import FORMS, Form, Wire
from bench.job import Job, Measured
from bench.lines import Line, Wrong, connect
from bench.spent import cpu_by_thread

WARM_UP: Final = 0.3
"""Of the seconds measured, before them."""

ENOUGH: Final = 2
"""Answers or events for each caller, below which a rate says little."""

SLOW: Final = 3
"""Answers for each caller in the time, below which wrk and h2load, which end by the clock, would see too few."""

LONGEST: Final = 5.0
"""Seconds that a server may have for them."""

WAIT_TIMEOUT: Final = 30.0
"""Seconds that streams may take to end after the clock has stopped."""

Ask = Callable[[], Awaitable[None]]


@dataclass
class Meter:
    """Counts answers or events, and how long each answer took, between two moments."""

    pid: int
    count: int = 0
    right: int = 0
    size: int = 0
    took: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    running: bool = True
    _began: float = 0.0
    _load: float = 0.0
    _threads: dict[str, float] = field(default_factory=dict)

    def begin(self) -> None:
        self.count = 0
        self.took.clear()
        self._began, self._load = time.perf_counter(), time.process_time()
        self._threads = cpu_by_thread(self.pid)

    def end(self, kind: str) -> Measured:
        seconds, load = time.perf_counter() - self._began, time.process_time() - self._load
        now = cpu_by_thread(self.pid)
        threads = {thread: spent - self._threads.get(thread, 0.0) for thread, spent in now.items()}
        self.running = False
        p50, p99 = percentiles(self.took)
        return Measured(
            kind=kind, count=self.count, seconds=seconds, p50=p50, p99=p99, server_cpu=sum(threads.values()),
            load_cpu=load, tool="own client", size=self.size / max(self.right, 1), threads=threads,
        )  # fmt: skip


def percentiles(took: list[float]) -> tuple[float, float]:
    """The median and the 99th of a hundred, in the unit given; 0 of nothing."""
    if not took:
        return 0.0, 0.0
    ordered = sorted(took)
    return ordered[len(ordered) // 2], ordered[min(int(len(ordered) * 0.99), len(ordered) - 1)]


async def drive(asks: list[Ask], meter: Meter, kind: str, warm_up: float, seconds: float) -> Measured:
    """All callers at once, until the time is over, and enough has come: a slow server gets more time."""

    async def caller(ask: Ask) -> None:
        while meter.running:
            start = time.perf_counter()
            try:
                await ask()
            except (Wrong, OSError) as error:
                meter.wrong.append(str(error))
                return
            meter.took.append((time.perf_counter() - start) * 1000)

    callers = [asyncio.create_task(caller(ask)) for ask in asks]
    await asyncio.sleep(warm_up)
    meter.begin()
    await asyncio.sleep(seconds)
    latest = time.perf_counter() + LONGEST
    while (
        meter.count < ENOUGH * len(asks) and time.perf_counter() < latest and not any(map(asyncio.Task.done, callers))
    ):
        await asyncio.sleep(seconds)
    measured = meter.end(kind)
    done, late = await asyncio.wait(callers, timeout=WAIT_TIMEOUT)
    meter.wrong += [repr(error) for task in done if (error := task.exception()) is not None]
    if late:
        meter.wrong.append(f"{len(late)} of {len(asks)} callers got no answer in {WAIT_TIMEOUT:.0f} s")
        for task in late:
            task.cancel()
    if meter.wrong:
        raise Wrong(f"{len(meter.wrong)} wrong answers, such as: {meter.wrong[0]}")
    return measured


def sending(line: Line, form: Form, meter: Meter) -> Ask:
    """A send, until its task has ended. Where a send does not wait for that, the task is polled."""
    wire = form.send(TEXT)

    async def ask() -> None:
        answer = await line.ask(wire)
        if not form.waits:
            wanted = form.get(TEXT, form.task(answer))
            while not form.completed(answer):
                answer = await line.ask(wanted)
        if not form.completed(answer):
            raise Wrong(answer[:500].decode("utf-8", "replace"))
        meter.count += 1
        meter.right += 1
        meter.size += len(answer)

    return ask


def streaming(line: Line, wire: Wire, meter: Meter) -> Ask:
    """A streaming send of EVENTS chunks, which count as they arrive."""

    async def ask() -> None:
        got = 0

        def arrived(count: int) -> None:
            nonlocal got
            got += count
            meter.count += count

        await line.follow(wire, arrived)
        if got != EVENTS:
            raise Wrong(f"{got} chunks instead of {EVENTS}")

    return ask


async def finished_talk(line: Line, form: Form) -> str:
    """The id of a task with a long history."""
    text = f"talk {SENTENCES}"
    answer = await line.ask(form.send(text))
    task = form.task(answer)
    if not form.waits:
        while b"completed" not in await line.ask(form.get(text, task)):
            await asyncio.sleep(0.01)
    return task


def getting(line: Line, form: Form, meter: Meter, task: str, right: bytes) -> Ask:
    """GetTask of a task that has ended: the answer is the same to the byte."""
    wire = form.get(f"talk {SENTENCES}", task)

    async def ask() -> None:
        answer = await line.ask(wire)
        if answer != right:
            raise Wrong(answer[:500].decode("utf-8", "replace"))
        meter.count += 1
        meter.right += 1
        meter.size += len(answer)

    return ask


async def unary(job: Job) -> Measured:
    """Sends or reads: by wrk or h2load where they are there and can ask so, after a warm-up that checks all answers."""
    form, meter = FORMS[job.binding, job.whose], Meter(job.pid)
    lines = [await connect(job.binding, job.target, form) for _ in range(job.callers)]
    if job.kind == "send":
        wire, right = form.send(TEXT), None
        asks = [sending(line, form, meter) for line in lines]
    else:
        task = await finished_talk(lines[0], form)
        wire = form.get(f"talk {SENTENCES}", task)
        right = await lines[0].ask(wire)
        if (number := max(right.count(TEXT.encode()), 0)) < SENTENCES:
            raise Wrong(f"a history with {number} sentences instead of {SENTENCES}")
        asks = [getting(line, form, meter, task, right) for line in lines]
    tool = tools.find(job.binding) if job.tools and (form.waits or job.kind == "get") else None
    warm_up = job.seconds * WARM_UP
    own = await drive(asks, meter, job.kind, warm_up, warm_up if tool else job.seconds)
    if tool and own.count / own.seconds * job.seconds < SLOW * job.callers:
        tool, meter.running = None, True
        own = await drive(asks, meter, job.kind, 0.0, job.seconds)
    own = replace(own, heads=lines[0].head_size)
    for line in lines:
        line.close()
    if tool is None:
        return own
    return await asyncio.to_thread(tools.run, tool, job, wire, right, own)


async def streams(job: Job) -> Measured:
    """Streams, by our own client: wrk and h2load see a stream when it has ended, and not what is in it."""
    form, meter = FORMS[job.binding, job.whose], Meter(job.pid)
    lines = [await connect(job.binding, job.target, form) for _ in range(job.callers)]
    wire = form.stream(f"chunks {EVENTS}")
    asks = [streaming(line, wire, meter) for line in lines]
    return await drive(asks, meter, job.kind, job.seconds * WARM_UP, job.seconds)


KINDS: Final[dict[str, Callable[[Job], Awaitable[Any]]]] = {
    "send": unary,
    "get": unary,
    "stream": streams,
    "subscribers": subscribers.measure,
    "list": listing.measure,
}


async def answered(line: str) -> dict[str, Any]:
    """The result of one job, or what was wrong."""
    job = Job(**json.loads(line))
    try:
        found = asdict(await KINDS[job.kind](job))
    except (Wrong, OSError, TimeoutError) as error:
        return {"wrong": str(error) or type(error).__name__}
    except Exception as error:  # an answer that could not even be read; the next job shall be done all the same
        return {"wrong": f"{error!r}, at {traceback.extract_tb(error.__traceback__)[-1]}"}
    return found if found.get("count", 1) else {"wrong": "nothing was answered in the time"}


async def main() -> None:
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        print(json.dumps(await answered(line)), flush=True)


if __name__ == "__main__":
    uvloop.run(main())
