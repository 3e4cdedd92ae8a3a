"""Calls that wait for a turn of another process: until it ends, until their limit, or until this process stops."""

from __future__ import annotations

import asyncio

from dragoman.runtime.follow import Subscriber


class Waits:
    """Those of one process."""

    def __init__(self) -> None:
        self._limits: set[asyncio.Timeout] = set()
        self._over = False

    async def until_turn_ends(self, subscriber: Subscriber, deadline: float) -> None:
        """Follows until the turn ends, or until the loop's clock shows `deadline`, or `end`."""
        if self._over:
            return
        limit = asyncio.timeout_at(deadline)
        try:
            async with limit:
                self._limits.add(limit)
                while not (await subscriber.next()).ends:
                    pass
        except TimeoutError:
            return
        finally:
            self._limits.discard(limit)

    def end(self) -> None:
        """All are over as if their limit had come: the turn goes on elsewhere, and this process does not."""
        self._over = True
        now = asyncio.get_running_loop().time()
        for limit in self._limits:
            limit.reschedule(now)
