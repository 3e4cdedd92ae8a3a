"""The agent of the kill tests of steps: ten steps, and a process that kills itself at a chosen place.

The place is the next line of the file `kills` in the working directory: `STEP before`, `STEP during` or `STEP after`. A
place is removed from the file before the process dies, so each of them kills one process. What a step does is a line in
the file `ran`.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Final

from dragoman import Turn, agent, retry

STEPS: Final = 10
PLACES: Final = ("before", "during", "after")

KILLS: Final = Path("kills")
RAN: Final = Path("ran")


def die_at(place: str) -> None:
    """Kills this process if it is its turn to die here."""
    first, _, rest = KILLS.read_text().partition("\n")
    if first == place:
        KILLS.write_text(rest)
        os.kill(os.getpid(), signal.SIGKILL)


def work(number: int) -> dict[str, int]:
    """What a step does outside, and its result."""
    with RAN.open("a") as file:
        file.write(f"{number}\n")
    die_at(f"{number} during")
    return {"number": number, "square": number * number}


@agent(on_crash=retry(100), default=True)
async def research(turn: Turn) -> list[dict[str, int]]:
    """Ten steps, a pause and a question between them."""
    found = []
    for number in range(STEPS):
        die_at(f"{number} before")
        found.append(await turn.step(f"step {number}", work, number))
        die_at(f"{number} after")
        if number == 2:
            await turn.sleep(1.0)
        if number == 6 and turn.question is None:
            turn.ask("go on?")
    return found
