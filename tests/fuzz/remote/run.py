"""`make fuzz-remote`: mutated answers of remote servers against every reader of what others send.

REMOTE_INPUTS (100,000) is the number of inputs, REMOTE_SEED the first seed. Prints how they ended, and exits with 1
after a failure, whose seed it names.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, Final

from tests.fuzz.remote.agents import check_calls, check_turn
from tests.fuzz.remote.mcp_servers import check_mcp_turn

CHECKS: Final[dict[str, Callable[..., Awaitable[str]]]] = {
    "turns": check_turn,
    "calls": check_calls,
    "mcp": check_mcp_turn,
}
"""What one input is checked with, by name. Each returns how it ended, and raises AssertionError for a fault."""

PROGRESS: Final = 10.0
"""Seconds between lines of progress."""
MAX_FAULTS: Final = 20


async def check(name: str, seed: int) -> tuple[str, str]:
    """Checks one input. Returns how it ended, and the fault, if any."""
    background: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: background.append(context))
    try:
        ended = await CHECKS[name](random.Random(f"{name}-{seed}"))
    except AssertionError as error:
        return "fault", str(error) or repr(error)
    if background:
        return "fault", f"in the background: {background[0]}"
    return ended, ""


async def main() -> int:
    """Runs all inputs, an equal number with each check."""
    logging.disable(logging.ERROR)
    inputs, seed = int(os.environ.get("REMOTE_INPUTS", "100000")), int(os.environ.get("REMOTE_SEED", "1"))
    ends: Counter[str] = Counter()
    faults: list[str] = []
    began = reported = time.monotonic()
    for number in range(inputs):
        name = list(CHECKS)[number % len(CHECKS)]
        ended, fault = await check(name, seed + number // len(CHECKS))
        ends[f"{name}: {ended}"] += 1
        if fault:
            faults.append(f"{name}, seed {seed + number // len(CHECKS)}: {fault}")
            print(f"fuzz-remote: {faults[-1][:600]}", flush=True)
            if len(faults) == MAX_FAULTS:
                break
        if time.monotonic() > reported + PROGRESS:
            reported = time.monotonic()
            print(f"fuzz-remote: {number + 1} of {inputs} inputs, {len(faults)} faults", flush=True)
    for ended, found in sorted(ends.items()):
        print(f"  {found:7d}  {ended}")
    print(f"fuzz-remote: {ends.total()} inputs, {len(faults)} faults in {time.monotonic() - began:.1f}s")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
