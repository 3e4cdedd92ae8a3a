"""A stand-in for Strands: an agent that calls its author's callback in a task of its own, and streams nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any


class Snapshot:
    """What an agent keeps of a conversation."""

    def __init__(self, **_: Any) -> None:
        pass


class Agent:
    """Calls `callback` with the text of each message."""

    def __init__(self, callback: Callable[[str], None]) -> None:
        self.name, self.description, self.messages = "Strands Agents", "", list[Any]()
        self.tool_registry = SimpleNamespace(get_all_tool_specs=list)
        self.event_loop_metrics = SimpleNamespace(accumulated_usage={"totalTokens": 0})
        self.callback_handler: Any = None
        self._callback = callback

    def take_snapshot(self, *, preset: str) -> Snapshot:
        return Snapshot()

    def load_snapshot(self, snapshot: Snapshot) -> None:
        pass

    async def stream_async(self, given: str) -> AsyncIterator[dict[str, Any]]:
        async def call() -> None:
            self._callback(given)

        yield {"init": True}
        await asyncio.create_task(call())
