"""Agents of the chaos run: stream, burst, sleep, block the event loop, ask, fail, have steps.

The first words of a message are the command; the text after `#` makes it unique. Each call of an agent is written to
the file in CHAOS_TURNS, so that the checker can count the calls, and each action to a file in CHAOS_ACTIONS.
"""

from __future__ import annotations

import asyncio
import os
import time
from functools import cache
from typing import Final

from tests.chaos.actions import BEGIN, END, RETURNED, STEP, act

from dragoman import Turn, agent, retry

RETRIES: Final = 3
STEPS: Final = "steps"
"""The command for steps: `steps COUNT`, `steps COUNT ask`."""
TICK: Final = 0.25
"""Seconds between two actions of a sleeping agent."""
BURST_ACTION: Final = 50
"""Chunks of a burst between two actions: an action takes about as long as a chunk."""


@cache
def _turns() -> int:
    """The file of all calls, open from the first one on: later there may be no descriptor for it."""
    return os.open(os.environ["CHAOS_TURNS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)


def _note(task: str) -> None:
    os.write(_turns(), f"{task}\n".encode())


async def work(turn: Turn) -> str | None:
    if not _command(turn).startswith(STEPS):  # such a turn is called again after each pause and question
        _note(turn.task_id)
    act(turn.task_id, turn.attempt, BEGIN)
    try:
        return await _obey(turn)
    finally:
        act(turn.task_id, turn.attempt, END)


def _command(turn: Turn) -> str:
    """The text of the task's first message."""
    first = turn.history[0] if turn.history else turn.message
    return "".join(part.text for part in first.parts)


async def _steps(turn: Turn, count: int, *, asks: bool) -> str:
    """Steps, with a pause after the second and perhaps a question after the third."""
    found = []
    for number in range(count):
        found.append(await turn.step("square", _square, turn, number))
        act(turn.task_id, turn.attempt, f"{RETURNED} {number}")
        if number == 1:
            await turn.sleep(1.0)
        if number == 2 and asks and turn.question is None:
            turn.ask("and then?")
    if found != [number * number for number in range(count)]:
        raise AssertionError(f"the steps have returned {found}")
    return _command(turn)


async def _square(turn: Turn, number: int) -> int:
    act(turn.task_id, turn.attempt, f"{STEP} {number}")
    await asyncio.sleep(number * 0.05)
    return number * number


async def _obey(turn: Turn) -> str | None:
    words = turn.text.partition("#")[0].split()
    match _command(turn).partition("#")[0].split():
        case ["steps", count, *ask]:
            return await _steps(turn, int(count), asks=bool(ask))
    if turn.question is not None:
        return f"you said: {turn.text}"
    match words:
        case ["stream", count, pause]:
            for number in range(int(count)):
                act(turn.task_id, turn.attempt, f"chunk {number}")
                await turn.chunk(f"{number} ")
                await asyncio.sleep(int(pause) / 1000)
            return None
        case ["burst", count]:
            for number in range(int(count)):
                if number % BURST_ACTION == 0:
                    act(turn.task_id, turn.attempt, f"chunk {number}")
                await turn.chunk(f"{number} ")
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
