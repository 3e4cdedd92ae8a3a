"""Load kind `subscribers`: events per second delivered to all subscribers of one task.

The agent starts its events once all subscribers are connected. The clock runs from the first event received by any
subscriber to the last one; each subscriber has to receive all events.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from bench.load.codecs import CODECS, Codec
from bench.load.connections import Connection, WrongResponse, connect
from bench.load.jobs import Job, LoadResult
from bench.resources import cpu
from bench.responses import ID, TICKS

SETTLE_SECONDS: Final = 0.2
"""Seconds between the last subscription and the first event, in which the server may finish the subscription."""

SUBSCRIBERS_TIMEOUT: Final = 60.0


async def measure(job: Job) -> LoadResult:
    """Measures one task. Raises WrongResponse if a subscriber does not receive each event once."""
    codec = CODECS[job.binding, job.implementation]
    connections = [await connect(job.binding, job.target, codec) for _ in range(job.callers + 1)]
    task = await _create_task(job, codec, connections[0])
    group = SubscriberGroup(job.callers)
    request = codec.subscribe(_command(job), task)
    streams = asyncio.gather(
        *(connection.stream(request, group.listener(number)) for number, connection in enumerate(connections[1:]))
    )
    try:
        await group.wait_connected(streams)
        await asyncio.sleep(SETTLE_SECONDS)
        server, load = cpu(job.pid), time.process_time()
        Path(job.start_file).touch()
        await asyncio.wait_for(streams, SUBSCRIBERS_TIMEOUT)
        server, load = cpu(job.pid) - server, time.process_time() - load
    except TimeoutError:
        received = sum(group.received)
        raise WrongResponse(
            f"{job.callers} subscribers received {received} events in {SUBSCRIBERS_TIMEOUT:.0f} s"
        ) from None
    finally:
        Path(job.start_file).unlink(missing_ok=True)
        for connection in connections:
            connection.close()
    if set(group.received) != {TICKS}:
        raise WrongResponse(f"between {min(group.received)} and {max(group.received)} events instead of {TICKS}")
    return LoadResult(
        kind=job.kind, count=sum(group.received), seconds=group.last_event - group.first_event, p50=0.0, p99=0.0,
        server_cpu=server, load_cpu=load, tool="own client",
    )  # fmt: skip


class SubscriberGroup:
    """Counts the events of each subscriber, and records the times of the first and the last event."""

    def __init__(self, size: int) -> None:
        self.received = [0] * size
        self.first_event = 0.0
        self.last_event = 0.0
        self._missing = set(range(size))
        self._connected = asyncio.Event()

    async def wait_connected(self, streams: asyncio.Future[Any]) -> None:
        """Waits for the first response to every subscriber. Raises TimeoutError, and errors of `streams`."""
        connected = asyncio.ensure_future(self._connected.wait())
        await asyncio.wait((connected, streams), timeout=SUBSCRIBERS_TIMEOUT, return_when=asyncio.FIRST_COMPLETED)
        if streams.done():
            await streams
        if not connected.done():
            raise TimeoutError

    def listener(self, number: int) -> Callable[[int], None]:
        """Returns the callback for the events of one subscriber."""

        def on_events(count: int) -> None:
            if self._missing:
                self._missing.discard(number)
                if not self._missing:
                    self._connected.set()
            if count:
                self.last_event = time.perf_counter()
                self.first_event = self.first_event or self.last_event
                self.received[number] += count

        return on_events


async def _create_task(job: Job, codec: Codec, connection: Connection) -> str:
    if job.implementation == "bare":
        return ID
    return codec.task_id(await connection.call(codec.send(_command(job), wait=False)))


def _command(job: Job) -> str:
    return f"ticks {TICKS} {job.start_file}"
