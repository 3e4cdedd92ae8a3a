"""Cost and benefit of JetStream for job messages, compared with core NATS: `python -m bench.studies.jetstream`.

A job tells one worker that a task is ready. Dragoman sends it as a plain message to a queue group: the claim in the
store is the acknowledgment, and lost jobs are found by the store poll every two seconds. JetStream would store jobs on
disk, confirm publication, and redeliver unacknowledged ones. Both use one NATS server and a worker whose claim is one
loop iteration, since the real claim costs the same in both. NATS has the first core, this process the second.
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
from bench.resources import cpu
from bench.servers.contestants import LOAD_CORE, SERVER_CORE, pin

JOB_INTERVAL: Final = 0.005
"""Seconds between two jobs of a paced series."""
JOB: Final = b"x" * 60
ACK_WAIT: Final = 2.0
"""Seconds after which JetStream redelivers an unacknowledged job, equal to the interval of the store poll."""

Publish = Callable[[bytes], Awaitable[object]]


class Worker:
    """Records the arrival of jobs."""

    def __init__(self, *, acknowledges: bool) -> None:
        self.arrivals: dict[bytes, int] = {}
        self.complete = asyncio.Event()
        self.expected = 0
        self._acknowledges = acknowledges

    async def take(self, message: Msg) -> None:
        self.arrivals[message.data[:8]] = time.monotonic_ns()
        await asyncio.sleep(0)  # the claim
        if self._acknowledges:
            await message.ack()
        if len(self.arrivals) == self.expected:
            self.complete.set()


async def paced(publish: Publish, worker: Worker, jobs: int) -> list[float]:
    """Publishes jobs one after the other, and returns the milliseconds until a worker received each."""
    sent: dict[bytes, int] = {}
    worker.expected = len(worker.arrivals) + jobs
    worker.complete.clear()
    for _ in range(jobs):
        name = os.urandom(8)
        sent[name] = time.monotonic_ns()
        await publish(name + JOB)
        await asyncio.sleep(JOB_INTERVAL)
    async with asyncio.timeout(30):
        await worker.complete.wait()
    return [(worker.arrivals[name] - at) / 1e6 for name, at in sent.items()]


async def burst(publish: Publish, worker: Worker, jobs: int, concurrency: int = 64) -> float:
    """Publishes jobs concurrently, and returns jobs per second."""
    worker.expected = len(worker.arrivals) + jobs
    worker.complete.clear()
    left = iter(range(jobs))

    async def publisher() -> None:
        for _ in left:
            await publish(os.urandom(8) + JOB)

    began = time.perf_counter()
    await asyncio.gather(*(publisher() for _ in range(concurrency)))
    async with asyncio.timeout(60):
        await worker.complete.wait()
    return jobs / (time.perf_counter() - began)


async def compare(server: NatsServer, jobs: int, rounds: int) -> None:
    pid = server.pid
    client = await nats.connect(server.url())
    stream = client.jetstream()
    config = StreamConfig(
        name="jobs", subjects=["js.jobs"], retention=RetentionPolicy.WORK_QUEUE, storage=StorageType.FILE
    )
    await stream.add_stream(config)
    core, stored = Worker(acknowledges=False), Worker(acknowledges=True)
    await client.subscribe("jobs", queue="workers", cb=core.take)
    consumer = ConsumerConfig(ack_policy=AckPolicy.EXPLICIT, ack_wait=ACK_WAIT, max_ack_pending=10_000)
    await stream.subscribe("js.jobs", "workers", stored.take, durable="workers", manual_ack=True, config=consumer)
    variants: dict[str, tuple[Publish, Worker]] = {
        "core NATS": (lambda job: client.publish("jobs", job), core),
        "JetStream": (lambda job: stream.publish("js.jobs", job), stored),
    }
    times: dict[str, list[float]] = {name: [] for name in variants}
    rates: dict[str, list[float]] = {name: [] for name in variants}
    spent: dict[str, list[float]] = {name: [] for name in variants}
    for _ in range(rounds):
        for name, (publish, worker) in variants.items():
            times[name] += await paced(publish, worker, jobs // 10)
            before = cpu(pid)
            rates[name].append(await burst(publish, worker, jobs))
            spent[name].append((cpu(pid) - before) / jobs * 1e6)
    for name in variants:
        hundredths = quantiles(times[name], n=100)
        print(
            f"{name}: latency p50 {hundredths[49]:.2f} ms, p99 {hundredths[98]:.2f} ms; "
            f"{sorted(rates[name])[rounds // 2]:.0f} jobs/s; "
            f"{sorted(spent[name])[rounds // 2]:.0f} µs of server CPU per job"
        )
    await client.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=3)
    namespace = parser.parse_args()
    pin(os.getpid(), SERVER_CORE)  # started processes inherit the core
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:  # on a disk, as for JetStream in production
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
