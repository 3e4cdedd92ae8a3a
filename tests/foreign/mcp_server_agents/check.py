"""MCP servers from package registries, served as A2A agents, and called by a2a-sdk 1.3.0.

`mcp-server-time` from PyPI speaks 2026-07-28, `@modelcontextprotocol/server-everything` from npm the versions with a
handshake, over stdio and over HTTP. The tools of `tasks_server.py` go on as tasks of FastMCP (SEP-2663); a Dragoman
that is killed meanwhile continues with the same task.
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import httpx
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.types import a2a_pb2 as pb
from checks import Checks, arguments, finish, free_port, serving
from google.protobuf.json_format import MessageToDict, ParseDict

EVERYTHING = "@modelcontextprotocol/server-everything@2026.8.31"
START_LIMIT = 120.0

clock = Checks()
everything = Checks()
tasks = Checks()
kills = Checks()


class Agent:
    """One agent, called with the SDK's client, which finds it by its card."""

    def __init__(self, web: httpx.AsyncClient, card: pb.AgentCard) -> None:
        self.card = card
        self._web = web
        self._client = ClientFactory(ClientConfig(httpx_client=web)).create(card)

    async def stream(self, *parts: dict[str, Any], task: pb.Task | None = None) -> list[pb.StreamResponse]:
        """Sends a message with these parts and returns all events."""
        message = {"messageId": str(uuid.uuid4()), "role": "ROLE_USER", "parts": list(parts)}
        if task is not None:
            message |= {"taskId": task.id, "contextId": task.context_id}
        request = ParseDict({"message": message}, pb.SendMessageRequest())
        return [event async for event in self._client.send_message(request)]

    async def ask(self, *parts: dict[str, Any], task: pb.Task | None = None) -> pb.Task:
        """Sends a message with these parts and returns the task after the turn."""
        events = await self.stream(*parts, task=task)
        first = events[0]
        id = first.task.id or first.status_update.task_id or first.artifact_update.task_id
        return await self.get(id)

    async def start(self, tool: str, **arguments: Any) -> pb.Task:
        """Calls a tool and does not wait for its result."""
        message = {"messageId": str(uuid.uuid4()), "role": "ROLE_USER"}
        message["parts"] = [{"data": {"tool": tool, "arguments": arguments}}]
        request = ParseDict({"message": message, "configuration": {"returnImmediately": True}}, pb.SendMessageRequest())
        client = ClientFactory(ClientConfig(streaming=False, httpx_client=self._web)).create(self.card)
        return [event async for event in client.send_message(request)][-1].task

    async def get(self, id: str) -> pb.Task:
        return await self._client.get_task(pb.GetTaskRequest(id=id))

    async def cancel(self, task: pb.Task) -> None:
        await self._client.cancel_task(pb.CancelTaskRequest(id=task.id))

    async def call(self, tool: str, **arguments: Any) -> pb.Task:
        """Calls a tool."""
        return await self.ask({"data": {"tool": tool, "arguments": arguments}})


def state(task: pb.Task) -> str:
    return pb.TaskState.Name(task.status.state).removeprefix("TASK_STATE_")


def parts(task: pb.Task) -> list[dict[str, Any]]:
    return [MessageToDict(part) for artifact in task.artifacts for part in artifact.parts]


def status_text(task: pb.Task) -> str:
    return "".join(part.text for part in task.status.message.parts)


def schemas(card: pb.AgentCard) -> dict[str, Any]:
    (found,) = [one for one in card.capabilities.extensions if one.uri == "urn:dragoman:schemas:v1"]
    return MessageToDict(found.params)


# mcp-server-time ------------------------------------------------------------------------------------------------------


@clock
async def its_tools_are_skills_with_schemas(agent: Agent) -> None:
    assert {skill.id for skill in agent.card.skills} == {"get_current_time", "convert_time"}, agent.card
    found = schemas(agent.card)
    assert found["get_current_time"]["input"]["required"] == ["timezone"], found


@clock
async def a_text_calls_a_tool(agent: Agent) -> None:
    task = await agent.ask({"text": "get_current_time Europe/Berlin"})
    assert state(task) == "COMPLETED", task
    assert any("Europe/Berlin" in json.dumps(part) for part in parts(task)), parts(task)


@clock
async def data_calls_a_tool(agent: Agent) -> None:
    task = await agent.call("convert_time", source_timezone="UTC", time="12:00", target_timezone="Asia/Tokyo")
    assert (state(task), "21:00" in json.dumps(parts(task))) == ("COMPLETED", True), parts(task)


