"""Load process: a number of callers, each of which waits for its response before its next call.

Reads jobs from stdin, one JSON object per line, and prints a result for each. Every response is checked; a wrong
response fails the job. The clock runs only under steady load, so that neither connecting nor the end of the last stream
is included.
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
from tests.load.requests import WireRequest

from bench.load import pages, subscribers, tools
from bench.load.codecs import CODECS, Codec
from bench.load.connections import Connection, WrongResponse, connect
from bench.load.jobs import Job, LoadResult
from bench.resources import cpu_by_thread
from bench.responses import EVENTS, SENTENCES, TEXT

WARM_UP_SHARE: Final = 0.3
"""Duration of the warm-up, as a share of the measured seconds."""

MIN_COUNT: Final = 2
"""Minimum responses or events per caller for a meaningful rate."""

MIN_TOOL_COUNT: Final = 3
"""Minimum responses per caller for wrk and h2load, which stop by the clock."""

MAX_EXTRA_SECONDS: Final = 5.0
"""Additional seconds for a slow server to reach the minimum."""

STREAM_END_TIMEOUT: Final = 30.0
"""Seconds in which streams have to end after the clock has stopped."""

Call = Callable[[], Awaitable[None]]


@dataclass
class Meter:
    """Counts responses or events, and measures latencies, between `begin` and `end`."""

    pid: int
    count: int = 0
    correct: int = 0
    size: int = 0
    durations: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    running: bool = True
    _began: float = 0.0
    _load_cpu: float = 0.0
    _threads: dict[str, float] = field(default_factory=dict)

    def begin(self) -> None:
        self.count = 0
        self.durations.clear()
        self._began, self._load_cpu = time.perf_counter(), time.process_time()
        self._threads = cpu_by_thread(self.pid)

    def end(self, kind: str) -> LoadResult:
        seconds, load = time.perf_counter() - self._began, time.process_time() - self._load_cpu
        now = cpu_by_thread(self.pid)
        threads = {thread: total - self._threads.get(thread, 0.0) for thread, total in now.items()}
        self.running = False
        p50, p99 = percentiles(self.durations)
        return LoadResult(
            kind=kind, count=self.count, seconds=seconds, p50=p50, p99=p99, server_cpu=sum(threads.values()),
            load_cpu=load, tool="own client", size=self.size / max(self.correct, 1), threads=threads,
        )  # fmt: skip


def percentiles(durations: list[float]) -> tuple[float, float]:
    """Returns the 50th and the 99th percentile; 0 without values."""
    if not durations:
        return 0.0, 0.0
    ordered = sorted(durations)
    return ordered[len(ordered) // 2], ordered[min(int(len(ordered) * 0.99), len(ordered) - 1)]


async def drive(calls: list[Call], meter: Meter, kind: str, warm_up: float, seconds: float) -> LoadResult:
    """Runs all callers concurrently for `seconds`; a slow server gets more time. Raises WrongResponse."""

    async def caller(call: Call) -> None:
        while meter.running:
            start = time.perf_counter()
            try:
                await call()
            except (WrongResponse, OSError) as error:
                meter.errors.append(str(error))
                return
            meter.durations.append((time.perf_counter() - start) * 1000)

    callers = [asyncio.create_task(caller(call)) for call in calls]
    await asyncio.sleep(warm_up)
    meter.begin()
    await asyncio.sleep(seconds)
    latest = time.perf_counter() + MAX_EXTRA_SECONDS
    while (
        meter.count < MIN_COUNT * len(calls)
        and time.perf_counter() < latest
        and not any(map(asyncio.Task.done, callers))
    ):
        await asyncio.sleep(seconds)
    result = meter.end(kind)
    done, late = await asyncio.wait(callers, timeout=STREAM_END_TIMEOUT)
    meter.errors += [repr(error) for task in done if (error := task.exception()) is not None]
    if late:
        meter.errors.append(f"{len(late)} of {len(calls)} callers received no response in {STREAM_END_TIMEOUT:.0f} s")
        for task in late:
            task.cancel()
    if meter.errors:
        raise WrongResponse(f"{len(meter.errors)} wrong responses, such as: {meter.errors[0]}")
    return result


def send_call(connection: Connection, codec: Codec, meter: Meter) -> Call:
    """Returns a call that sends a message and waits for the end of its task, by polls if the send does not wait."""
    request = codec.send(TEXT)

    async def call() -> None:
        response = await connection.call(request)
        if not codec.send_waits:
            poll = codec.get(TEXT, codec.task_id(response))
            while not codec.is_completed(response):
                response = await connection.call(poll)
        if not codec.is_completed(response):
            raise WrongResponse(response[:500].decode("utf-8", "replace"))
        meter.count += 1
        meter.correct += 1
        meter.size += len(response)

    return call


def stream_call(connection: Connection, request: WireRequest, meter: Meter) -> Call:
    """Returns a call that makes a streaming send of EVENTS chunks, counted as they arrive."""

    async def call() -> None:
        received = 0

        def on_events(count: int) -> None:
            nonlocal received
            received += count
            meter.count += count

        await connection.stream(request, on_events)
        if received != EVENTS:
            raise WrongResponse(f"{received} chunks instead of {EVENTS}")

    return call


async def create_history_task(connection: Connection, codec: Codec) -> str:
    """Creates a task with a long history, and returns its id."""
    text = f"talk {SENTENCES}"
    response = await connection.call(codec.send(text))
    task = codec.task_id(response)
    if not codec.send_waits:
        while b"completed" not in await connection.call(codec.get(text, task)):
            await asyncio.sleep(0.01)
    return task


def get_call(connection: Connection, codec: Codec, meter: Meter, task: str, expected: bytes) -> Call:
    """Returns a call of GetTask for an ended task, whose response must equal `expected`."""
    request = codec.get(f"talk {SENTENCES}", task)

    async def call() -> None:
        response = await connection.call(request)
        if response != expected:
            raise WrongResponse(response[:500].decode("utf-8", "replace"))
        meter.count += 1
        meter.correct += 1
        meter.size += len(response)

    return call


async def measure_unary(job: Job) -> LoadResult:
    """Measures sends or reads, by wrk or h2load if possible, after a warm-up by our own, checking client."""
    codec, meter = CODECS[job.binding, job.implementation], Meter(job.pid)
    connections = [await connect(job.binding, job.target, codec) for _ in range(job.callers)]
    if job.kind == "send":
        request, expected = codec.send(TEXT), None
        calls = [send_call(connection, codec, meter) for connection in connections]
    else:
        task = await create_history_task(connections[0], codec)
        request = codec.get(f"talk {SENTENCES}", task)
        expected = await connections[0].call(request)
        if (number := max(expected.count(TEXT.encode()), 0)) < SENTENCES:
            raise WrongResponse(f"a history with {number} sentences instead of {SENTENCES}")
        calls = [get_call(connection, codec, meter, task, expected) for connection in connections]
    tool = tools.find(job.binding) if job.tools and (codec.send_waits or job.kind == "get") else None
    warm_up = job.seconds * WARM_UP_SHARE
    own_result = await drive(calls, meter, job.kind, warm_up, warm_up if tool else job.seconds)
    if tool and own_result.count / own_result.seconds * job.seconds < MIN_TOOL_COUNT * job.callers:
        tool, meter.running = None, True
        own_result = await drive(calls, meter, job.kind, 0.0, job.seconds)
    own_result = replace(own_result, head_size=connections[0].head_size)
    for connection in connections:
        connection.close()
    if tool is None:
        return own_result
    return await asyncio.to_thread(tools.run, tool, job, request, expected, own_result)


async def measure_streams(job: Job) -> LoadResult:
    """Measures streams by our client: wrk and h2load do not see the events of a stream."""
    codec, meter = CODECS[job.binding, job.implementation], Meter(job.pid)
    connections = [await connect(job.binding, job.target, codec) for _ in range(job.callers)]
    request = codec.stream(f"chunks {EVENTS}")
    calls = [stream_call(connection, request, meter) for connection in connections]
    return await drive(calls, meter, job.kind, job.seconds * WARM_UP_SHARE, job.seconds)


KINDS: Final[dict[str, Callable[[Job], Awaitable[Any]]]] = {
    "send": measure_unary,
    "get": measure_unary,
    "stream": measure_streams,
    "subscribers": subscribers.measure,
    "list": pages.measure,
}


async def run_job(line: str) -> dict[str, Any]:
    """Returns the result of one job, or its error as `wrong`."""
    job = Job(**json.loads(line))
    try:
        result = asdict(await KINDS[job.kind](job))
    except (WrongResponse, OSError, TimeoutError) as error:
        return {"wrong": str(error) or type(error).__name__}
    except Exception as error:  # a response that cannot be parsed must not prevent the next job
        return {"wrong": f"{error!r}, at {traceback.extract_tb(error.__traceback__)[-1]}"}
    return result if result.get("count", 1) else {"wrong": "no response within the time"}


async def main() -> None:
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        print(json.dumps(await run_job(line)), flush=True)


if __name__ == "__main__":
    uvloop.run(main())
