"""The agents under load. bench/peers has the same for the other servers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

from bench.answers import TEXT
from dragoman import Turn, agent


@agent(default=True, description="Says it back.")
async def echo(turn: Turn) -> str:
    return turn.text


@agent(description="`chunks N` streams so many.")
async def chunks(turn: Turn) -> AsyncIterator[str]:
    for number in range(int(turn.text.split()[1])):
        yield f"chunk-{number} "


@agent(description="`ticks N FILE` streams so many once the file is there.")
async def ticks(turn: Turn) -> AsyncIterator[str]:
    _, count, go = turn.text.split()
    while not Path(go).exists():
        await asyncio.sleep(0.005)
    for number in range(int(count)):
        yield f"chunk-{number} "


@agent(description="`talk N` says so many sentences, one at a time.")
async def talk(turn: Turn) -> None:
    for _ in range(int(turn.text.split()[1])):
        turn.status(TEXT)


@agent(description="Asks, and waits for the answer.")
async def ask(turn: Turn) -> str:
    turn.ask(TEXT)


@agent(description="Works until it is canceled.")
async def hold(turn: Turn) -> None:
    await asyncio.Event().wait()
