"""The workers in TypeScript and Go: every command of the playground, compared with the server's playground.

Needs their toolchains, and their registries the first time; what they are built from stays in `.foreign/`.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from google.protobuf.json_format import MessageToDict
from tests.agents.workers.tasks import NOW, status_text, texts, wait_for_state, wait_for_text
from tests.cli.server import PROCESS_TIMEOUT, Lines, Server, serving

from dragoman.client.calls import Client, message
from dragoman.core.task import states
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb
from tools.environments import ROOT, Environment, NotCreated, go_variables

EXAMPLES: Final = ROOT / "examples"

pytestmark = [pytest.mark.longest, pytest.mark.timeout(240)]


@dataclass(frozen=True)
class Program:
    """A compiled worker: its command, and the id of its agent."""

    command: list[str]
    agent: str


@pytest.fixture(scope="module", params=["node", "go"])
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Program:
    command = node() if request.param == "node" else go(tmp_path_factory.mktemp("worker_go"))
    return Program(command, f"playground-{request.param}")


def node() -> list[str]:
    """Compiles the worker in TypeScript."""
    source = EXAMPLES / "worker-node"
    if not (shutil.which("node") and shutil.which("npm")):
        pytest.skip("there is no Node on this machine")
    environment = Environment("worker_node", (source / "package.json", source / "package-lock.json"))
    try:
        environment.make()
    except NotCreated as error:
        pytest.skip(f"the packages of the worker are unavailable: {error}")
    for name in ("buf.gen.yaml", "tsconfig.json"):
        shutil.copy(source / name, environment.folder)
    shutil.copytree(
        source / "src", environment.folder / "src", dirs_exist_ok=True, ignore=shutil.ignore_patterns("gen")
    )
    built = subprocess.run(
        ["npm", "run", "--silent", "build"], cwd=environment.folder, capture_output=True, text=True, check=False
    )
    assert built.returncode == 0, built.stdout + built.stderr
    return ["node", str(environment.folder / "dist" / "main.js")]


def go(folder: Path) -> list[str]:
    """Compiles the worker in Go, in a copy of its folder beside a copy of the image."""
    if not shutil.which("go"):
        pytest.skip("there is no Go on this machine")
    shutil.copytree(EXAMPLES / "worker-go", folder / "examples" / "worker-go", ignore=shutil.ignore_patterns("gen"))
    (folder / "gen").mkdir()
    shutil.copy(ROOT / "gen" / "dragoman.binpb", folder / "gen")
    source, variables = folder / "examples" / "worker-go", {**os.environ, **go_variables()}
    downloaded = subprocess.run(
        ["go", "mod", "download"], cwd=source, env=variables, capture_output=True, text=True, check=False
    )
    if downloaded.returncode:
        required = os.environ.get("NATIVE_CLIENTS") == "required"
        (pytest.fail if required else pytest.skip)(f"the worker's modules cannot be had: {downloaded.stderr}")
    for step in ([str(Path(sys.executable).parent / "buf"), "generate"], ["go", "build", "-o", "worker", "."]):
        built = subprocess.run(step, cwd=source, env=variables, capture_output=True, text=True, check=False)
        assert built.returncode == 0, built.stdout + built.stderr
    return [str(source / "worker")]


class ForeignWorker:
    """A running worker."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stderr is not None
        self.process = process
        self.err = Lines(process.stderr)


@contextmanager
def working(program: Program, server: Server, *arguments: str, ready: bool = True) -> Iterator[ForeignWorker]:
    """Runs a worker inside the block."""
    command = [*program.command, "--server", server.grpc, *arguments]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    worker = ForeignWorker(process)
    try:
        if ready:
            worker.err.until("serving ")
        yield worker
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(cwd=tmp_path_factory.mktemp("server")) as server:
        yield server


@pytest.fixture(scope="module")
def worker(program: Program, server: Server) -> Iterator[ForeignWorker]:
    with working(program, server) as worker:
        yield worker


def shown(answer: pb.SendMessageResponse) -> dict[str, Any]:
    """Returns the caller's view of a task without ids and times."""
    if answer.HasField("message"):
        return {"message": [MessageToDict(part) for part in answer.message.parts]}
    task = answer.task
    return {
        "state": states.name(task.status.state),
        "said": status_text(task),
        "artifacts": [(artifact.name, [MessageToDict(part) for part in artifact.parts]) for artifact in task.artifacts],
    }


@pytest.mark.parametrize(
    "command",
    [
        "echo hello",
        "hello there",
        "echo",
        "stream 20",
        "stream 3 10",
        "sleep 0.1",
        "reject",
        "reply hi",
        "file",
        "data",
    ],
)
async def test_commands_work_as_in_the_python_playground(
    program: Program, server: Server, worker: ForeignWorker, command: str
) -> None:
    async with Client(server.grpc) as ours, Client(server.grpc, agent=program.agent) as theirs:
        expected = shown(await ours.send(message(command)))
        assert shown(await theirs.send(message(command))) == expected


