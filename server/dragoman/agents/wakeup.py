"""A round that somebody may ask to come sooner."""

from __future__ import annotations

import asyncio
from contextlib import suppress


class Wakeup:
    """Rung when there is something to look at; however often that is, whoever waits looks once."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def set(self) -> None:
        """There is something new."""
        self._event.set()

    async def wait(self, seconds: float) -> None:
        """Returns when it was rung since the last time, or after so long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._event.wait()
        self._event.clear()
