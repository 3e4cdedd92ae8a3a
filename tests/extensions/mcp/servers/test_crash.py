"""Kills of a server while a tool runs."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.server import Server, start
from tests.eventually import eventually
from tests.extensions.mcp.servers.conftest import TOOL_SERVER, ask, status_text, texts
from tests.extensions.mcp.servers.test_end_to_end import wait_for, wait_for_status
from tests.postgres import free_port

from dragoman.client.calls import Client, message
from dragoman.core.task import states
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

pytestmark = pytest.mark.longest

NOW = pb.SendMessageConfiguration(return_immediately=True)


class Front:
    """A Dragoman with one MCP server, which keeps its address and store across kills."""

    def __init__(self, folder: Path, mcp: str) -> None:
        self._folder = folder
        self._mcp = mcp
        self._grpc = free_port()
        self._server: Server | None = None

    def start(self) -> str:
        store = f"sqlite:///{self._folder}/front.db"
        arguments = ("--mcp", self._mcp, "--store", store)
        self._server = start(*arguments, cwd=self._folder, grpc=f"127.0.0.1:{self._grpc}", http="127.0.0.1:0")
        return self._server.grpc

    def kill(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.signal(signal.SIGKILL)
            server.ends()


class HttpTools:
    """An MCP server over HTTP in a process of its own."""

    def __init__(self, folder: Path, era: str) -> None:
        self.log = folder / "log"
        self._process = subprocess.Popen(
            [sys.executable, str(TOOL_SERVER), "http", era, str(self.log)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().strip()

    @property
    def calls(self) -> list[str]:
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [line for line in lines if line != "poll"]

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture(params=["modern", "old"])
def tools(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[HttpTools]:
    server = HttpTools(tmp_path, request.param)
    yield server
    server.close()


@pytest.fixture
def modern_tools(tmp_path: Path) -> Iterator[HttpTools]:
    server = HttpTools(tmp_path, "modern")
    yield server
    server.close()


@pytest.fixture
def old_tools(tmp_path: Path) -> Iterator[HttpTools]:
    server = HttpTools(tmp_path, "old")
    yield server
    server.close()


@pytest.fixture
def front(tmp_path: Path) -> Iterator[list[Front]]:
    fronts: list[Front] = []
    yield fronts
    for one in fronts:
        one.kill()


async def test_a_killed_server_goes_on_with_the_task_of_the_mcp_server(
    modern_tools: HttpTools, tmp_path: Path, front: list[Front]
) -> None:
    front.append(Front(tmp_path, f"tools={modern_tools.url}"))
    async with Client(front[0].start()) as client:
        task = (await client.send(message("long"), configuration=NOW)).task.id
        await wait_for_status(client, task, "it is working")
    front[0].kill()
    async with Client(front[0].start()) as client:
        modern_tools.log.with_name("GO").touch()
        done = await wait_for(client, task, states.COMPLETED)
        assert texts(done) == "done: nothing asked"
    assert modern_tools.calls == ["long"]


async def test_a_killed_server_calls_only_read_only_tools_again(
    tools: HttpTools, tmp_path: Path, front: list[Front]
) -> None:
    front.append(Front(tmp_path, f"tools={tools.url}"))
    async with Client(front[0].start()) as client:
        look = (await client.send(message("look"), configuration=NOW)).task.id
        wait = (await client.send(message("wait"), configuration=NOW)).task.id
        await wait_for_status(client, look, "looking")
        await wait_for_status(client, wait, "waiting")
    front[0].kill()
    async with Client(front[0].start()) as client:
        failed = await wait_for(client, wait, states.FAILED)
        assert "because this server stopped while it ran" in status_text(failed)
        await eventually(lambda: tools.calls.count("look") == 2)
        tools.log.with_name("GO").touch()
        assert texts(await wait_for(client, look, states.COMPLETED)) == "seen"
    assert tools.calls.count("wait") == 1


async def test_a_question_with_a_state_survives_a_kill(
    modern_tools: HttpTools, tmp_path: Path, front: list[Front]
) -> None:
    front.append(Front(tmp_path, f"tools={modern_tools.url}"))
    async with Client(front[0].start()) as client:
        question = await ask(client, "order")
        assert question.status.state == states.INPUT_REQUIRED
    front[0].kill()
    async with Client(front[0].start()) as client:
        assert texts(await ask(client, "small", question.id)) == "ordered 1 of size small"
    assert modern_tools.calls == ["order"]


async def test_a_question_of_an_open_call_survives_a_kill_only_for_read_only_tools(
    old_tools: HttpTools, tmp_path: Path, front: list[Front]
) -> None:
    front.append(Front(tmp_path, f"tools={old_tools.url}"))
    async with Client(front[0].start()) as client:
        greet, once = await asyncio.gather(ask(client, "greet"), ask(client, "greet_once"))
    front[0].kill()
    async with Client(front[0].start()) as client:
        assert texts(await ask(client, "Ann", greet.id)) == "hello Ann"
        failed = await ask(client, "Bob", once.id)
        assert failed.status.state == states.FAILED
        assert "its call was lost while it waited for the answer" in status_text(failed)
    assert sorted(old_tools.calls) == ["greet", "greet", "greet_once"]
