"""Memory of a server: at rest, for each finished task, each waiting task, each stream that nothing comes on, and each
turn that runs.

Resident memory before and after so many of each, in a fresh server that has done something already: what it takes
once is not counted as what it takes each time. Streams follow as many tasks, and share five connections.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import uvloop

from bench.answers import TEXT
from bench.asking import FORMS, Form, Wire
from bench.lines import Line, Wrong, connect
from bench.rows import Key
from bench.run import FEW, Run
from bench.sections import MEMORY
from bench.servers import CONTESTANTS, OURS, Running, started
from bench.spent import resident

CALLERS: Final = 32
CONNECTIONS: Final = 5
AT_ONCE: Final = 100
"""Streams that are begun together: where it was told nothing, gRPC refuses what comes while a thousand calls wait."""

SETTLE: Final = 1.0
SETTLE_SHORT: Final = 0.1
"""Seconds before memory is read, so that what runs after the last answer is done."""

WAIT_TIMEOUT: Final = 60.0
PEER_ROUNDS: Final = 1
"""A peer's memory is reported beside ours; once is enough for that."""


@dataclass(frozen=True, slots=True)
class Counts:
    """How many of each. `before` is what fills caches that have a limit, SQLite's above all, before anything counts."""

    before: int
    finished: int
    waiting: int
    streams: int
    settle: float = SETTLE
    running: int = 0


FULL: Final = {
    OURS: Counts(20_000, 20_000, 10_000, 2_000, running=900),
    "a2a-sdk memory": Counts(500, 3_000, 1_000, 200),
    "a2a-sdk SQLite": Counts(100, 300, 300, 100),
    "fasta2a": Counts(1_000, 10_000, 3_000, 0),  # it ends the stream of a task that waits
}
SHORT: Final = {OURS: Counts(50, 100, 50, 20, SETTLE_SHORT, running=20)}
CASES: Final = ("idle server", "finished task", "waiting task", "idle stream", "all of it", "running turn")


def measure(run: Run) -> None:
    """A fresh server for each round."""
    for number in range(min(run.plan.rounds, FEW)):
        for name, counts in (SHORT if run.plan.short else FULL).items():
            if run.plan.takes(name) and (name == OURS or number < PEER_ROUNDS):
                _server(run, name, counts, number)


def _server(run: Run, name: str, counts: Counts, number: int) -> None:
    contestant = CONTESTANTS[name]
    binding = contestant.bindings[0]
    try:
        with started(contestant) as server:
            found = uvloop.run(_held_by(server, binding, counts))
    except (RuntimeError, Wrong, OSError, TimeoutError) as error:
        run.failed(Key(MEMORY, CASES[0], name), number, str(error) or type(error).__name__)
        return
    for case, held in found.items():
        run.figure(Key(MEMORY, case, name), number, held, "bytes", text=f"{held / 1000:,.2f} KB")


async def _held_by(server: Running, binding: str, counts: Counts) -> dict[str, float]:
    """Bytes of each case. Raises Wrong for an answer that is not right."""
    form = FORMS[binding, server.contestant.whose]
    lines = [await connect(binding, server.target(binding), form) for _ in range(CALLERS)]
    found = {"idle server": await _held(server, counts.settle)}
    await _many(lines, form, TEXT, counts.before)
    before = await _held(server, counts.settle)
    await _many(lines, form, TEXT, counts.finished)
    ended = await _held(server, counts.settle)
    found["finished task"] = (ended - before) / counts.finished
    tasks = await _many(lines, form, "ask", counts.waiting)
    waiting = await _held(server, counts.settle)
    found["waiting task"] = (waiting - ended) / counts.waiting
    if counts.streams:
        following = await _follow(lines, form, tasks[: counts.streams])
        together = await _held(server, counts.settle)
        found["idle stream"] = (together - waiting) / counts.streams
        found["all of it"] = together
        if any(stream.done() for stream in following):
            raise Wrong("a stream ended though its task waits")
        if counts.running:
            await _many(lines, form, "hold", counts.running, wait=False)
            found["running turn"] = (await _held(server, counts.settle) - together) / counts.running
        for line in lines:
            line.close()
        await asyncio.gather(*following, return_exceptions=True)
    return found


async def _held(server: Running, settle: float) -> float:
    await asyncio.sleep(settle)
    return float(resident(server.pid))


async def _many(lines: list[Line], form: Form, text: str, count: int, *, wait: bool = True) -> list[str]:
    """Sends so many and gives their tasks' ids."""
    wire = form.send(text, wait=wait)
    left = iter(range(count))
    tasks: list[str] = []

    async def caller(line: Line) -> None:
        for _ in left:
            answer = await line.ask(wire)
            if form.waits and text == TEXT and not form.completed(answer):
                raise Wrong(answer[:500].decode("utf-8", "replace"))
            tasks.append(form.task(answer))

    await asyncio.gather(*(caller(line) for line in lines))
    return tasks


async def _follow(lines: list[Line], form: Form, tasks: list[str]) -> list[asyncio.Task[None]]:
    """A stream for each of these tasks, some at a time. Returns when something came on each. Raises what one does."""
    following: list[asyncio.Task[None]] = []
    for some in batched(tasks, AT_ONCE):
        here = asyncio.Semaphore(0)
        begun: list[asyncio.Task[None]] = []
        for task in some:
            line = lines[(len(following) + len(begun)) % CONNECTIONS]
            begun.append(asyncio.create_task(_one(line, form.subscribe("ask", task), here)))
        following += begun
        async with asyncio.timeout(WAIT_TIMEOUT):
            for _ in begun:
                await here.acquire()
        for stream in begun:
            if stream.done():
                await stream
    return following


async def _one(line: Line, wire: Wire, here: asyncio.Semaphore) -> None:
    """Follows, and says that it does when something has come; or that it is over."""
    first = True

    def arrived(_: int) -> None:
        nonlocal first
        if first:
            first = False
            here.release()

    try:
        await line.follow(wire, arrived)
    finally:
        arrived(0)


def batched(tasks: list[str], size: int) -> Iterator[list[str]]:
    """So many at a time."""
    for at in range(0, len(tasks), size):
        yield tasks[at : at + size]
