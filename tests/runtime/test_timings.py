"""The clocks of a runtime are those of its configuration."""

from __future__ import annotations

import time
from pathlib import Path

from tests.runtime.harness import open_harness

from dragoman.agents.functions.turn import Turn
from dragoman.runtime.timings import SYSTEM_CLOCKS, Clocks


async def waiting(turn: Turn) -> None:
    turn.ask("and then?")


def test_the_wall_clock_of_the_system_counts_seconds_since_the_epoch() -> None:
    assert abs(SYSTEM_CLOCKS.wall() - time.time()) < 60


async def test_turns_are_timed_by_the_configured_clocks(tmp_path: Path) -> None:
    clocks = Clocks(monotonic=lambda: 500.0, elapsed=lambda: 70.0)
    async with open_harness(tmp_path, waiting, clocks=clocks, exclusive=False, run_lease=None) as here:
        await here.send()
        lease = here.runtime.scheduler.services.lease
        assert lease is not None
        assert lease.now() == 70.0
        assert here.runtime.scheduler.services.options.clocks.monotonic() == 500.0
