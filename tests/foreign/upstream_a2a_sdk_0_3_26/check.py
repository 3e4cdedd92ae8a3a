"""An agent of a2a-sdk 0.3.26 behind a Dragoman, over each of its transports, with the playground's commands."""

from __future__ import annotations

import asyncio
import base64
import sys
import tempfile
from functools import partial
from pathlib import Path

import grpc
import httpx
import uvicorn

sys.path.insert(0, str(Path(__file__).parents[1]))

from a2a.grpc import a2a_pb2_grpc
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.apps import A2ARESTFastAPIApplication, A2AStarletteApplication
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler, GrpcHandler
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import (
    AgentCapabilities,
    AgentCard,
    AgentSkill,
    DataPart,
    FilePart,
    FileWithBytes,
    Message,
    Part,
    TaskState,
    TextPart,
)
from a2a.utils import new_agent_text_message, new_task
from checks import arguments, finish, serving
from fronted import Front, check
from starlette.applications import Starlette
from starlette.routing import Mount

from calling import called

DATA = {"hello": "world", "numbers": [1, 2, 3], "nested": {"true": True, "nothing": None}}
TRANSPORTS = {"rpc": "JSONRPC", "rest": "HTTP+JSON", "grpc": "GRPC"}


def copy(part: Part) -> Part:
    """The part, with a file decoded and encoded again: it fails if the file is not base64."""
    file = part.root.file
    content = base64.b64encode(base64.b64decode(file.bytes, validate=True)).decode()
    return Part(root=FilePart(file=FileWithBytes(bytes=content, name=file.name, mime_type=file.mime_type)))


def text(value: str) -> Part:
    return Part(root=TextPart(text=value))


class Words(AgentExecutor):
    """Executes the command in the first word of a message."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        command, _, rest = context.get_user_input().partition(" ")
        if command == "reply":
            await event_queue.enqueue_event(new_agent_text_message(rest, context.context_id))
            return None
        answers = context.current_task is not None
        task = context.current_task or new_task(context.message)
        if not answers:
            await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, task.id, task.context_id)
        await updater.start_work()

        def say(value: str) -> Message:
            return updater.new_agent_message([text(value)])

        if answers:
            await updater.add_artifact([text(f"you said: {context.get_user_input()}")])
            await updater.complete()
            return None
        match command:
            case "stream":
                count, pause = map(int, rest.split())
                for number in range(1, count + 1):
                    await updater.add_artifact([text(f"chunk-{number} ")], artifact_id="output", append=number > 1)
                    await asyncio.sleep(pause / 1000)
            case "sleep":
                await updater.update_status(TaskState.working, say(f"sleeping for {rest} s"))
                await asyncio.sleep(float(rest))
            case "ask":
                return await updater.requires_input(say("what would you like to say?"), final=True)
            case "auth":
                return await updater.requires_auth(say("authenticate, then send anything"), final=True)
            case "fail":
                return await updater.failed(say("failing, as asked"))
            case "reject":
                return await updater.reject(say("rejecting, as asked"))
            case "file":
                content = base64.b64encode(b"hello from the playground\n").decode()
                file = FileWithBytes(bytes=content, name="hello.txt", mime_type="text/plain")
                await updater.add_artifact([Part(root=FilePart(file=file))], name="hello.txt")
            case "data":
                await updater.add_artifact([Part(root=DataPart(data=DATA))])
            case "context":
                await updater.add_artifact([text(task.context_id)])
            case "echo":
                await updater.add_artifact([text(rest)])
            case "" if any(isinstance(part.root, FilePart) for part in context.message.parts):
                await updater.add_artifact([copy(part) for part in context.message.parts])
            case _:
                await updater.add_artifact([text(context.get_user_input())])
        await updater.complete()
        return None

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        updater = TaskUpdater(event_queue, context.task_id, context.context_id)
        await updater.cancel(updater.new_agent_message([text("canceled, as asked")]))


def card(transport: str, url: str) -> AgentCard:
    return AgentCard(
        name=f"Words {transport}",
        description="Does what a message says",
        version="1",
        url=url,
        preferred_transport=transport,
        capabilities=AgentCapabilities(streaming=True),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[AgentSkill(id="words", name="Words", description="Does what a message says", tags=["words"])],
    )


def upstream(name: str, url: str) -> str:
    """The table of an upstream, as its files need it: this SDK has base64 text where the proto has bytes."""
    return f'[[upstream]]\nid = "{name}"\nurl = "{url}"\nv03_files = "base64"\n'


async def main() -> bool:
    where, good = arguments(), True
    handler = DefaultRequestHandler(agent_executor=Words(), task_store=InMemoryTaskStore())
    server = grpc.aio.server()
    port = server.add_insecure_port("127.0.0.1:0")
    app = Starlette()
    web = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning", access_log=False))
    running = asyncio.create_task(web.serve())
    while not web.started:
        await asyncio.sleep(0.01)
    url = f"http://127.0.0.1:{web.servers[0].sockets[0].getsockname()[1]}"
    at = {"rpc": f"{url}/rpc/", "rest": f"{url}/rest", "grpc": f"127.0.0.1:{port}"}
    cards = {name: card(transport, at[name]) for name, transport in TRANSPORTS.items()}
    a2a_pb2_grpc.add_A2AServiceServicer_to_server(GrpcHandler(cards["grpc"], handler), server)
    await server.start()
    app.router.routes += [
        Mount("/rpc", app=A2AStarletteApplication(cards["rpc"], handler).build()),
        Mount("/rest", app=A2ARESTFastAPIApplication(cards["rest"], handler).build()),
        Mount("/grpc", app=A2AStarletteApplication(cards["grpc"], handler).build()),
    ]
    with tempfile.TemporaryDirectory() as folder:
        settings = Path(folder) / "dragoman.toml"
        settings.write_text("".join(upstream(name, f"{url}/{name}") for name in TRANSPORTS), "utf-8")
        front = serving(where.project, "--config", str(settings))
        serves = await asyncio.to_thread(front.__enter__)
        async with httpx.AsyncClient(timeout=60) as caller:
            for name, transport in TRANSPORTS.items():
                good &= await check.run(f"0.3 over {transport}", Front(caller, serves["http"], name))
        await asyncio.to_thread(front.__exit__, None, None, None)
    for name, transport in TRANSPORTS.items():
        call = partial(called, where.project, f"{url}/{name}", f"0.3 over {transport}", files="base64")
        good &= await asyncio.to_thread(call)
    web.should_exit = True
    await running
    await server.stop(None)
    return good


if __name__ == "__main__":
    finish(asyncio.run(main()))
