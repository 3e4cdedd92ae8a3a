"""fasta2a's server with the agents of this benchmark: storage and broker in memory, one worker.

Runs in its own environment: server.py PORT_FILE. It supports JSON-RPC only.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import uvicorn
import uvloop
from fasta2a import FastA2A, Worker
from fasta2a.broker import InMemoryBroker
from fasta2a.schema import Artifact, Message, TaskIdParams, TaskSendParams
from fasta2a.storage import InMemoryStorage

TEXT = "thirty-two bytes of message text"


def artifact(text: str) -> Artifact:
    return Artifact(artifact_id="output", parts=[{"text": text}])


class Agents(Worker[None]):
    """Executes the command in the first word of a message; echoes any other text."""

    async def run_task(self, params: TaskSendParams) -> None:
        text = "".join(part.get("text", "") for part in params["message"]["parts"])
        match text.split():
            case ["chunks", count]:
                await self._chunks(params, int(count))
            case ["talk", count]:
                response = [self._message() for _ in range(int(count))]
                await self.storage.update_task(params["id"], "completed", new_messages=response)
            case ["ticks", count, go]:
                while not Path(go).exists():
                    await asyncio.sleep(0.005)
                await self._chunks(params, int(count))
            case ["ask"]:
                await self.storage.update_task(params["id"], "input-required")
            case _:
                await self.storage.update_task(params["id"], "completed", [artifact(text)])

    async def cancel_task(self, params: TaskIdParams) -> None:
        raise NotImplementedError

    def build_message_history(self, history: list[Message]) -> list[Any]:
        return list(history)

    def build_artifacts(self, result: Any) -> list[Artifact]:
        return [artifact(str(result))]

    async def _chunks(self, params: TaskSendParams, count: int) -> None:
        texts = [f"chunk-{number} " for number in range(count)]
        for number, text in enumerate(texts):
            await self.publish_artifact(
                params["id"], params["context_id"], artifact(text), append=number > 0, last_chunk=False
            )
        await self.storage.update_task(params["id"], "completed", [artifact("".join(texts))])

    def _message(self) -> Message:
        return Message(role="agent", parts=[{"text": TEXT}], message_id=str(uuid.uuid4()))


async def main(port_file: str) -> None:
    storage, broker = InMemoryStorage[None](), InMemoryBroker()

    @asynccontextmanager
    async def lifespan(app: FastA2A) -> AsyncIterator[None]:
        async with app.task_manager, Agents(broker=broker, storage=storage).run():
            yield

    app = FastA2A(storage=storage, broker=broker, lifespan=lifespan)
    web = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning", access_log=False))
    serving = asyncio.create_task(web.serve())
    while not web.started:
        await asyncio.sleep(0.005)
    reported = {"http": f"127.0.0.1:{web.servers[0].sockets[0].getsockname()[1]}"}
    Path(port_file).write_text(json.dumps(reported) + "\n", "utf-8")
    await serving


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("port_file")
    uvloop.run(main(parser.parse_args().port_file))
