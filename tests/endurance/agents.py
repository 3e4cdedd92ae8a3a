"""An agent that takes its time: `COUNT SECONDS` numbers, one after another, each a chunk of its artifact."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from dragoman import Turn, agent


@agent(default=True, description="Counts slowly")
async def slow(turn: Turn) -> AsyncIterator[str]:
    count, seconds = turn.text.split()
    for number in range(int(count)):
        yield f"{number} "
        await asyncio.sleep(float(seconds))
