"""Helpers that read tasks through a client."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from aiohttp import ClientSession

from dragoman.client.calls import Client
from dragoman.core.task import states
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

NOW: Final = pb.SendMessageConfiguration(return_immediately=True)
"""Does not wait for the turn."""

STATE_TIMEOUT: Final = 60.0


def text_of(artifact: pb.Artifact) -> str:
    """The text of its parts."""
    return "".join(part.text for part in artifact.parts)


def texts(task: pb.Task) -> dict[str, str]:
    """The text of each artifact, by id."""
    return {artifact.artifact_id: text_of(artifact) for artifact in task.artifacts}


def status_text(task: pb.Task) -> str:
    """The text of the status message. Fails if the message does not name its task and context."""
    message = task.status.message
    assert not message.parts or (message.task_id, message.context_id) == (task.id, task.context_id)
    return "".join(part.text for part in message.parts)


async def tasks_in(http: str, context: str) -> list[Any]:
    """The tasks of a conversation at a server, the newest first, as JSON."""
    url = f"{http}/tasks?includeArtifacts=true&contextId={context}"
    async with ClientSession(headers={"A2A-Version": "1.0"}) as session, session.get(url) as response:
        return list((await response.json())["tasks"])


async def wait_for_state(client: Client, task: str, state: int) -> pb.Task:
    """Waits until the task has been in a state, and returns it."""
    async with asyncio.timeout(STATE_TIMEOUT):
        async for event in client.subscribe(task, after="0"):
            if state in (event.task.status.state, event.status_update.status.state):
                return await client.get(task)
    raise AssertionError(f"the stream ended before {states.name(state)}: {await client.get(task)}")


async def wait_for_text(client: Client, task: str, text: str = "") -> str:
    """Waits for a status message that contains `text`, and returns its text."""
    async with asyncio.timeout(STATE_TIMEOUT):
        async for event in client.subscribe(task, after="0"):
            found = "".join(part.text for part in event.status_update.status.message.parts)
            if found and text in found:
                return found
    raise AssertionError(f"the stream ended before the text {text!r}: {await client.get(task)}")
