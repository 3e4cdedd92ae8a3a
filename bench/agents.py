"""The agents under load."""

from __future__ import annotations

from collections.abc import AsyncIterator

from dragoman import Turn, agent


@agent(default=True, description="Says it back.")
async def echo(turn: Turn) -> str:
    return turn.text


@agent(description="Streams as many chunks as the message says.")
async def chunks(turn: Turn) -> AsyncIterator[str]:
    for number in range(int(turn.text)):
        yield f"chunk-{number} "
