"""An executor for a2a-sdk 1.x with the playground's commands: an upstream agent, and an executor of Dragoman."""

from __future__ import annotations

import asyncio

from a2a.helpers import new_data_part, new_raw_part, new_task_from_user_message, new_text_message, new_text_part
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.tasks import TaskUpdater
from a2a.types import a2a_pb2 as pb

DATA = {"hello": "world", "numbers": [1, 2, 3], "nested": {"true": True, "nothing": None}}

agent_card = pb.AgentCard(
    name="Words",
    description="Does what a message says",
    version="1",
    default_input_modes=["text/plain", "application/octet-stream"],
    default_output_modes=["text/plain"],
    capabilities=pb.AgentCapabilities(streaming=True),
)
"""Of the executor. An agent without skills."""


class Words(AgentExecutor):
    """Executes the command in the first word of a message."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        command, _, rest = context.get_user_input().partition(" ")
        if command == "reply":
            await event_queue.enqueue_event(new_text_message(rest, context_id=context.context_id))
            return None
        answers = context.current_task is not None
        task = context.current_task or new_task_from_user_message(context.message)
        if not answers:
            await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, task.id, task.context_id)
        await updater.start_work()

        def say(text: str) -> pb.Message:
            return updater.new_agent_message([new_text_part(text)])

        if answers:
            await updater.add_artifact([new_text_part(f"you said: {context.get_user_input()}")])
            await updater.complete()
            return None
        match command:
            case "stream":
                count, pause = map(int, rest.split())
                for number in range(1, count + 1):
                    part = new_text_part(f"chunk-{number} ")
                    await updater.add_artifact([part], artifact_id="output", append=number > 1)
                    await asyncio.sleep(pause / 1000)
            case "sleep":
                await updater.update_status(pb.TaskState.TASK_STATE_WORKING, say(f"sleeping for {rest} s"))
                await asyncio.sleep(float(rest))
            case "ask":
                return await updater.requires_input(say("what would you like to say?"))
            case "auth":
                return await updater.requires_auth(say("authenticate, then send anything"))
            case "fail":
                return await updater.failed(say("failing, as asked"))
            case "reject":
                return await updater.reject(say("rejecting, as asked"))
            case "file":
                part = new_raw_part(b"hello from the playground\n", filename="hello.txt", media_type="text/plain")
                await updater.add_artifact([part], name="hello.txt")
            case "data":
                await updater.add_artifact([new_data_part(DATA)])
            case "context":
                await updater.add_artifact([new_text_part(task.context_id)])
            case "echo":
                await updater.add_artifact([new_text_part(rest)])
            case "" if any(part.raw for part in context.message.parts):
                await updater.add_artifact(list(context.message.parts))
            case _:
                await updater.add_artifact([new_text_part(context.get_user_input())])
        await updater.complete()
        return None

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        updater = TaskUpdater(event_queue, context.task_id, context.context_id)
        await updater.cancel(updater.new_agent_message([new_text_part("canceled, as asked")]))
