"""Load on DBOS, in the process of the workflows as its users have it: load.py DATABASE_URL SECONDS.

Runs in its own environment, with the defaults of DBOS. Prints a JSON row for each figure: its case, its value and unit.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import time

from dbos import DBOS

TEXT = "thirty-two bytes of message text"
RESULT = "x" * 50
CALLERS = 64
STEPS = 10
"""Steps of each of the workflows that run at once."""
LONE_STEPS = 100


@DBOS.workflow()
async def echo(text: str) -> str:
    return text


@DBOS.step()
async def find() -> str:
    return RESULT


@DBOS.workflow()
async def stepper(count: int) -> list[float]:
    """Returns the seconds of each of its steps."""
    spent = []
    for _ in range(count):
        began = time.perf_counter()
        await find()
        spent.append(time.perf_counter() - began)
    return spent


async def caller(end: float) -> int:
    """Runs workflows one after another. Returns how many."""
    count = 0
    while time.perf_counter() < end:
        if await echo(TEXT) != TEXT:
            raise RuntimeError("a workflow returned another text")
        count += 1
    return count


async def main(url: str, seconds: float) -> None:
    DBOS(config={"name": "bench", "system_database_url": url, "log_level": "ERROR", "run_admin_server": False})
    DBOS.launch()
    await echo(TEXT)
    began = time.perf_counter()
    done = sum(await asyncio.gather(*(caller(began + seconds) for _ in range(CALLERS))))
    rate = done / (time.perf_counter() - began)
    lone = statistics.median(await stepper(LONE_STEPS)) * 1e3
    began = time.perf_counter()
    await asyncio.gather(*(stepper(STEPS) for _ in range(CALLERS)))
    steps = CALLERS * STEPS / (time.perf_counter() - began)
    for row in (("work", rate, "/s"), ("step", lone, "ms"), ("steps", steps, "steps/s")):
        print(json.dumps(row), flush=True)
    DBOS.destroy()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], float(sys.argv[2])))
