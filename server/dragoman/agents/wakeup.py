"""An event that ends the wait between two polling rounds early."""

from __future__ import annotations

import asyncio
from contextlib import suppress


class Wakeup:
    """Wakes one waiter. Any number of `set` calls between two waits cause one wakeup."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def set(self) -> None:
        """Wakes the waiter now, or ends its next wait at once."""
        self._event.set()

    async def wait(self, seconds: float) -> None:
        """Returns when `set` was called since the last wait, or after this many seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._event.wait()
        self._event.clear()
