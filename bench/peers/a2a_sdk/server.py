"""a2a-sdk's server with the agents of this benchmark, built as in its documentation: gRPC, REST and JSON-RPC.

Runs in its own environment: server.py PORT_FILE [--database FILE] [--tasks N]. Both transports share one uvloop.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from pathlib import Path

import grpc
import uvicorn
import uvloop
from a2a.helpers import new_task_from_user_message, new_text_part
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.context import ServerCallContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler, GrpcHandler
from a2a.server.routes import create_jsonrpc_routes, create_rest_routes
from a2a.server.tasks import DatabaseTaskStore, InMemoryTaskStore, TaskStore, TaskUpdater
from a2a.types import a2a_pb2 as pb
from a2a.types.a2a_pb2_grpc import add_A2AServiceServicer_to_server
from sqlalchemy import insert
from sqlalchemy.ext.asyncio import create_async_engine
from starlette.applications import Starlette

TEXT = "thirty-two bytes of message text"
WORKING = pb.TaskState.TASK_STATE_WORKING
COMPLETED = pb.TaskState.TASK_STATE_COMPLETED
FAILED = pb.TaskState.TASK_STATE_FAILED


class Agents(AgentExecutor):
    """Executes the command in the first word of a message; echoes any other text."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        task = new_task_from_user_message(context.message)
        await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, task.id, task.context_id)
        match context.get_user_input().split():
            case ["chunks", count]:
                await self._chunks(updater, int(count))
            case ["talk", count]:
                for _ in range(int(count)):
                    await updater.update_status(WORKING, updater.new_agent_message([new_text_part(TEXT)]))
            case ["ticks", count, go]:
                while not Path(go).exists():
                    await asyncio.sleep(0.005)
                await self._chunks(updater, int(count))
            case ["ask"]:
                await updater.requires_input(updater.new_agent_message([new_text_part(TEXT)]))
                return
            case _:
                await updater.add_artifact([new_text_part(context.get_user_input())])
        await updater.complete()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        raise NotImplementedError

    async def _chunks(self, updater: TaskUpdater, count: int) -> None:
        for number in range(count):
            await updater.add_artifact([new_text_part(f"chunk-{number} ")], artifact_id="output", append=number > 0)


def stored(number: int, state: pb.TaskState) -> pb.Task:
    """Returns a finished task for `fill`."""
    task = pb.Task(id=f"00000000-0000-4000-8000-{number:012x}", context_id="filled")
    task.status.state = state
    task.status.timestamp.FromMilliseconds(1_760_000_000_000 + number)
    task.artifacts.add(artifact_id="output", parts=[pb.Part(text=TEXT)])
    task.history.add(message_id="m", role="ROLE_USER", parts=[pb.Part(text=TEXT)])
    return task


async def fill(store: TaskStore, completed: int) -> None:
    """Stores COMPLETED tasks and a tenth as many FAILED ones; in the database in bulk, as its own rows."""
    if isinstance(store, DatabaseTaskStore):
        await store.initialize()  # otherwise its first requests race to create the table, and some fail
    if not completed:
        return
    tasks = (
        stored(number, FAILED if number % 11 == 10 else COMPLETED) for number in range(completed + completed // 10)
    )
    context = ServerCallContext()
    if not isinstance(store, DatabaseTaskStore):
        for task in tasks:
            await store.save(task, context)
        return
    owner = store.owner_resolver(context)
    columns = [column.key for column in store.task_model.__mapper__.column_attrs]
    models = (store._to_orm(task, owner) for task in tasks)
    rows = [{name: getattr(model, name) for name in columns} for model in models]
    async with store.engine.begin() as connection:
        await connection.execute(insert(store.task_model), rows)


def card() -> pb.AgentCard:
    found = pb.AgentCard(name="bench", description="bench", version="1", default_input_modes=["text/plain"])
    found.default_output_modes.append("text/plain")
    found.capabilities.streaming = True
    found.skills.add(id="echo", name="echo", description="echo", tags=["echo"])
    for binding in ("GRPC", "HTTP+JSON", "JSONRPC"):
        found.supported_interfaces.add(protocol_binding=binding, url="http://127.0.0.1", protocol_version="1.0")
    return found


async def main(arguments: argparse.Namespace) -> None:
    store: TaskStore = InMemoryTaskStore()
    if arguments.database:
        # With the default timeout of 5 s, 16 concurrent streams sometimes fail: "database is locked".
        engine = create_async_engine(f"sqlite+aiosqlite:///{arguments.database}", connect_args={"timeout": 60})
        store = DatabaseTaskStore(engine)
    await fill(store, arguments.tasks)
    handler = DefaultRequestHandler(agent_executor=Agents(), task_store=store, agent_card=card())
    server = grpc.aio.server()
    add_A2AServiceServicer_to_server(GrpcHandler(handler), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    app = Starlette(routes=[*create_jsonrpc_routes(handler, "/"), *create_rest_routes(handler)])
    web = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning", access_log=False))
    serving = asyncio.create_task(web.serve())
    while not web.started:
        await asyncio.sleep(0.005)
    http = web.servers[0].sockets[0].getsockname()[1]
    reported = {"grpc": f"127.0.0.1:{port}", "http": f"127.0.0.1:{http}"}
    Path(arguments.port_file).write_text(json.dumps(reported) + "\n", "utf-8")
    await serving


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("port_file")
    parser.add_argument("--database", help="keep tasks in this SQLite file; in memory otherwise")
    parser.add_argument("--tasks", type=int, default=0, help="number of finished tasks to store first")
    uvloop.run(main(parser.parse_args()))
