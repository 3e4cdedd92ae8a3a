"""Added latency of following a task on another server than the one that runs it.

`python -m bench.studies.replica_latency`. Two servers share one PostgreSQL and one NATS on loopback. An agent on the
first server sends the time every 20 ms, and one client follows the task through both servers over gRPC. Each chunk has
three times of one clock: sent by the agent, received from its own server, and received from the other server. Servers
and databases have the first core, the client the second.
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

from bench.servers.contestants import LOAD_CORE, SERVER_CORE, pin
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb
from dragoman_pb.lf.a2a.v1 import a2a_pb2_grpc as rpc

CHUNK_INTERVAL: Final = 0.02
"""Seconds between two chunks, so that each is a separate event, commit and message."""

AGENT: Final = f"""
import asyncio, time
from dragoman import Turn, agent

@agent(default=True)
async def clock(turn: Turn) -> None:
    for _ in range(int(turn.text)):
        await asyncio.sleep({CHUNK_INTERVAL})
        turn.chunk(f"{{time.monotonic_ns()}} ")
"""


async def follow(stub: Any, task: str, arrivals: dict[int, int]) -> None:
    """Records the time at which each chunk arrived, by the chunk's own time."""
    async for event in stub.SubscribeToTask(pb.SubscribeToTaskRequest(id=task)):
        now = time.monotonic_ns()
        for part in event.artifact_update.artifact.parts:
            arrivals[int(part.text)] = now


async def measure(own: str, other: str, chunks: int) -> list[tuple[float, float]]:
    """Returns for each chunk of one task the milliseconds until it arrived from its own and from the other server."""
    async with grpc.aio.insecure_channel(own) as near, grpc.aio.insecure_channel(other) as far:
        stubs: list[Any] = [rpc.A2AServiceStub(channel) for channel in (near, far)]
        message = pb.Message(message_id=os.urandom(8).hex(), role=pb.ROLE_USER, parts=[pb.Part(text=str(chunks))])
        request = pb.SendMessageRequest(message=message)
        request.configuration.return_immediately = True
        task = (await stubs[0].SendMessage(request)).task.id
        received: tuple[dict[int, int], dict[int, int]] = {}, {}
        await asyncio.gather(*(follow(*arguments) for arguments in zip(stubs, (task, task), received, strict=True)))
    both = sorted(set(received[0]) & set(received[1]))
    return [((received[0][number] - number) / 1e6, (received[1][number] - number) / 1e6) for number in both]


def line(name: str, times: list[float]) -> str:
    """Formats the percentiles of a series."""
    hundredths = quantiles(times, n=100)
    return f"{name:22} p50 {hundredths[49]:6.2f} ms   p90 {hundredths[89]:6.2f} ms   p99 {hundredths[98]:6.2f} ms"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chunks", type=int, default=1000)
    parser.add_argument("--tasks", type=int, default=3)
    namespace = parser.parse_args()
    pin(os.getpid(), SERVER_CORE)  # started processes inherit the core
    with tempfile.TemporaryDirectory() as folder:
        app = Path(folder, "clock.py")
        app.write_text(AGENT, "utf-8")
        with Cluster(Path(folder), app=str(app), servers=2) as cluster:
            cluster.start()
            pin(os.getpid(), LOAD_CORE)
            own, other = (server.grpc for server in cluster.servers)
            asyncio.run(measure(own, other, 50))
            latencies = [
                pair for _ in range(namespace.tasks) for pair in asyncio.run(measure(own, other, namespace.chunks))
            ]
    print(f"{len(latencies)} chunks received from both servers, one every {CHUNK_INTERVAL * 1000:g} ms")
    print(line("from its own server", [near for near, _ in latencies]))
    print(line("from the other server", [far for _, far in latencies]))
    print(line("difference", [far - near for near, far in latencies]))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
