"""A Worker written for fasta2a 0.2, without knowledge of Dragoman."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from fasta2a import FastA2A, Worker
from fasta2a.broker import InMemoryBroker
from fasta2a.schema import Artifact, DataPart, FilePart, Message, TaskIdParams, TaskSendParams, TextPart
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


class ScriptedWorker(Worker):
    """Executes the command in the first word."""

    async def run_task(self, params: TaskSendParams) -> None:
        task = await self.storage.load_task(params["id"])
        assert task is not None
        assert task["status"]["state"] == "submitted"
        assert task["session_id"] == params["session_id"]
        word, _, rest = params["message"]["parts"][0]["text"].partition(" ")
        id = task["id"]
        if word == "die":
            os._exit(3)
        await self.storage.update_task(id, state="working")
        artifacts = []
        if word == "stream":
            for number in range(int(rest)):
                chunk = text(0, "output", f"{number} ")
                chunk["append"], chunk["last_chunk"] = number > 0, False
                await self.storage.update_task(id, state="working", artifacts=[chunk])
            last = text(0, "output", "end")
            last["append"] = True
            artifacts = [last]
        elif word == "parts":
            data = DataPart(type="data", data={"value": [7]}, metadata={"data_part_compat": True})
            raw = FilePart(
                type="file", file={"data": "AP8=", "mime_type": "application/octet-stream", "name": "two.bin"}
            )
            link = FilePart(type="file", file={"url": "https://files.example/x", "mime_type": "text/plain"})
            artifacts = [Artifact(index=0, name="parts", parts=[data, raw, link])]
        elif word == "two":  # of one index: fasta2a keeps both
            artifacts = [text(0, "first", "one"), text(0, "second", "two")]
        elif word == "session":
            artifacts = [text(0, "session", task["session_id"])]
        elif word == "label":
            task["metadata"] = {"model": {"a_name": "small", "list": [1, None]}, "percent": 50}
        elif word == "ask":
            await self.storage.update_task(id, state="input-required", message=agent_message("which one?"))
            return
        elif word == "sleep":
            await self.storage.update_task(id, state="working", artifacts=[text(0, "begun", "it sleeps")])
            await asyncio.sleep(1000)
        elif word == "fail":
            await self.storage.update_task(id, state="failed")
            raise RuntimeError("that was wanted")
        elif word == "leave":
            return
        elif len(task["history"]) > 1:
            texts = [part["text"] for message in task["history"][:-1] for part in message["parts"]]
            artifacts = [text(0, "answer", f"after {texts}: {word}")]
        else:
            print("printed in the middle of a turn")
            artifacts = [text(0, "echo", rest)]
        await self.storage.update_task(id, state="completed", artifacts=artifacts, message=agent_message("done"))

    async def cancel_task(self, params: TaskIdParams) -> None:
        message = agent_message(f"cleaned up: {params['metadata']['why']}")
        await self.storage.update_task(params["id"], state="canceled", message=message)

    def build_message_history(self, task_history: list[Message]) -> list[Any]:
        return task_history

    def build_artifacts(self, result: Any) -> list[Artifact]:
        return []


def text(index: int, name: str, words: str) -> Artifact:
    return Artifact(index=index, name=name, parts=[TextPart(type="text", text=words)])


def agent_message(words: str) -> Message:
    return Message(role="agent", parts=[TextPart(type="text", text=words)])
