"""`python -m bench.jetstream`: what JetStream would give jobs, and what it would cost.

A job tells one worker of a task that waits. Today it is a plain message to a queue group: the claim in the store is the
acknowledgement, and what nobody heard of is found by the look into the store every two seconds. Over JetStream it
would be a message of a work queue on disk, published with an answer, acknowledged after the claim, and delivered again
when nobody did that. Both are measured here over one NATS, with a worker whose claim is a pause of the loop; the claim
itself costs the same in both. NATS has the first core, this process the second.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import quantiles
from typing import Final

from nats.aio.msg import Msg
from nats.js.api import AckPolicy, ConsumerConfig, RetentionPolicy, StorageType, StreamConfig
from tests.nats import NatsServer

import nats
from bench.servers import LOAD_CORE, SERVER_CORE, pin
from bench.spent import cpu

PACE: Final = 0.005
"""Seconds between two jobs, where one waits for the next."""
JOB: Final = b"x" * 60
AGAIN: Final = 2.0
"""Seconds after which JetStream delivers again what was not acknowledged: as long as the store is not looked at."""

Offer = Callable[[bytes], Awaitable[object]]


class Worker:
    """Notes when jobs came."""

    def __init__(self, *, acknowledges: bool) -> None:
        self.came: dict[bytes, int] = {}
        self.all = asyncio.Event()
        self.wanted = 0
        self._acknowledges = acknowledges

    async def take(self, message: Msg) -> None:
        self.came[message.data[:8]] = time.monotonic_ns()
        await asyncio.sleep(0)  # the claim
        if self._acknowledges:
            await message.ack()
        if len(self.came) == self.wanted:
            self.all.set()


async def paced(offer: Offer, worker: Worker, jobs: int) -> list[float]:
    """Milliseconds from each offer until a worker had it, one after the other."""
    sent: dict[bytes, int] = {}
    worker.wanted = len(worker.came) + jobs
    worker.all.clear()
    for _ in range(jobs):
        name = os.urandom(8)
        sent[name] = time.monotonic_ns()
        await offer(name + JOB)
        await asyncio.sleep(PACE)
    async with asyncio.timeout(30):
        await worker.all.wait()
    return [(worker.came[name] - at) / 1e6 for name, at in sent.items()]


async def burst(offer: Offer, worker: Worker, jobs: int, at_once: int = 64) -> float:
    """Jobs a second, with so many offers under way."""
    worker.wanted = len(worker.came) + jobs
    worker.all.clear()
    left = iter(range(jobs))

    async def some() -> None:
        for _ in left:
            await offer(os.urandom(8) + JOB)

    began = time.perf_counter()
    await asyncio.gather(*(some() for _ in range(at_once)))
    async with asyncio.timeout(60):
        await worker.all.wait()
    return jobs / (time.perf_counter() - began)


async def compare(server: NatsServer, jobs: int, rounds: int) -> None:
    pid = server.pid
    client = await nats.connect(server.url())
    stream = client.jetstream()
    how = StreamConfig(
        name="jobs", subjects=["js.jobs"], retention=RetentionPolicy.WORK_QUEUE, storage=StorageType.FILE
    )
    await stream.add_stream(how)
    plain, kept = Worker(acknowledges=False), Worker(acknowledges=True)
    await client.subscribe("jobs", queue="workers", cb=plain.take)
    consumer = ConsumerConfig(ack_policy=AckPolicy.EXPLICIT, ack_wait=AGAIN, max_ack_pending=10_000)
    await stream.subscribe("js.jobs", "workers", kept.take, durable="workers", manual_ack=True, config=consumer)
    ways: dict[str, tuple[Offer, Worker]] = {
        "core NATS": (lambda job: client.publish("jobs", job), plain),
        "JetStream": (lambda job: stream.publish("js.jobs", job), kept),
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    rates: dict[str, list[float]] = {name: [] for name in ways}
    spent: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, (offer, worker) in ways.items():
            times[name] += await paced(offer, worker, jobs // 10)
            before = cpu(pid)
            rates[name].append(await burst(offer, worker, jobs))
            spent[name].append((cpu(pid) - before) / jobs * 1e6)
    for name in ways:
        hundredths = quantiles(times[name], n=100)
        print(
            f"{name}: until a worker has it p50 {hundredths[49]:.2f} ms, p99 {hundredths[98]:.2f} ms; "
            f"{sorted(rates[name])[rounds // 2]:.0f} jobs a second; "
            f"{sorted(spent[name])[rounds // 2]:.0f} us of the server for each"
        )
    await client.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=3)
    namespace = parser.parse_args()
    pin(os.getpid(), SERVER_CORE)  # what is started has what we have
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:  # on a disk, where JetStream would be
        server = NatsServer(f'jetstream {{ store_dir: "{folder}" }}\n')
        try:
            server.start()
            pin(os.getpid(), LOAD_CORE)
            asyncio.run(compare(server, namespace.jobs, namespace.rounds))
        finally:
            server.remove()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
