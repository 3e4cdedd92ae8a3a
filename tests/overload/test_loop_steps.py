"""The measurement of loop steps."""

from __future__ import annotations

import asyncio
import time

import pytest
from tests.overload.loop_steps import measure_steps

pytestmark = pytest.mark.longest


def burn(seconds: float) -> None:
    """Takes CPU time."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


def test_the_longest_step_is_the_one_with_the_most_cpu_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asyncio.Handle, "_run", asyncio.Handle._run)  # restored afterwards
    longest = measure_steps()

    async def run() -> None:
        loop = asyncio.get_running_loop()
        loop.call_soon(burn, 0.06)
        loop.call_soon(lambda: None)
        await asyncio.to_thread(time.sleep, 0.1)  # waiting is no step

    asyncio.run(run())
    assert longest.milliseconds > 50
    assert "burn" in longest.callback
    longest.reset()
    assert longest.milliseconds == 0
