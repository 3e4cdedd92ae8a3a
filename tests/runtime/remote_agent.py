"""A remote agent whose turns a test ends, and a runtime that serves it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.runtime.harness import Harness

from dragoman.bus.local import LocalBus
from dragoman.core.cards.agent_spec import AgentSpec
from dragoman.core.task import states
from dragoman.core.task.log import StatusChange
from dragoman.ports import TurnContext, TurnResult
from dragoman.runtime import Ports, RuntimeConfig, open_runtime
from dragoman.stores.sqlite import open_store


class Far:
    """A remote agent whose turns the test ends. Implements `dragoman.ports.RemoteAgent`."""

    leaked_threads = 0
    is_worker_backed = True
    problem = ""

    def __init__(self, id: str = "far", capacity: int = 1, **spec: Any) -> None:
        self.spec = AgentSpec(id=id, name=id, description="far away", **spec)
        self.room = capacity
        self.seconds_absent = 0.0
        self.turns: asyncio.Queue[tuple[TurnContext, asyncio.Future[TurnResult]]] = asyncio.Queue()
        self.held = 0
        self.has_work = False  # whether another server may have work for its tasks
        self.confirms: bool | Exception = True  # how that server answers a cancel of a task that waits for its caller

    @property
    def capacity(self) -> int:
        return self.room

    def runner_of(self, task_id: str) -> str:
        return "somewhere"

    def describe_run(self, task_id: str) -> str:
        return ""

    def may_have_work(self, task_state: bytes, attempt: int) -> bool:
        return self.has_work

    async def cancel_waiting(self, task_state: bytes, metadata: bytes) -> bool:
        if isinstance(self.confirms, Exception):
            raise self.confirms
        return self.confirms

    async def take_turn(self, context: TurnContext) -> TurnResult:
        self.held += 1
        end: asyncio.Future[TurnResult] = asyncio.get_running_loop().create_future()
        self.turns.put_nowait((context, end))
        try:
            return await end
        finally:
            self.held -= 1


DONE = TurnResult(StatusChange(states.COMPLETED))


@asynccontextmanager
async def served(tmp_path: Path, *agents: Far, **options: Any) -> AsyncIterator[Harness]:
    store = open_store(tmp_path / "tasks.db")
    try:
        async with open_runtime(Ports(store, LocalBus(), agents), RuntimeConfig(**options)) as runtime:
            yield Harness(runtime, store)
    finally:
        await store.close()
