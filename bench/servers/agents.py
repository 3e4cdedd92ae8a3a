"""Agents under load. bench/peers/ has the same agents for the other servers."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator
from pathlib import Path

from bench.responses import TEXT
from dragoman import Turn, agent


@agent(default=True, description="Echoes the text.")
async def echo(turn: Turn) -> str:
    return turn.text


@agent(description="`chunks N` streams N chunks.")
async def chunks(turn: Turn) -> AsyncIterator[str]:
    for number in range(int(turn.text.split()[1])):
        yield f"chunk-{number} "


@agent(description="`ticks N FILE` streams N chunks once the file exists.")
async def ticks(turn: Turn) -> AsyncIterator[str]:
    _, count, start_file = turn.text.split()
    while not Path(start_file).exists():
        await asyncio.sleep(0.005)
    for number in range(int(count)):
        yield f"chunk-{number} "


@agent(description="`stamps N MS` streams N chunks, one every MS milliseconds on average, with the time in ns.")
async def stamps(turn: Turn) -> AsyncIterator[str]:
    _, count, pace = turn.text.split()
    for _ in range(int(count)):
        await asyncio.sleep(random.expovariate(1000 / float(pace)))
        yield f"stamp-{time.monotonic_ns():020} "


@agent(description="`talk N` reports N sentences, one at a time.")
async def talk(turn: Turn) -> None:
    for _ in range(int(turn.text.split()[1])):
        turn.status(TEXT)


@agent(description="Asks for input.")
async def ask(turn: Turn) -> str:
    turn.ask(TEXT)


@agent(description="Runs until it is canceled.")
async def hold(turn: Turn) -> None:
    await asyncio.Event().wait()
