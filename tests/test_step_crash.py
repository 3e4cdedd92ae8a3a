"""`kill -9` before, during and after every step of an agent, in the server's process and in a worker's."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.agents.workers.worker_process import worker_process
from tests.cli.server import serving
from tests.step_crash import KILLS, PLACES, RAN, STEPS

from dragoman.client import ServerUnavailable
from dragoman.client.calls import Client, message
from dragoman.client.operations import Operator
from dragoman.core.task import states
from dragoman_pb.dragoman.ops.v1 import steps_pb2 as steps_pb
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

pytestmark = pytest.mark.longest

APP = Path(__file__).with_name("step_crash.py")
AT_ONCE = pb.SendMessageConfiguration(return_immediately=True)
GO = pb.Message(message_id="go", role=pb.ROLE_USER, parts=[pb.Part(text="go")])
EVERY_PLACE = [f"{number} {place}" for number in range(STEPS) for place in PLACES]
RESULT = [{"number": number, "square": number * number} for number in range(STEPS)]


async def send(client: Client) -> str:
    """The task: a new one, or the one that the same key created before its process died."""
    return (await client.send(GO, configuration=AT_ONCE, key="go")).task.id


async def go_on(grpc: str) -> pb.Task:
    """The task, after its question was answered if it has one."""
    async with Client(grpc, agent="research") as client:
        found = await client.get(await send(client))
        if found.status.state == states.INPUT_REQUIRED:
            await client.send(message("yes", task=found.id), configuration=AT_ONCE)
        return found


async def steps_of(grpc: str, task: str) -> list[steps_pb.TaskStep]:
    async with Operator(grpc) as operator:
        return list((await operator.list_steps(steps_pb.ListStepsRequest(task_id=task))).steps)


def run_to_the_end(grpc: str, has_died: Callable[[], bool]) -> pb.Task | None:
    """The ended task; None when the process that runs it died before."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if has_died():
            return None
        try:
            found = asyncio.run(go_on(grpc))
        except ServerUnavailable:  # it is dying
            continue
        if found.status.state in states.TERMINAL:
            return found
        time.sleep(0.02)
    raise AssertionError("the task did not end")


def check(task: pb.Task, folder: Path, steps: list[steps_pb.TaskStep]) -> None:
    assert pb.TaskState.Name(task.status.state) == "TASK_STATE_COMPLETED", task.status
    found = [dict(value.struct_value.items()) for value in task.artifacts[-1].parts[0].data.list_value.values]
    assert found == RESULT
    counts = Counter(map(int, (folder / RAN).read_text().split()))
    # A step that was interrupted ran again; one that had returned did not.
    assert counts == dict.fromkeys(range(STEPS), 2)
    done = [step.name for step in steps if step.state == steps_pb.TASK_STEP_STATE_DONE]
    assert sorted(done) == [f"step {number}" for number in range(STEPS)]


def is_ready(await_ready: Callable[[], None]) -> bool:
    """Whether a process became ready before it died."""
    try:
        await_ready()
    except AssertionError:
        return False
    return True


def serve_to_the_end(folder: Path) -> tuple[pb.Task, list[steps_pb.TaskStep], int]:
    """The ended task, its steps, and how many servers it took."""
    starts = 0
    while True:
        starts += 1
        with serving(str(APP), "--store", f"sqlite:///{folder}/tasks.db", cwd=folder, ready=False) as server:
            if not is_ready(server.await_ready):
                continue
            ended = run_to_the_end(server.grpc, lambda: server.process.poll() is not None)
            if ended is not None:
                return ended, asyncio.run(steps_of(server.grpc, ended.id)), starts


def test_no_finished_step_runs_again_after_a_kill_of_the_server(tmp_path: Path) -> None:
    (tmp_path / KILLS).write_text("\n".join([*EVERY_PLACE, ""]))
    ended, steps, starts = serve_to_the_end(tmp_path)
    assert starts == len(EVERY_PLACE) + 1
    check(ended, tmp_path, steps)


def test_no_finished_step_runs_again_after_a_kill_of_its_worker(tmp_path: Path) -> None:
    (tmp_path / KILLS).write_text("\n".join([*EVERY_PLACE, ""]))
    ended, starts = None, 0
    with serving("--store", f"sqlite:///{tmp_path}/tasks.db", cwd=tmp_path) as server:
        while ended is None:
            starts += 1
            with worker_process(server=server.grpc, cwd=tmp_path, app=APP, ready=False) as worker:
                if is_ready(worker.await_ready):
                    ended = run_to_the_end(server.grpc, lambda: worker.process.poll() is not None)
        steps = asyncio.run(steps_of(server.grpc, ended.id))
    assert starts == len(EVERY_PLACE) + 1
    check(ended, tmp_path, steps)


@pytest.mark.parametrize("place", PLACES)
def test_a_kill_at_one_step_leaves_the_others_alone(tmp_path: Path, place: str) -> None:
    (tmp_path / KILLS).write_text(f"4 {place}\n")
    _, _, starts = serve_to_the_end(tmp_path)
    assert starts == 2
    counts = Counter(map(int, (tmp_path / RAN).read_text().split()))
    assert counts == {**dict.fromkeys(range(STEPS), 1), 4: 2 if place == "during" else 1}
