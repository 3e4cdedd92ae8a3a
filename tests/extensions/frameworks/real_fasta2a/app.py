"""A FastA2A application of fasta2a 0.2 or 0.5, without knowledge of Dragoman. Its worker runs other tasks, too."""

from __future__ import annotations

import asyncio
import inspect
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fasta2a import FastA2A, Worker
from fasta2a.broker import InMemoryBroker
from fasta2a.storage import InMemoryStorage, Storage

HAS_SESSIONS = "session_id" in inspect.signature(Storage.submit_task).parameters
CONTEXT, KIND = ("session_id", "type") if HAS_SESSIONS else ("context_id", "kind")


class RelayWorker(Worker):  # type: ignore[misc]  # mypy finds the stand-in
    """Executes the command in the first word."""

    async def run_task(self, params: Any) -> None:
        id, context = params["id"], params[CONTEXT]
        word, _, rest = params["message"]["parts"][0]["text"].partition(" ")
        await self.update(id, "working")
        if word == "relay":
            rest = await self.relay(context, rest)
        elif word == "submit":
            rest = (await self.submit(context, rest))["id"]
        elif word == "values":
            (_, part), metadata = params["message"]["parts"], params["message"].get("metadata")
            rest = repr((part["data"], metadata, params.get("metadata")))
        elif word == "load":
            rest = str(await self.storage.load_task(rest))
        elif word == "again":
            task = await self.storage.load_task(id)
            await self.storage.submit_task(id, context, task["history"][0])
        await self.update(id, "completed", rest)

    async def relay(self, context: str, text: str) -> str:
        """Runs another task, waits for its end, and returns what it is then."""
        task = await self.submit(context, text)
        assert await self.storage.load_task(task["id"]) == task
        params = {"id": task["id"], CONTEXT: context, "message": task["history"][0], "metadata": {"n": 1}}
        await self.broker.run_task(params)
        async with asyncio.timeout(60):
            while task["status"]["state"] != "completed":
                task = await self.storage.load_task(task["id"])
        artifact = task["artifacts"][0]["parts"][0]["text"]
        return f"{task['status']['state']} {len(task['history'])} {artifact} {task[CONTEXT] == context}"

    async def submit(self, context: str, text: str) -> Any:
        message: dict[str, Any] = {"role": "user", "parts": [{KIND: "text", "text": text}]}
        if HAS_SESSIONS:
            return await self.storage.submit_task(uuid.uuid4().hex, context, message)
        return await self.storage.submit_task(context, {**message, "kind": "message", "message_id": "m"})

    async def update(self, id: str, state: Any, text: str = "") -> None:
        artifacts: Any = [{"artifact_id": "a", "parts": [{KIND: "text", "text": text}]}] if text else None
        if HAS_SESSIONS:
            artifacts = artifacts and [{"index": 0, "parts": artifacts[0]["parts"]}]
            await self.storage.update_task(id, state, artifacts=artifacts)
        else:
            await self.storage.update_task(id, state, new_artifacts=artifacts)

    async def cancel_task(self, params: Any) -> None: ...

    def build_message_history(self, *_: Any, **__: Any) -> list[Any]:
        return []

    def build_artifacts(self, result: Any) -> list[Any]:
        return []


storage, broker = InMemoryStorage(), InMemoryBroker()


@asynccontextmanager
async def lifespan(app: Any) -> AsyncIterator[None]:
    worker = RelayWorker(storage=storage, broker=broker)
    async with app.task_manager, worker.run():
        yield


app = FastA2A(storage=storage, broker=broker, lifespan=lifespan, name="Relay", description="Runs tasks", version="3.2")
idle_app = FastA2A(storage=storage, broker=broker, name="Idle")
