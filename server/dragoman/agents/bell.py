"""A round that somebody may ask to come sooner."""

from __future__ import annotations

import asyncio
from contextlib import suppress


class Bell:
    """Rung when there is something to look at; however often that is, whoever waits looks once."""

    def __init__(self) -> None:
        self._rung = asyncio.Event()

    def ring(self) -> None:
        """There is something new."""
        self._rung.set()

    async def wait(self, seconds: float) -> None:
        """Returns when it was rung since the last time, or after so long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._rung.wait()
        self._rung.clear()
