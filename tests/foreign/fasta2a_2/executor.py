"""A Worker written for fasta2a 2.x, without knowledge of Dragoman."""

from __future__ import annotations

import asyncio
import os
import uuid
from typing import Any

from fasta2a import FastA2A, Worker
from fasta2a.broker import InMemoryBroker
from fasta2a.schema import Artifact, Message, Part, TaskIdParams, TaskSendParams
from fasta2a.storage import InMemoryStorage

app = FastA2A(
    storage=InMemoryStorage(),
    broker=InMemoryBroker(),
    name="Scripted one",
    description="Does what it is told",
    version="3.2.1",
    skills=[
        {
            "id": "echo",
            "name": "Echo",
            "description": "Says it back",
            "tags": ["text"],
            "examples": ["echo hello"],
            "input_modes": ["text/plain"],
            "output_modes": ["text/plain"],
        }
    ],
)


class ScriptedWorker(Worker[list[str]]):
    """Executes the command in the first word, and stores the words of a context."""

    async def run_task(self, params: TaskSendParams) -> None:
        task = await self.storage.load_task(params["id"])
        assert task is not None
        assert task["status"]["state"] == "submitted"
        word, _, rest = params["message"]["parts"][0]["text"].partition(" ")
        id, context = task["id"], task["context_id"]
        if word == "die":
            os._exit(3)
        await self.storage.update_task(id, state="working")
        words = await self.storage.load_context(context) or []
        await self.storage.update_context(context, [*words, word])
        artifacts = []
        if word == "stream":
            for number in range(int(rest)):
                await self.publish_artifact(id, context, text("output", f"{number} "), append=True, last_chunk=False)
            await self.publish_artifact(id, context, text("output", "end"), append=True)
            artifacts = [text("output", "".join(f"{number} " for number in range(int(rest))) + "end")]
        elif word == "parts":
            raw = Part(raw="AP8=", filename="two.bin", media_type="application/octet-stream")
            parts = [Part(data=[7], media_type="application/json"), raw, Part(url="https://files.example/x")]
            artifacts = [Artifact(artifact_id="parts", name="parts", parts=parts)]
        elif word == "label":
            task["metadata"] = {"model": {"a_name": "small", "list": [1, None]}, "percent": 50}
        elif word == "ask":
            await self.storage.update_task(id, state="input-required", new_messages=[agent_message("which one?")])
            return
        elif word == "sleep":
            await self.publish_artifact(id, context, text("begun", "it sleeps"))
            await asyncio.sleep(1000)
        elif word == "fail":
            await self.storage.update_task(id, state="failed")
            raise RuntimeError("that was wanted")
        elif word == "leave":
            return
        elif word == "words":
            artifacts = [text("words", " ".join(words))]
        elif len(task["history"]) > 1:
            texts = [part["text"] for message in task["history"][:-1] for part in message["parts"]]
            artifacts = [text("answer", f"after {texts}: {word}")]
        else:
            print("printed in the middle of a turn")
            artifacts = [text("echo", rest)]
        await self.storage.update_task(
            id, state="completed", new_artifacts=artifacts, new_messages=[agent_message("done")]
        )

    async def cancel_task(self, params: TaskIdParams) -> None:
        message = agent_message(f"cleaned up: {params['metadata']['why']}")
        await self.storage.update_task(params["id"], state="canceled", new_messages=[message])

    def build_message_history(self, history: list[Message]) -> list[Any]:
        return history

    def build_artifacts(self, result: Any) -> list[Artifact]:
        return []


class NeedsArguments(ScriptedWorker):
    def __init__(self, broker: Any, storage: Any, model: str) -> None:
        super().__init__(broker=broker, storage=storage)
        self.model = model


def make(broker: Any, storage: Any) -> NeedsArguments:
    return NeedsArguments(broker, storage, "made")


def text(id: str, words: str) -> Artifact:
    return Artifact(artifact_id=id, name=id, parts=[Part(text=words)])


def agent_message(words: str) -> Message:
    return Message(role="agent", parts=[Part(text=words)], message_id=str(uuid.uuid4()))