@clock
async def the_errors_of_a_tool_and_of_a_call_are_shown(agent: Agent) -> None:
    task = await agent.call("get_current_time", timezone="Nowhere/At_all")
    assert (state(task), "Nowhere" in status_text(task)) == ("FAILED", True), status_text(task)
    task = await agent.ask({"text": "what time is it?"})
    assert (state(task), "Tools: get_current_time, convert_time" in status_text(task)) == ("FAILED", True)


# server-everything ----------------------------------------------------------------------------------------------------


@everything
async def a_text_comes_as_an_artifact(agent: Agent) -> None:
    task = await agent.ask({"text": "echo hello"})
    assert (state(task), parts(task)) == ("COMPLETED", [{"text": "Echo: hello"}]), task


@everything
async def structured_content_comes_as_data(agent: Agent) -> None:
    task = await agent.call("get-structured-content", location="Chicago")
    assert set(parts(task)[-1]["data"]) == {"temperature", "conditions", "humidity"}, parts(task)


@everything
async def an_image_and_links_come_as_files_and_urls(agent: Agent) -> None:
    image = parts(await agent.ask({"text": "get-tiny-image"}))[1]
    assert (image["mediaType"], bool(image["raw"])) == ("image/png", True), image
    links = parts(await agent.call("get-resource-links", count=2))
    assert [part["url"].split(":")[0] for part in links[1:]] == ["demo", "demo"], links
    annotated = parts(await agent.call("get-annotated-message", messageType="error"))[0]
    assert annotated["metadata"]["annotations"]["priority"] == 1, annotated


@everything
async def progress_comes_as_status_messages(agent: Agent) -> None:
    arguments = {"duration": 2, "steps": 4}
    events = await agent.stream({"data": {"tool": "trigger-long-running-operation", "arguments": arguments}})
    messages = [event.status_update.status.message.parts for event in events if event.HasField("status_update")]
    assert "1 of 4" in [part.text for some in messages for part in some], events


@everything
async def an_elicitation_is_a_question_with_a_form(agent: Agent) -> None:
    task = await agent.ask({"text": "trigger-elicitation-request"})
    assert state(task) == "INPUT_REQUIRED", task
    form = MessageToDict(task.status.message.parts[1])["data"]["schema"]
    assert form["required"] == ["name"], form
    wrong = await agent.ask({"data": {"name": 3}}, task=task)
    assert (state(wrong), status_text(wrong).startswith("The answer does not fit: name: ")) == ("INPUT_REQUIRED", True)
    task = await agent.ask({"data": {"name": "Ann", "check": True}}, task=task)
    assert (state(task), "Name: Ann" in json.dumps(parts(task))) == ("COMPLETED", True), parts(task)


@everything
async def a_declined_elicitation_reaches_the_tool(agent: Agent) -> None:
    task = await agent.ask({"text": "trigger-elicitation-request"})
    task = await agent.ask({"text": "decline"}, task=task)
    assert (state(task), "declined" in json.dumps(parts(task))) == ("COMPLETED", True), parts(task)


@everything
async def an_elicitation_of_a_url_requires_authentication(agent: Agent) -> None:
    task = await agent.call("trigger-url-elicitation", url="https://sign-in.example/")
    assert state(task) == "AUTH_REQUIRED", task
    assert task.status.message.parts[1].url == "https://sign-in.example/", task.status
    assert state(await agent.ask({"text": "done"}, task=task)) == "COMPLETED"


# FastMCP --------------------------------------------------------------------------------------------------------------


@tasks
async def a_call_that_goes_on_as_a_task_is_followed(agent: Agent) -> None:
    task = await agent.call("report", topic="cats")
    assert (state(task), parts(task)[0]["text"]) == ("COMPLETED", "report about cats"), task


@tasks
async def the_failure_of_a_task_is_shown(agent: Agent) -> None:
    task = await agent.ask({"text": "fail"})
    assert (state(task), "as asked" in status_text(task)) == ("FAILED", True), task


@tasks
async def a_question_of_a_task_is_answered(agent: Agent) -> None:
    task = await agent.ask({"text": "ask"})
    assert (state(task), status_text(task)) == ("INPUT_REQUIRED", "Who are you?"), task
    task = await agent.ask({"text": "Ann"}, task=task)
    assert (state(task), parts(task)[0]["text"]) == ("COMPLETED", "hello Ann"), task
    task = await agent.ask({"text": "ask"})
    task = await agent.ask({"text": "decline"}, task=task)
    assert (state(task), parts(task)[0]["text"]) == ("COMPLETED", "no name: decline"), task


