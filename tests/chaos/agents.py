"""Agents of the chaos run: stream, sleep, block the event loop, ask, fail.

The first words of a message are the command; the text after `#` makes it unique. Each call of an agent is written to
the file in CHAOS_TURNS, so that the checker can count the calls.
"""

from __future__ import annotations

import asyncio
import os
import time
from typing import Final

from dragoman import Turn, agent, retry

RETRIES: Final = 3


def _note(task: str) -> None:
    file = os.open(os.environ["CHAOS_TURNS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(file, f"{task}\n".encode())
    finally:
        os.close(file)


async def work(turn: Turn) -> str | None:
    _note(turn.task_id)
    words = turn.text.partition("#")[0].split()
    if turn.question is not None:
        return f"you said: {turn.text}"
    match words:
        case ["stream", count, pause]:
            for number in range(int(count)):
                await turn.chunk(f"{number} ")
                await asyncio.sleep(int(pause) / 1000)
            return None
        case ["sleep", pause]:
            turn.status("sleeping")
            await asyncio.sleep(int(pause) / 1000)
        case ["block", pause]:
            time.sleep(int(pause) / 1000)  # noqa: ASYNC251  # blocks the event loop on purpose
        case ["ask"]:
            turn.ask("and then?")
        case ["fail"]:
            raise RuntimeError("failing, as asked")
    return turn.text


@agent(default=True, description="Executes the command in the first word; a crash ends the task")
async def once(turn: Turn) -> str | None:
    """Executes the command in the first word."""
    return await work(turn)


@agent(description="Executes the command in the first word; a crash restarts the turn", on_crash=retry(RETRIES))
async def again(turn: Turn) -> str | None:
    """Executes the command in the first word."""
    return await work(turn)
