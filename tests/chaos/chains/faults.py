"""Faults of a chain run: processes are killed and frozen, links are cut, several at a time."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from tests.chaos.chains.links import CUTS
from tests.chaos.chains.routes import LINKS, PROCESSES
from tests.chaos.chains.target import ChainTarget
from tests.chaos.history import Fault
from tests.chaos.load.followers import Stage

BETWEEN: Final = (0.2, 2.5)
"""Seconds between two faults of one loop."""
KILL: Final = (0.0, 5.0)
"""Seconds until a killed process is started again."""
FREEZE: Final = (0.1, 6.0)
"""Seconds of a freeze."""
CUTS_OFF: Final = ((0.2, 2.5), (2.5, 8.0))
"""Seconds of a cut: after three seconds without an answer a server counts as unavailable."""
LONG: Final = 12.0
"""Seconds of some freezes in a long run, longer than the lease of a session."""
ENOUGH_FOR_LONG: Final = 40.0
"""Seconds of faults that are left at the start of such a freeze."""
LOOPS: Final = 2
"""Loops of each kind: as many processes, and as many links, may have a fault at once."""


async def inject_faults(target: ChainTarget, stage: Stage, until: float) -> None:
    """Injects faults until `until` (`time.monotonic`); returns when everything works again."""
    loops = [(_strike_processes, number) for number in range(LOOPS)] + [(_cut_links, number) for number in range(LOOPS)]
    await asyncio.gather(*(loop(target, stage, until, random.Random(f"{stage.seed}/{loop.__name__}/{number}"))
                           for loop, number in loops))  # fmt: skip


async def _strike_processes(target: ChainTarget, stage: Stage, until: float, rng: random.Random) -> None:
    while time.monotonic() < until:
        await asyncio.sleep(rng.uniform(*BETWEEN))
        name, kills = rng.choice(PROCESSES), rng.random() < 0.6
        seconds = rng.choice((0.0, rng.uniform(*KILL))) if kills else rng.uniform(*FREEZE)
        left = until - time.monotonic()
        if not kills and rng.random() < 0.1 and left > ENOUGH_FOR_LONG:
            seconds = LONG
        if left <= 0 or name in target.troubled:
            continue
        async with _recorded(target, stage, name, "kill" if kills else "pause"):
            await (target.kill if kills else target.freeze)(name, min(seconds, left))


async def _cut_links(target: ChainTarget, stage: Stage, until: float, rng: random.Random) -> None:
    while time.monotonic() < until:
        await asyncio.sleep(rng.uniform(*BETWEEN))
        name, how, seconds, seed = (
            rng.choice(LINKS),
            rng.choice(CUTS),
            rng.uniform(*rng.choice(CUTS_OFF)),
            rng.getrandbits(32),
        )
        left = until - time.monotonic()
        if left <= 0 or name in target.troubled:
            continue
        async with _recorded(target, stage, name, "cut"):
            await target.links[name].cut(how, seed)
            await asyncio.sleep(min(seconds, left))
            await target.links[name].open()


@asynccontextmanager
async def _recorded(target: ChainTarget, stage: Stage, name: str, how: str) -> AsyncIterator[None]:
    """Records a fault, and the time until the process or link works again."""
    at = stage.now
    target.troubled.add(name)
    try:
        yield
    finally:
        target.troubled.discard(name)
        stage.record.add(Fault(at=at, how=how, part=name, seconds=round(stage.now - at, 3)))
