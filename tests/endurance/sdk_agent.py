"""The same agent on a server of a2a-sdk 1.3.0, in its own environment: `--port PORT --public URL`.

Its card names the public URL, which is a proxy's. Prints `serving` when ready.
"""

from __future__ import annotations

import argparse
import asyncio

import uvicorn
from a2a.helpers import new_task_from_user_message, new_text_part
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import a2a_pb2 as pb
from starlette.applications import Starlette


class Slow(AgentExecutor):
    """Streams `COUNT` numbers as chunks of one artifact, with `SECONDS` between them."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        count, seconds = context.get_user_input().split()
        task = context.current_task or new_task_from_user_message(context.message)
        await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, task.id, task.context_id)
        await updater.start_work()
        for number in range(int(count)):
            part = new_text_part(f"{number} ")
            await updater.add_artifact([part], artifact_id="output", append=number > 0)
            await asyncio.sleep(float(seconds))
        await updater.complete()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        raise NotImplementedError


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--public", required=True)
    arguments = parser.parse_args()
    card = pb.AgentCard(name="Slow", description="Counts slowly", version="1")
    card.default_input_modes.append("text/plain")
    card.default_output_modes.append("text/plain")
    card.capabilities.streaming = True
    card.skills.add(id="slow", name="Slow", description="Counts slowly", tags=["slow"])
    card.supported_interfaces.add(protocol_binding="JSONRPC", url=arguments.public, protocol_version="1.0")
    handler = DefaultRequestHandler(agent_executor=Slow(), task_store=InMemoryTaskStore(), agent_card=card)
    app = Starlette(routes=[*create_agent_card_routes(card), *create_jsonrpc_routes(handler, "/")])
    server = uvicorn.Server(uvicorn.Config(app, port=arguments.port, log_level="warning", access_log=False))
    serve_task = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    print("serving", flush=True)
    await serve_task


if __name__ == "__main__":
    asyncio.run(main())
