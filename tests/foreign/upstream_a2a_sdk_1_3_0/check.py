"""An agent of a2a-sdk 1.3.0 behind a Dragoman, over each of its bindings, with the playground's commands."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import grpc
import httpx
import uvicorn

sys.path.insert(0, str(Path(__file__).parents[1]))

from a2a.server.request_handlers import DefaultRequestHandler, GrpcHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes, create_rest_routes
from a2a.server.tasks import InMemoryTaskStore
from a2a.types import a2a_pb2 as pb
from a2a.types.a2a_pb2_grpc import add_A2AServiceServicer_to_server
from checks import arguments, finish, serving
from fronted import Front, check
from starlette.applications import Starlette
from starlette.routing import BaseRoute, Mount
from words import Words

from calling import called

BINDINGS = {"rpc": "JSONRPC", "rest": "HTTP+JSON", "post": "HTTP+JSON", "grpc": "GRPC"}
"""The binding of each agent. `post` takes subscriptions as the servers in Go, Java and .NET do: only with POST."""


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
