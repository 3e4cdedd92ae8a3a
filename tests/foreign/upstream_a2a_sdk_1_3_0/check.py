"""An agent of a2a-sdk 1.3.0 behind a Dragoman, over each of its bindings, with the playground's commands."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import grpc
import httpx
import uvicorn

sys.path.insert(0, str(Path(__file__).parents[1]))

from a2a.helpers import new_data_part, new_raw_part, new_task_from_user_message, new_text_message, new_text_part
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler, GrpcHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes, create_rest_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import a2a_pb2 as pb
from a2a.types.a2a_pb2_grpc import add_A2AServiceServicer_to_server
from checks import arguments, finish, serving
from fronted import Front, check
from starlette.applications import Starlette
from starlette.routing import BaseRoute, Mount

from calling import called

DATA = {"hello": "world", "numbers": [1, 2, 3], "nested": {"true": True, "nothing": None}}
BINDINGS = {"rpc": "JSONRPC", "rest": "HTTP+JSON", "post": "HTTP+JSON", "grpc": "GRPC"}
"""The binding of each agent. `post` takes subscriptions as the servers in Go, Java and .NET do: only with POST."""


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


def card(binding: str, url: str) -> pb.AgentCard:
    card = pb.AgentCard(name=f"Words {binding}", description="Does what a message says", version="1")
    card.default_input_modes.append("text/plain")
    card.default_output_modes.append("text/plain")
    card.capabilities.streaming = True
    card.skills.add(id="words", name="Words", description="Does what a message says", tags=["words"])
    card.supported_interfaces.add(protocol_binding=binding, url=url, protocol_version="1.0")
    return card


def titled(name: str) -> str:
    return f"1.0 over {BINDINGS[name]}" + (", subscriptions only with POST" if name == "post" else "")


def without_get_subscriptions(routes: list[BaseRoute]) -> list[BaseRoute]:
    """The routes less those that subscribe with GET. Raises ValueError if there are none."""
    kept = [route for route in routes if not (route.path.endswith(":subscribe") and "GET" in route.methods)]
    if len(kept) == len(routes):
        raise ValueError("no route subscribes with GET")
    return kept


async def main() -> bool:
    where, good = arguments(), True
    whole = card("JSONRPC", "http://127.0.0.1")
    handler = DefaultRequestHandler(agent_executor=Words(), task_store=InMemoryTaskStore(), agent_card=whole)
    server = grpc.aio.server()
    add_A2AServiceServicer_to_server(GrpcHandler(handler), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    app = Starlette(routes=[Mount("/rpc-calls", routes=create_jsonrpc_routes(handler, "/"))])
    web = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning", access_log=False))
    running = asyncio.create_task(web.serve())
    while not web.started:
        await asyncio.sleep(0.01)
    url = f"http://127.0.0.1:{web.servers[0].sockets[0].getsockname()[1]}"
    at = {"rpc": f"{url}/rpc-calls/", "rest": f"{url}/rest-calls", "post": f"{url}/post-calls"}
    at["grpc"] = f"127.0.0.1:{port}"
    app.router.routes.append(Mount("/rest-calls", routes=create_rest_routes(handler)))
    app.router.routes.append(Mount("/post-calls", routes=without_get_subscriptions(create_rest_routes(handler))))
    for name, binding in BINDINGS.items():
        app.router.routes.append(Mount(f"/{name}", routes=create_agent_card_routes(card(binding, at[name]))))
    named = [part for name in BINDINGS for part in ("--upstream", f"{name}={url}/{name}")]
    front = serving(where.project, *named)
    serves = await asyncio.to_thread(front.__enter__)
    async with httpx.AsyncClient(timeout=60) as caller:
        for name in BINDINGS:
            good &= await check.run(titled(name), Front(caller, serves["http"], name))
    await asyncio.to_thread(front.__exit__, None, None, None)
    for name in BINDINGS:
        good &= await asyncio.to_thread(called, where.project, f"{url}/{name}", titled(name))
    web.should_exit = True
    await running
    await server.stop(None)
    return good


if __name__ == "__main__":
    finish(asyncio.run(main()))
