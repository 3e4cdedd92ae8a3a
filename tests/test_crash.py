"""`kill -9`: acknowledged tasks exist after the restart, and none is stuck."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.cli.server import serving

from dragoman.client.calls import Client, message
from dragoman.core.task import states
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

AT_ONCE = pb.SendMessageConfiguration(return_immediately=True)


async def send(grpc: str, *texts: str, wait: bool = False) -> list[str]:
    async with Client(grpc) as client:
        how = None if wait else AT_ONCE
        answers = await asyncio.gather(*(client.send(message(text), configuration=how) for text in texts))
    return [answer.task.id for answer in answers]


async def answer(grpc: str, task: str) -> pb.Task:
    async with Client(grpc) as client:
        return (await client.send(message("forty-two", task=task))).task


async def tasks_at(grpc: str, ids: list[str]) -> list[pb.Task]:
    async with Client(grpc) as client:
        return list(await asyncio.gather(*(client.get(task) for task in ids)))


def test_a_task_of_a_killed_server_fails_with_a_reason(tmp_path: Path) -> None:
    with serving(cwd=tmp_path) as server:
        (task,) = asyncio.run(send(server.grpc, "sleep 600"))
        server.process.kill()
        server.ends()
    with serving(cwd=tmp_path) as server:
        (found,) = asyncio.run(tasks_at(server.grpc, [task]))
    assert found.status.state == states.FAILED
    assert "INTERRUPTED" in found.status.message.parts[0].text
    assert found.history[0].parts[0].text == "sleep 600"


def test_every_acknowledged_task_survives_and_none_hangs(tmp_path: Path) -> None:
    with serving(cwd=tmp_path) as server:
        waiting = asyncio.run(send(server.grpc, *["ask"] * 5, wait=True))
        running = asyncio.run(send(server.grpc, *["sleep 600"] * 20))
        server.process.kill()
        server.ends()
    with serving(cwd=tmp_path) as server:
        found = asyncio.run(tasks_at(server.grpc, [*waiting, *running]))
        # A waiting task holds nothing of the dead process, and continues normally.
        answered = asyncio.run(answer(server.grpc, waiting[0]))
    assert [task.id for task in found] == [*waiting, *running]
    assert [task.status.state for task in found] == [states.INPUT_REQUIRED] * 5 + [states.FAILED] * 20
    assert answered.status.state == states.COMPLETED
    assert answered.artifacts[0].parts[0].text == "you said: forty-two"


def test_a_store_can_be_served_again_right_after_the_kill(tmp_path: Path) -> None:
    with serving(cwd=tmp_path) as first:
        first.process.kill()
        first.ends()
        with serving(cwd=tmp_path) as second:
            assert second.startup_info["store"] == first.startup_info["store"]
