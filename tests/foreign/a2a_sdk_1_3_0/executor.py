"""An AgentExecutor written for a2a-sdk 1.x, without knowledge of Dragoman."""

from __future__ import annotations

import asyncio
import os

from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.types import a2a_pb2 as pb

agent_card = pb.AgentCard(
    name="Scripted one",
    description="Does what it is told",
    version="3.2.1",
    default_input_modes=["text/plain", "application/json", "application/octet-stream"],
    default_output_modes=["text/plain"],
    capabilities=pb.AgentCapabilities(streaming=True, push_notifications=True),
    skills=[pb.AgentSkill(id="echo", name="Echo", description="Says it back", tags=["text"], examples=["echo hello"])],
)


class Updates:
    """The events of one task, by short names."""

    def __init__(self, context: RequestContext, queue: EventQueue) -> None:
        self._ids = {"task_id": context.task_id, "context_id": context.context_id}
        self._queue = queue

    async def begin(self, message: pb.Message) -> None:
        status = pb.TaskStatus(state=pb.TASK_STATE_SUBMITTED)
        ids = {"id": self._ids["task_id"], "context_id": self._ids["context_id"]}
        await self._queue.enqueue_event(pb.Task(**ids, status=status, history=[message]))

    async def status(self, state: int, text: str = "") -> None:
        status = pb.TaskStatus(state=state)
        if text:
            status.message.CopyFrom(agent_message(text))
        await self._queue.enqueue_event(pb.TaskStatusUpdateEvent(**self._ids, status=status))

    async def artifact(self, id: str, *parts: pb.Part, append: bool = False, last: bool = True) -> None:
        artifact = pb.Artifact(artifact_id=id, name=id, parts=parts)
        event = pb.TaskArtifactUpdateEvent(**self._ids, artifact=artifact, append=append, last_chunk=last)
        await self._queue.enqueue_event(event)


class ScriptedAgentExecutor(AgentExecutor):
    """Executes the command in the first word of the message."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        word, _, rest = context.get_user_input().partition(" ")
        updates = Updates(context, event_queue)
        if word == "message":
            await event_queue.enqueue_event(agent_message(f"a message: {rest}"))
            return
        if word == "die":
            os._exit(3)
        task = context.current_task
        if task is None:
            await updates.begin(context.message)
        await updates.status(pb.TASK_STATE_WORKING)
        if word == "stream":
            for number in range(int(rest)):
                await updates.artifact("output", pb.Part(text=f"{number} "), append=number > 0, last=False)
            await updates.artifact("output", pb.Part(text="end"), append=True)
        elif word == "parts":
            data = pb.Part(media_type="application/json")
            data.data.list_value.values.add().number_value = 7
            raw = pb.Part(raw=b"\x00\xff", filename="two.bin", media_type="application/octet-stream")
            await updates.artifact("parts", data, raw, pb.Part(url="https://files.example/x"))
        elif word == "label":
            status = pb.TaskStatus(state=pb.TASK_STATE_WORKING)
            labels = {"model": {"a_name": "small", "list": [1, None]}, "percent": 0}
            ids = {"id": context.task_id, "context_id": context.context_id}
            await event_queue.enqueue_event(pb.Task(**ids, status=status, metadata=labels))
            ids = {"task_id": context.task_id, "context_id": context.context_id}
            update = pb.TaskStatusUpdateEvent(**ids, status=status, metadata={"percent": 50})
            await event_queue.enqueue_event(update)
        elif word == "ask":
            await updates.status(pb.TASK_STATE_INPUT_REQUIRED, "which one?")
            return
        elif word == "auth":
            await updates.status(pb.TASK_STATE_AUTH_REQUIRED, "log in first")
            return
        elif word == "sleep":
            await updates.artifact("begun", pb.Part(text="it sleeps"))
            await asyncio.sleep(1000)
        elif word == "fail":
            raise RuntimeError("that was wanted")
        elif word == "leave":
            return
        elif word == "who":
            user = context.call_context.user
            await updates.artifact("who", pb.Part(text=f"{user.is_authenticated} {user.user_name}"))
        elif task is not None:
            texts = [part.text for message in task.history for part in message.parts]
            await updates.artifact("answer", pb.Part(text=f"after {texts}: {word}"))
        else:
            print("printed in the middle of a turn")
            await updates.artifact("echo", pb.Part(text=rest))
        await updates.status(pb.TASK_STATE_COMPLETED, "done")

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        words = f"cleaned up: {context.metadata['why']}"
        await Updates(context, event_queue).status(pb.TASK_STATE_CANCELED, words)


class NeedsArguments(ScriptedAgentExecutor):
    def __init__(self, model: str) -> None:
        self.model = model


def make() -> NeedsArguments:
    return NeedsArguments("made")


def agent_message(text: str) -> pb.Message:
    return pb.Message(message_id=f"m-{text}", role=pb.ROLE_AGENT, parts=[pb.Part(text=text)])
