"""A fasta2a agent with the playground's commands, as far as its workers support them, called by our client.

`parts` says how a version writes them: `text(words)`, `raw(base64, name, type)`, `data(value)`.
"""

from __future__ import annotations

import asyncio
import uuid
from argparse import Namespace
from typing import Any

import uvicorn
from checks import arguments
from fasta2a import FastA2A, Worker
from fasta2a.broker import InMemoryBroker
from fasta2a.storage import InMemoryStorage

from calling import called

DATA = {"hello": "world", "numbers": [1, 2, 3], "nested": {"true": True, "nothing": None}}


class Words(Worker[list[str]]):
    """Executes the command in the first word of a message."""

    parts: Namespace

    async def run_task(self, params: Any) -> None:
        task = await self.storage.load_task(params["id"])
        id, context = task["id"], task["context_id"]
        command, _, rest = params["message"]["parts"][0]["text"].partition(" ")
        await self.storage.update_task(id, state="working")
        before = await self.storage.load_context(context) or []
        await self.storage.update_context(context, [command])
        parts = [self.parts.text(rest)]
        if before == ["ask"]:
            parts = [self.parts.text(f"you said: {params['message']['parts'][0]['text']}")]
        elif command == "ask":
            question = {"role": "agent", "parts": [self.parts.text("what would you like to say?")]}
            question |= {"message_id": str(uuid.uuid4()), **self.parts.kind}
            await self.storage.update_task(id, state="input-required", new_messages=[question])
            return
        elif command == "stream":
            count, pause = map(int, rest.split())
            for number in range(1, count + 1):
                part = self.parts.text(f"chunk-{number} ")
                if hasattr(self, "publish_artifact"):
                    chunk = {"artifact_id": "output", "parts": [part]}
                    await self.publish_artifact(id, context, chunk, append=number > 1, last_chunk=number == count)
                await asyncio.sleep(pause / 1000)
            parts = [self.parts.text("".join(f"chunk-{n} " for n in range(1, count + 1)))]
        elif command == "fail":
            raise RuntimeError("failing, as asked")
        elif command == "file":
            parts = [self.parts.raw("aGVsbG8gZnJvbSB0aGUgcGxheWdyb3VuZAo=", "hello.txt", "text/plain")]
        elif command == "data":
            parts = [self.parts.data(DATA)]
        artifact = {"artifact_id": "output", "parts": parts}
        await self.storage.update_task(id, state="completed", new_artifacts=[artifact])

    async def cancel_task(self, params: Any) -> None:
        await self.storage.update_task(params["id"], state="canceled")

    def build_message_history(self, history: list[Any]) -> list[Any]:
        return history

    def build_artifacts(self, result: Any) -> list[Any]:
        return []


async def serve_and_call(title: str, parts: Namespace, *without: str) -> bool:
    """Serves the agent in this process and runs the checks. Returns whether all passed."""
    storage, broker = InMemoryStorage(), InMemoryBroker()
    worker = Words(broker=broker, storage=storage)
    worker.parts = parts
    skill = {"id": "w", "name": "Words", "description": "x", "tags": ["words"], "examples": ["echo hello"]}
    skill |= {"input_modes": ["text/plain"], "output_modes": ["text/plain"]}
    app = FastA2A(storage=storage, broker=broker, name="Words", description="Does it", skills=[skill])
    web = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning", access_log=False, lifespan="off"))
    async with app.task_manager, worker.run():
        running = asyncio.create_task(web.serve())
        while not web.started:
            await asyncio.sleep(0.01)
        app.url = f"http://127.0.0.1:{web.servers[0].sockets[0].getsockname()[1]}"
        good = await asyncio.to_thread(
            called, arguments().project, app.url, title, "message", "cancel", "upload", *without
        )
        web.should_exit = True
        await running
    return good
