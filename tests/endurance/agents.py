"""A slow agent: `COUNT SECONDS` streams that many numbers as chunks, with that pause after each."""

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
