"""Agents of the middle server of a chain: they work tick by tick, and note each tick independently of Dragoman."""

from __future__ import annotations

import asyncio

from tests.chaos.actions import BEGIN, END, act
from tests.chaos.chains.routes import RETRIES, TICK, Command, chunk_text

from dragoman import Turn, agent, retry

DONE = "done"
"""The action of an attempt that has finished its work."""


async def work(turn: Turn) -> None:
    command = Command.find(turn.text)
    assert command is not None, f"{turn.text!r} is not a command"
    task = str(command.number)
    act(task, turn.attempt, BEGIN)
    try:
        for number in range(command.ticks):
            act(task, turn.attempt, f"chunk {number}")
            await turn.chunk(chunk_text(number))
            await asyncio.sleep(TICK)
        act(task, turn.attempt, DONE)
    finally:
        act(task, turn.attempt, END)


@agent(default=True, description="Works for so many ticks; a crash ends the task")
async def once(turn: Turn) -> None:
    """Works for so many ticks."""
    await work(turn)


@agent(description="Works for so many ticks; a crash restarts the turn", on_crash=retry(RETRIES))
async def again(turn: Turn) -> None:
    """Works for so many ticks."""
    await work(turn)
