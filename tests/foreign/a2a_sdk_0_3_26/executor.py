"""An AgentExecutor written for a2a-sdk 0.3, without knowledge of Dragoman."""

from __future__ import annotations

import asyncio
import base64
import os

from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.tasks import TaskUpdater
from a2a.types import (
    AgentCapabilities,
    AgentCard,
    AgentSkill,
    DataPart,
    FilePart,
    FileWithBytes,
    FileWithUri,
    Part,
    TaskState,
    TextPart,
)
from a2a.utils import new_agent_text_message, new_task

agent_card = AgentCard(
    name="Scripted one",
    description="Does what it is told",
    version="3.2.1",
    url="http://localhost:9999/",
    default_input_modes=["text/plain", "application/json", "application/octet-stream"],
    default_output_modes=["text/plain"],
    capabilities=AgentCapabilities(streaming=True),
    skills=[AgentSkill(id="echo", name="Echo", description="Says it back", tags=["text"], examples=["echo hello"])],
)


class ScriptedAgentExecutor(AgentExecutor):
    """Executes the command in the first word of the message."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        word, _, rest = context.get_user_input().partition(" ")
        if word == "message":
            await event_queue.enqueue_event(new_agent_text_message(f"a message: {rest}"))
            return
        if word == "die":
            os._exit(3)
        task = context.current_task
        if task is None:
            await event_queue.enqueue_event(new_task(context.message))
        updates = TaskUpdater(event_queue, context.task_id, context.context_id)
        await updates.start_work()
        if word == "stream":
            for number in range(int(rest)):
                await add(updates, "output", text(f"{number} "), append=number > 0, last=False)
            await add(updates, "output", text("end"), append=True)
        elif word == "parts":
            # Data is an object in 0.3; other values are wrapped, as in the SDK's own converters.
            data = Part(root=DataPart(data={"value": [7]}, metadata={"data_part_compat": True}))
            two = base64.b64encode(b"\x00\xff").decode()
            file = FileWithBytes(bytes=two, name="two.bin", mime_type="application/octet-stream")
            link = FileWithUri(uri="https://files.example/x")
            await add(updates, "parts", data, Part(root=FilePart(file=file)), Part(root=FilePart(file=link)))
        elif word == "label":
            labels = {"model": {"a_name": "small", "list": [1, None]}, "percent": 0}
            await event_queue.enqueue_event(new_task(context.message).model_copy(update={"metadata": labels}))
            await updates.update_status(TaskState.working, metadata={"percent": 50})
        elif word == "ask":
            question = new_agent_text_message("which one?", context.context_id, context.task_id)
            await updates.requires_input(question, final=True)
            return
        elif word == "auth":
            question = new_agent_text_message("log in first", context.context_id, context.task_id)
            await updates.requires_auth(question, final=True)
            return
        elif word == "sleep":
            await add(updates, "begun", text("it sleeps"))
            await asyncio.sleep(1000)
        elif word == "fail":
            raise RuntimeError("that was wanted")
        elif word == "leave":
            return
        elif word == "who":
            user = context.call_context.user
            await add(updates, "who", text(f"{user.is_authenticated} {user.user_name}"))
        elif task is not None:
            # In 0.3 the history includes the current message.
            texts = [part.root.text for message in task.history[:-1] for part in message.parts]
            await add(updates, "answer", text(f"after {texts}: {word}"))
        else:
            print("printed in the middle of a turn")
            await add(updates, "echo", text(rest))
        await updates.complete(new_agent_text_message("done", context.context_id, context.task_id))

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        updates = TaskUpdater(event_queue, context.task_id, context.context_id)
        message = new_agent_text_message(f"cleaned up: {context.metadata['why']}", context.context_id, context.task_id)
        await updates.update_status(TaskState.canceled, message, final=True)


class NeedsArguments(ScriptedAgentExecutor):
    def __init__(self, model: str) -> None:
        self.model = model


def make() -> NeedsArguments:
    return NeedsArguments("made")


async def add(updates: TaskUpdater, id: str, *parts: Part, append: bool = False, last: bool = True) -> None:
    await updates.add_artifact(list(parts), artifact_id=id, name=id, append=append, last_chunk=last)


def text(value: str) -> Part:
    return Part(root=TextPart(text=value))
