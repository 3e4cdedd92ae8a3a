"""Workers killed one after the other under load: every task ends with its complete response."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest
from tests.agents.workers.tasks import NOW, texts
from tests.agents.workers.worker_process import WorkerProcess, worker_process
from tests.cli.server import serving

from dragoman.client.calls import Client, message
from dragoman.client.operations import Operator
from dragoman.core.task import states
from dragoman_pb.dragoman.ops.v1 import workers_pb2 as ops_workers
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

pytestmark = pytest.mark.longest

SECONDS: Final = 8.0
WORKERS: Final = 3
COMPLETE_OUTPUT: Final = "".join(f"{number} " for number in range(20))


@pytest.mark.timeout(180)
async def test_every_task_completes_although_workers_are_killed(tmp_path: Path) -> None:
    rng = random.Random(7)
    with ExitStack() as stack:
        server = stack.enter_context(serving(cwd=tmp_path))

        def start_worker() -> WorkerProcess:
            return stack.enter_context(worker_process("--turns", "5", server=server.grpc, cwd=tmp_path))

        workers = [await asyncio.to_thread(start_worker) for _ in range(WORKERS)]
        tasks: list[str] = []
        deadline = time.monotonic() + SECONDS

        async def load() -> None:
            async with Client(server.grpc, agent="steady") as client:
                while time.monotonic() < deadline:
                    tasks.append((await client.send(message("go"), configuration=NOW)).task.id)
                    await asyncio.sleep(0.05)

        async def kill_workers() -> None:
            while time.monotonic() < deadline:
                await asyncio.sleep(rng.uniform(0.1, 0.6))
                index = rng.randrange(WORKERS)
                workers[index].process.kill()
                workers[index] = await asyncio.to_thread(start_worker)

        await asyncio.gather(load(), kill_workers())
        assert len(tasks) > 20
        async with Client(server.grpc, agent="steady") as client:
            for task in tasks:
                ended = await _wait_for_end(client, task)
                assert ended.status.state == states.COMPLETED
                assert texts(ended) == {"output": COMPLETE_OUTPUT}
        async with Operator(server.grpc) as operator:
            answer = await operator.list_workers(ops_workers.ListWorkersRequest())
            (steady,) = [one for one in answer.agents if one.agent == "steady"]
            assert len(steady.workers) == WORKERS
            assert sum(worker.running for worker in steady.workers) == 0
        for worker in workers:
            worker.signal(signal.SIGTERM)
            assert await asyncio.to_thread(worker.ends) == 0


async def _wait_for_end(client: Client, task: str) -> pb.Task:
    async with asyncio.timeout(60):
        async for _ in client.subscribe(task, after="0"):
            pass
    return await client.get(task)
