"""A FastA2A application whose lifespan opens what its worker needs, and one that runs no worker."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fasta2a import FastA2A, Worker


class GreetingWorker(Worker[Any]):  # type: ignore[misc]  # mypy does not find this fasta2a
    """Greets with what the lifespan has opened."""

    greeting = ""

    async def run_task(self, params: Any) -> None:
        texts = [{"text": f"{self.greeting} {params['message']['parts'][0]['text']}"}]
        artifact = {"artifact_id": "output", "parts": texts}
        await self.storage.update_task(params["id"], state="completed", new_artifacts=[artifact])

    async def cancel_task(self, params: Any) -> None: ...


@asynccontextmanager
async def lifespan(app: Any) -> AsyncIterator[None]:
    worker = GreetingWorker(broker=None, storage=None)
    worker.greeting = "hello from the lifespan,"
    async with worker.run():
        yield


@asynccontextmanager
async def idle(app: Any) -> AsyncIterator[None]:
    yield


app = FastA2A(lifespan=lifespan, name="Greeter")
idle_app = FastA2A(lifespan=idle)