async def test_steps_are_done_once_over_a_pause(program: Program, server: Server, worker: ForeignWorker) -> None:
    async with Client(server.grpc, agent=program.agent) as client:
        task = (await client.send(message("steps 3"))).task
        history = [part.text for one in task.history for part in one.parts]
    (drawn,) = [text.removeprefix("drawn: ") for text in history if text.startswith("drawn: ")][-1:]
    assert len(drawn.split()) == 3
    assert {text for text in history if text.startswith("drawn: ")} == {f"drawn: {drawn}"}
    assert list(texts(task).values()) == [drawn]


@pytest.mark.parametrize("command", ["ask", "auth"])
async def test_a_follow_up_is_answered(program: Program, server: Server, worker: ForeignWorker, command: str) -> None:
    async with Client(server.grpc) as ours, Client(server.grpc, agent=program.agent) as theirs:
        found = []
        for client in (ours, theirs):
            response = await client.send(message(command))
            answered = await client.send(message("blue", task=response.task.id))
            found.append((shown(response), shown(answered)))
        assert found[0] == found[1]
        assert found[1][1]["state"] == "TASK_STATE_COMPLETED"


@pytest.mark.parametrize("command", ["fail", "stream 0", "stream x", "sleep", "sleep -1"])
async def test_impossible_commands_end_in_the_same_state(
    program: Program, server: Server, worker: ForeignWorker, command: str
) -> None:
    async with Client(server.grpc) as ours, Client(server.grpc, agent=program.agent) as theirs:
        answers = [(await client.send(message(command))).task for client in (ours, theirs)]
        assert answers[0].status.state == answers[1].status.state
        assert status_text(answers[1])


async def test_parts_are_echoed_one_by_one(program: Program, server: Server, worker: ForeignWorker) -> None:
    data = pb.Part(media_type="application/json")
    data.data.struct_value.update({"n": 1})
    parts = [data, pb.Part(raw=b"\x00\xff", filename="x.bin", media_type="application/octet-stream")]
    async with Client(server.grpc, agent=program.agent) as client:
        task = (await client.send(message(parts=parts))).task
        assert list(task.artifacts[0].parts) == parts


async def test_two_thousand_chunks_arrive_in_order(program: Program, server: Server, worker: ForeignWorker) -> None:
    async with Client(server.grpc, agent=program.agent) as client:
        events = [event async for event in client.stream(message("stream 2000"))]
        chunks = [event.artifact_update.artifact.parts[0].text for event in events if event.HasField("artifact_update")]
        assert chunks == [f"chunk-{number} " for number in range(1, 2001)]


async def test_a_cancel_stops_the_worker_agent(program: Program, server: Server, worker: ForeignWorker) -> None:
    async with Client(server.grpc, agent=program.agent) as client:
        for command in ("sleep 60", "stream 100 1000"):
            task = (await client.send(message(command), configuration=NOW)).task.id
            await wait_for_state(client, task, states.WORKING)
            assert (await client.cancel(task)).status.state == states.CANCELED


async def test_turns_end_when_the_worker_is_killed(program: Program, server: Server) -> None:
    with working(program, server, "--id", "killed") as worker:
        async with Client(server.grpc, agent="killed") as client:
            task = (await client.send(message("sleep 60"), configuration=NOW)).task.id
            await wait_for_text(client, task, "sleeping")
            worker.process.kill()
            assert status_text(await wait_for_state(client, task, states.FAILED)).startswith("INTERRUPTED")


async def test_the_worker_drains(program: Program, server: Server) -> None:
    with working(program, server, "--id", "drained") as worker:
        async with Client(server.grpc, agent="drained") as client:
            task = (await client.send(message("stream 40 50"), configuration=NOW)).task.id
            await wait_for_state(client, task, states.WORKING)
            worker.process.send_signal(signal.SIGTERM)
            assert texts(await wait_for_state(client, task, states.COMPLETED))["output"].endswith("chunk-40 ")
            assert await asyncio.to_thread(worker.process.wait, PROCESS_TIMEOUT) == 0


async def test_the_worker_reports_the_reason_of_a_rejection(program: Program, server: Server) -> None:
    with working(program, server, "--id", "playground", ready=False) as worker:
        assert '"playground" is an agent of the server itself' in worker.err.until("error: ALREADY_EXISTS")
        assert await asyncio.to_thread(worker.process.wait, PROCESS_TIMEOUT) == 3