@tasks
async def a_cancel_ends_a_task(agent: Agent) -> None:
    task = await agent.start("report", topic="nothing", seconds=600)
    await agent.cancel(task)
    assert state(await agent.get(task.id)) == "CANCELED"


@kills
async def a_killed_server_continues_with_the_task_of_the_mcp_server(folder: Path, project: str, mcp: str) -> None:
    grpc, http = free_port(), free_port()
    command = [f"{project}/.venv/bin/python", "-m", "dragoman", "serve", "--mcp", mcp]
    command += ["--http", f"127.0.0.1:{http}", "--grpc", f"127.0.0.1:{grpc}", "--store", f"sqlite:///{folder}/tasks.db"]
    async with httpx.AsyncClient(timeout=60) as web:
        with running(command):
            agent = await agent_at(web, f"http://127.0.0.1:{http}", wait=True)
            task = await agent.start("report", topic="once", seconds=8)
            while not has_handle(folder / "tasks.db"):  # only a crash before that loses the server's task
                await asyncio.sleep(0.05)
        with running(command):
            agent = await agent_at(web, f"http://127.0.0.1:{http}", wait=True)
            while state(found := await agent.get(task.id)) not in ("COMPLETED", "FAILED"):
                await asyncio.sleep(0.1)
    assert (state(found), parts(found)[0]["text"]) == ("COMPLETED", "report about once"), found
    assert (folder / "log").read_text().splitlines().count("once") == 1


# ----------------------------------------------------------------------------------------------------------------------


@contextmanager
def running(command: list[str]) -> Iterator[None]:
    """Runs a command while the block runs, and kills it then."""
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            yield
        finally:
            process.kill()


def has_handle(store: Path) -> bool:
    """Whether the handle of a server's task is stored."""
    with closing(sqlite3.connect(store)) as connection:
        found = connection.execute("SELECT count(*) FROM tasks WHERE instr(agent_state, ?)", (b'"handle"',)).fetchone()
    return bool(found[0])


async def agent_at(web: httpx.AsyncClient, url: str, *, wait: bool = False) -> Agent:
    """The agent of a card. wait: until its server responds."""
    while True:
        try:
            card = await A2ACardResolver(web, url).get_agent_card()
        except Exception:
            if not wait:
                raise
            await asyncio.sleep(0.1)
        else:
            return Agent(web, card)


@contextmanager
def everything_over_http() -> Iterator[str]:
    """Runs server-everything over HTTP. Yields its URL."""
    port = free_port()
    command = ["npx", "--yes", EVERYTHING, "streamableHttp"]
    environment = {**os.environ, "PORT": str(port)}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            assert process.stderr is not None
            for line in process.stderr:
                if str(port) in line:
                    break
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            os.killpg(process.pid, 15)


async def main() -> bool:
    where, good = arguments(), True
    servers = {
        "time": (clock, "mcp-server-time over stdio", f"{sys.executable} -m mcp_server_time --local-timezone=UTC"),
        "stdio": (everything, "server-everything over stdio", f"npx --yes {EVERYTHING}"),
    }
    with ExitStack() as stack:
        url = stack.enter_context(everything_over_http())
        servers["http"] = (everything, "server-everything over HTTP", url)
        folder, port = Path(stack.enter_context(tempfile.TemporaryDirectory())), free_port()
        script = str(Path(__file__).with_name("tasks_server.py"))
        stack.enter_context(running([sys.executable, script, str(port), str(folder / "log")]))
        fast = f"fast=http://127.0.0.1:{port}/mcp"
        servers["fast"] = (tasks, "FastMCP over HTTP", fast.partition("=")[2])
        named = [part for id, (_, _, server) in servers.items() for part in ("--mcp", f"{id}={server}")]
        front = stack.enter_context(serving(where.project, *named))
        async with httpx.AsyncClient(timeout=60) as web:
            for id, (checks, title, _) in servers.items():
                agent = await agent_at(web, f"{front['http']}/{id}")
                while not agent.card.skills:  # it was served before it responded
                    await asyncio.sleep(0.2)
                    agent = await agent_at(web, f"{front['http']}/{id}")
                good &= await checks.run(title, agent)
        good &= await kills.run("FastMCP over HTTP", folder, where.project, fast)
    return good


if __name__ == "__main__":
    finish(asyncio.run(main()))
