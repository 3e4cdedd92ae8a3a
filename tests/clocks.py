"""Clocks of tests."""

from __future__ import annotations

import asyncio


class SleepingClock:
    """A clock in seconds that advances by those slept."""

    def __init__(self) -> None:
        self.now = 0.0

    async def sleep(self, seconds: float) -> None:
        """Advances, and lets other tasks run once."""
        self.now += seconds
        await asyncio.sleep(0)

    def __call__(self) -> float:
        return self.now
