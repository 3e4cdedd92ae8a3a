"""Kills of either server while a task runs upstream."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from tests.cli.server import Server, start
from tests.listing import list_tasks
from tests.postgres import free_port

from dragoman.client import NotSupported
from dragoman.client.calls import Client, message
from dragoman.core.task import states
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

pytestmark = pytest.mark.longest

NOW = pb.SendMessageConfiguration(return_immediately=True)
WAIT_TIMEOUT = 60.0
"""Seconds that a test waits for a task."""


class Machine:
    """The servers of one test, which keep their addresses and stores across restarts."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ports: dict[str, tuple[int, int]] = {}
        self._running: dict[str, Server] = {}

    def start(self, name: str, *arguments: str) -> Server:
        http, grpc = self._ports.setdefault(name, (free_port(), free_port()))
        store = f"sqlite:///{self._folder}/{name}.db"
        words = (*arguments, "--store", store)
        server = start(*words, cwd=self._folder, grpc=f"127.0.0.1:{grpc}", http=f"127.0.0.1:{http}")
        self._running[name] = server
        return server

    def kill(self, name: str) -> None:
        server = self._running.pop(name)
        server.signal(signal.SIGKILL)
        server.ends()

    def stop(self) -> None:
        for name in list(self._running):
            self.kill(name)


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    with ExitStack() as stack:
        machine = Machine(tmp_path)
        stack.callback(machine.stop)
        yield machine


def texts(task: pb.Task) -> str:
    return "".join(part.text for artifact in task.artifacts for part in artifact.parts)


async def wait_for_output(client: Client, task: str) -> None:
    """Waits for the first output of the task."""
    async with asyncio.timeout(WAIT_TIMEOUT):
        async for event in client.subscribe(task):
            if event.HasField("artifact_update") or event.task.artifacts:
                return


async def wait_for_end(client: Client, task: str) -> pb.Task:
    async with asyncio.timeout(WAIT_TIMEOUT):
        while not states.is_terminal((found := await client.get(task)).status.state):
            with suppress(NotSupported):  # It ended after it was read.
                async for _ in client.subscribe(task):
                    pass
    return found


async def test_a_killed_server_resumes_the_upstream_task_and_runs_nothing_twice(machine: Machine) -> None:
    behind = machine.start("behind")
    front = machine.start("front", "--upstream", f"desk={behind.http}")
    async with Client(front.grpc) as client:
        task = (await client.send(message("stream 200 20"), configuration=NOW)).task.id
        await wait_for_output(client, task)
    machine.kill("front")
    front = machine.start("front", "--upstream", f"desk={behind.http}")
    async with Client(front.grpc) as client, Client(behind.grpc) as remote:
        done = await wait_for_end(client, task)
        assert done.status.state == states.COMPLETED
        assert texts(done) == "".join(f"chunk-{number} " for number in range(1, 201))
        assert len([one async for one in list_tasks(remote)]) == 1


async def test_an_upstream_agent_that_was_killed_and_restarted_ends_its_task_truthfully(machine: Machine) -> None:
    behind = machine.start("behind")
    front = machine.start("front", "--upstream", f"desk={behind.http}")
    async with Client(front.grpc) as client:
        lost = (await client.send(message("sleep 600"), configuration=NOW)).task.id
        interrupted = (await client.send(message("ask"))).task
        machine.kill("behind")
        waits = (await client.send(message("echo after all"), configuration=NOW)).task.id
        machine.start("behind")
        found = await wait_for_end(client, lost)
        assert found.status.state == states.FAILED
        assert found.status.message.parts[0].text.startswith("INTERRUPTED: ")
        assert texts(await wait_for_end(client, waits)) == "after all"
        assert texts((await client.send(message("blue", task=interrupted.id))).task) == "you said: blue"
