"""Checks of the executor in this folder, run by Dragoman in this environment."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from checks import arguments, finish
from executor_checks import asking, every, of_oldest_workers


async def main() -> bool:
    async with asking(arguments().http) as ask:
        good = await of_oldest_workers.run("executor", ask)
        return await every.run("executor", ask) and good


finish(asyncio.run(main()))
