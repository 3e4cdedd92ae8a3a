"""Resident memory of a server: idle, and per finished task, waiting task, idle stream and running turn.

Memory is read before and after creating a number of each, in a new server that has already processed tasks, so that
one-time costs are excluded. Streams subscribe to as many tasks and share five connections.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import uvloop
from tests.load.requests import WireRequest

from bench.load.codecs import CODECS, Codec
from bench.load.connections import Connection, WrongResponse, connect
from bench.resources import resident
from bench.responses import TEXT
from bench.rows import Key
from bench.run import FEW, Run
from bench.sections import MEMORY
from bench.servers.contestants import CONTESTANTS, DRAGOMAN, RunningServer, start_server

CALLERS: Final = 32
CONNECTIONS: Final = 5
STREAMS_PER_CONNECTION: Final = 100
STREAM_BATCH: Final = 100
"""Streams opened together: gRPC by default rejects calls while a thousand calls wait."""

SETTLE: Final = 1.0
SETTLE_SHORT: Final = 0.1
"""Seconds before memory is read, for work that continues after the last response."""

FIRST_EVENT_TIMEOUT: Final = 60.0
PEER_ROUNDS: Final = 1
"""Rounds of peers, whose memory is reported for comparison only."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Numbers of tasks and streams. `before`: tasks that fill the bounded caches, above all SQLite's, first."""

    before: int
    finished: int
    waiting: int
    streams: int
    settle: float = SETTLE
    running: int = 0


FULL: Final = {
    DRAGOMAN: Counts(20_000, 20_000, 10_000, 2_000, running=900),
    "a2a-sdk memory": Counts(500, 3_000, 1_000, 200),
    "a2a-sdk SQLite": Counts(100, 300, 300, 100),
    "fasta2a": Counts(1_000, 10_000, 3_000, 0),  # fasta2a ends the stream of a waiting task
}
SHORT: Final = {DRAGOMAN: Counts(50, 100, 50, 20, SETTLE_SHORT, running=20)}
CASES: Final = ("idle server", "finished task", "waiting task", "idle stream", "total", "running turn")


def measure(run: Run) -> None:
    """Measures a new server in each round."""
    for number in range(min(run.plan.rounds, FEW)):
        for name, counts in (SHORT if run.plan.short else FULL).items():
            if run.plan.takes(name) and (name == DRAGOMAN or number < PEER_ROUNDS):
                _server(run, name, counts, number)


def _server(run: Run, name: str, counts: Counts, number: int) -> None:
    contestant = CONTESTANTS[name]
    binding = contestant.bindings[0]
    try:
        with start_server(contestant) as server:
            results = uvloop.run(_measure_server(server, binding, counts))
    except (RuntimeError, WrongResponse, OSError, TimeoutError) as error:
        run.record_failure(Key(MEMORY, CASES[0], name), number, str(error) or type(error).__name__)
        return
    for case, memory_bytes in results.items():
        run.record(Key(MEMORY, case, name), number, memory_bytes, "bytes", text=f"{memory_bytes / 1000:,.2f} KB")


async def _measure_server(server: RunningServer, binding: str, counts: Counts) -> dict[str, float]:
    """Returns the bytes of each case. Raises WrongResponse."""
    codec = CODECS[binding, server.contestant.implementation]
    connections = [await connect(binding, server.target(binding), codec) for _ in range(CALLERS)]
    results = {"idle server": await _memory(server, counts.settle)}
    await create_tasks(connections, codec, TEXT, counts.before)
    before = await _memory(server, counts.settle)
    await create_tasks(connections, codec, TEXT, counts.finished)
    ended = await _memory(server, counts.settle)
    results["finished task"] = (ended - before) / counts.finished
    tasks = await create_tasks(connections, codec, "ask", counts.waiting)
    waiting = await _memory(server, counts.settle)
    results["waiting task"] = (waiting - ended) / counts.waiting
    if counts.streams:
        lines = await stream_connections(binding, server.target(binding), codec, counts.streams)
        streams = await open_streams(lines, codec, tasks[: counts.streams])
        together = await _memory(server, counts.settle)
        results["idle stream"] = (together - waiting) / counts.streams
        results["total"] = together
        if any(stream.done() for stream in streams):
            raise WrongResponse("a stream ended while its task waits")
        if counts.running:
            await create_tasks(connections, codec, "hold", counts.running, wait=False)
            results["running turn"] = (await _memory(server, counts.settle) - together) / counts.running
        for connection in (*connections, *lines):
            connection.close()
        await asyncio.gather(*streams, return_exceptions=True)
    return results


async def stream_connections(binding: str, target: str, codec: Codec, streams: int) -> list[Connection]:
    """Opens as many connections as `streams` need: servers limit the calls of one over gRPC."""
    count = max(CONNECTIONS, -(-streams // STREAMS_PER_CONNECTION))
    return [await connect(binding, target, codec) for _ in range(count)]


async def _memory(server: RunningServer, settle: float) -> float:
    await asyncio.sleep(settle)
    return float(resident(server.pid))


async def create_tasks(
    connections: list[Connection], codec: Codec, text: str, count: int, *, wait: bool = True
) -> list[str]:
    """Sends `count` messages and returns the task ids."""
    request = codec.send(text, wait=wait)
    left = iter(range(count))
    tasks: list[str] = []

    async def caller(connection: Connection) -> None:
        for _ in left:
            response = await connection.call(request)
            if codec.send_waits and text == TEXT and not codec.is_completed(response):
                raise WrongResponse(response[:500].decode("utf-8", "replace"))
            tasks.append(codec.task_id(response))

    await asyncio.gather(*(caller(connection) for connection in connections))
    return tasks


async def open_streams(connections: list[Connection], codec: Codec, tasks: list[str]) -> list[asyncio.Task[None]]:
    """Opens a stream for each task, in batches, and waits for the first event of each. Raises errors of the streams."""
    streams: list[asyncio.Task[None]] = []
    for batch in batched(tasks, STREAM_BATCH):
        connected = asyncio.Semaphore(0)
        opened: list[asyncio.Task[None]] = []
        for task in batch:
            connection = connections[(len(streams) + len(opened)) % len(connections)]
            opened.append(asyncio.create_task(_stream(connection, codec.subscribe("ask", task), connected)))
        streams += opened
        async with asyncio.timeout(FIRST_EVENT_TIMEOUT):
            for _ in opened:
                await connected.acquire()
        for stream in opened:
            if stream.done():
                await stream
    return streams


async def _stream(connection: Connection, request: WireRequest, connected: asyncio.Semaphore) -> None:
    """Streams a task; releases `connected` at the first event or at the end."""
    first = True

    def on_events(_: int) -> None:
        nonlocal first
        if first:
            first = False
            connected.release()

    try:
        await connection.stream(request, on_events)
    finally:
        on_events(0)


def batched(tasks: list[str], size: int) -> Iterator[list[str]]:
    """Yields batches of `size` tasks."""
    for at in range(0, len(tasks), size):
        yield tasks[at : at + size]
