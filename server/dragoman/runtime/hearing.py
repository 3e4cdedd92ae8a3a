"""Whose jobs the bus tells this process of: those of agents that can have turns here, now.

A job is told to one of those who asked for it. Somebody told who cannot run it would be as good as a message lost, and
the task would wait until the next look into the store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from dragoman.ports import Bus, Job, Stop


class Hearing:
    """The registrations of one process for jobs."""

    def __init__(self, bus: Bus, take: Callable[[Job], None]) -> None:
        self._bus = bus
        self._take = take
        self._stops: dict[str, Stop] = {}
        self._wanted: frozenset[str] = frozenset()
        self._turn = asyncio.Lock()
        self._closed = False

    def differs(self, agents: Iterable[str]) -> bool:
        """Whether these are others than it was last told."""
        return not self._closed and self._wanted != frozenset(agents)

    async def hear(self, agents: Iterable[str]) -> None:
        """From now on of these, and of no others."""
        self._wanted = frozenset(agents)
        async with self._turn:  # what was wanted last counts, however long the bus takes
            for agent in self._stops.keys() - self._wanted:
                await self._stops.pop(agent)()
            for agent in self._wanted - self._stops.keys():
                if not self._closed:
                    self._stops[agent] = await self._bus.work((agent,), self._take)

    async def close(self) -> None:
        """Of none any more. May be called twice."""
        self._closed = True
        await self.hear(())
