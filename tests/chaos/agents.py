"""Agents of the chaos run: stream, sleep, block the event loop, ask, fail.

The first words of a message are the command; the text after `#` makes it unique. Each call of an agent is written to
the file in CHAOS_TURNS, so that the checker can count the calls, and each action to a file in CHAOS_ACTIONS.
"""

from __future__ import annotations

import asyncio
import os
import time
from typing import Final

from tests.chaos.actions import BEGIN, act

from dragoman import Turn, agent, retry

RETRIES: Final = 3
TICK: Final = 0.25
"""Seconds between two actions of a sleeping agent."""


def _note(task: str) -> None:
    file = os.open(os.environ["CHAOS_TURNS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(file, f"{task}\n".encode())
    finally:
        os.close(file)


async def work(turn: Turn) -> str | None:
    _note(turn.task_id)
    act(turn.task_id, turn.attempt, BEGIN)
    try:
        return await _obey(turn)
    finally:
        act(turn.task_id, turn.attempt, "end")


async def _obey(turn: Turn) -> str | None:
    words = turn.text.partition("#")[0].split()
    if turn.question is not None:
        return f"you said: {turn.text}"
    match words:
        case ["stream", count, pause]:
            for number in range(int(count)):
                act(turn.task_id, turn.attempt, f"chunk {number}")
                await turn.chunk(f"{number} ")
                await asyncio.sleep(int(pause) / 1000)
            return None
        case ["sleep", pause]:
            turn.status("sleeping")
            await _sleep(turn, int(pause) / 1000)
        case ["block", pause]:
            time.sleep(int(pause) / 1000)  # noqa: ASYNC251  # blocks the event loop on purpose
        case ["ask"]:
            turn.ask("and then?")
        case ["fail"]:
            raise RuntimeError("failing, as asked")
    return turn.text


async def _sleep(turn: Turn, seconds: float) -> None:
    """Sleeps, with an action every TICK seconds."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        act(turn.task_id, turn.attempt, "tick")
        await asyncio.sleep(min(left, TICK))


@agent(default=True, description="Executes the command in the first word; a crash ends the task")
async def once(turn: Turn) -> str | None:
    """Executes the command in the first word."""
    return await work(turn)


@agent(description="Executes the command in the first word; a crash restarts the turn", on_crash=retry(RETRIES))
async def again(turn: Turn) -> str | None:
    """Executes the command in the first word."""
    return await work(turn)
