"""MCP servers from package registries, served as A2A agents, and called by a2a-sdk 1.3.0.

`mcp-server-time` from PyPI speaks 2026-07-28, `@modelcontextprotocol/server-everything` from npm the versions with a
handshake, over stdio and over HTTP.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import httpx
from a2a.client import A2ACardResolver, Client, ClientConfig, ClientFactory
from a2a.types import a2a_pb2 as pb
from checks import Checks, arguments, finish, serving
from google.protobuf.json_format import MessageToDict, ParseDict

EVERYTHING = "@modelcontextprotocol/server-everything@2026.8.31"
START_LIMIT = 120.0

clock = Checks()
everything = Checks()


class Agent:
    """One agent, called with the SDK's client, which finds it by its card."""

    def __init__(self, card: pb.AgentCard, client: Client) -> None:
        self.card = card
        self._client = client

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
        return await self._client.get_task(pb.GetTaskRequest(id=id))

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


# ----------------------------------------------------------------------------------------------------------------------


@contextmanager
def everything_over_http() -> Iterator[str]:
    """Runs server-everything over HTTP. Yields its URL."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
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
        "time": (clock, f"{sys.executable} -m mcp_server_time --local-timezone=UTC"),
        "stdio": (everything, f"npx --yes {EVERYTHING}"),
    }
    with ExitStack() as stack:
        servers["http"] = (everything, stack.enter_context(everything_over_http()))
        named = [part for id, (_, server) in servers.items() for part in ("--mcp", f"{id}={server}")]
        front = stack.enter_context(serving(where.project, *named))
        async with httpx.AsyncClient(timeout=60) as web:
            factory = ClientFactory(ClientConfig(httpx_client=web))
            for id, (checks, _) in servers.items():
                card = await A2ACardResolver(web, f"{front['http']}/{id}").get_agent_card()
                title = "mcp-server-time over stdio" if id == "time" else f"server-everything over {id}"
                good &= await checks.run(title, Agent(card, factory.create(card)))
    return good


if __name__ == "__main__":
    finish(asyncio.run(main()))
