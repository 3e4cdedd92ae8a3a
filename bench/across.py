"""`python -m bench.across`: what it adds to follow a task on another server than the one that runs it.

Two servers on one PostgreSQL and one NATS, all on loopback. An agent that runs on the first one says every few
milliseconds what time it is, and one client follows it by both servers at once, over gRPC. Of each chunk three times
are taken with one clock: when it was said, when it came from the server that runs the task, and when it came from the
other one. Servers and databases have the first core, the client the second.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import time
from pathlib import Path
from statistics import quantiles
from typing import Any, Final

import grpc
from tests.cluster import Cluster

from bench.servers import LOAD_CORE, SERVER_CORE, pin
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb
from dragoman_pb.lf.a2a.v1 import a2a_pb2_grpc as rpc

PAUSE: Final = 0.02
"""Seconds between two chunks: so each is an event, a commit and a message of its own."""

AGENT: Final = f"""
import asyncio, time
from dragoman import Turn, agent

@agent(default=True)
async def clock(turn: Turn) -> None:
    for _ in range(int(turn.text)):
        await asyncio.sleep({PAUSE})
        turn.chunk(f"{{time.monotonic_ns()}} ")
"""


async def follow(stub: Any, task: str, seen: dict[int, int]) -> None:
    """Notes when each chunk came, by what it says."""
    async for event in stub.SubscribeToTask(pb.SubscribeToTaskRequest(id=task)):
        now = time.monotonic_ns()
        for part in event.artifact_update.artifact.parts:
            seen[int(part.text)] = now


async def measure(one: str, other: str, chunks: int) -> list[tuple[float, float]]:
    """For each chunk of one task: milliseconds until it came from its own server, and from the other one."""
    async with grpc.aio.insecure_channel(one) as near, grpc.aio.insecure_channel(other) as far:
        stubs: list[Any] = [rpc.A2AServiceStub(channel) for channel in (near, far)]
        message = pb.Message(message_id=os.urandom(8).hex(), role=pb.ROLE_USER, parts=[pb.Part(text=str(chunks))])
        request = pb.SendMessageRequest(message=message)
        request.configuration.return_immediately = True
        task = (await stubs[0].SendMessage(request)).task.id
        came: tuple[dict[int, int], dict[int, int]] = {}, {}
        await asyncio.gather(*(follow(*each) for each in zip(stubs, (task, task), came, strict=True)))
    both = sorted(set(came[0]) & set(came[1]))
    return [((came[0][number] - number) / 1e6, (came[1][number] - number) / 1e6) for number in both]


def line(name: str, times: list[float]) -> str:
    """The middle and the upper end."""
    hundredths = quantiles(times, n=100)
    return f"{name:22} p50 {hundredths[49]:6.2f} ms   p90 {hundredths[89]:6.2f} ms   p99 {hundredths[98]:6.2f} ms"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chunks", type=int, default=1000)
    parser.add_argument("--tasks", type=int, default=3)
    namespace = parser.parse_args()
    pin(os.getpid(), SERVER_CORE)  # what is started has what we have
    with tempfile.TemporaryDirectory() as folder:
        app = Path(folder, "clock.py")
        app.write_text(AGENT, "utf-8")
        with Cluster(Path(folder), app=str(app), servers=2) as cluster:
            cluster.start()
            pin(os.getpid(), LOAD_CORE)
            one, other = (server.grpc for server in cluster.servers)
            asyncio.run(measure(one, other, 50))
            found = [
                pair for _ in range(namespace.tasks) for pair in asyncio.run(measure(one, other, namespace.chunks))
            ]
    print(f"{len(found)} chunks that came from both servers, one every {PAUSE * 1000:g} ms")
    print(line("from its own server", [near for near, _ in found]))
    print(line("from the other server", [far for _, far in found]))
    print(line("what that adds", [far - near for near, far in found]))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
