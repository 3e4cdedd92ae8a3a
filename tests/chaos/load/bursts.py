"""Clients of bursts: tasks that stream many chunks without a pause, each followed by several followers at once."""

from __future__ import annotations

import asyncio
import random

from tests.chaos.load.clients import RandomClient
from tests.chaos.load.followers import Stage, Start
from tests.load.transports import BINDINGS


class BurstClient(RandomClient):
    """One client with one task at a time, which ends when all followers have seen its end."""

    def __init__(self, stage: Stage, number: int) -> None:
        super().__init__(stage, number, keys=False)
        self._rng = random.Random(f"{stage.seed}/burst client {number}")

    async def serve(self) -> None:
        """Performs bursts until the run is over."""
        while not self._stage.over.is_set():
            await self._stage.victim.up.wait()
            await self._burst()

    async def _burst(self) -> None:
        pace, tenant = self._stage.pace, self._tenant()
        message = self._message(f"burst {self._rng.randint(*pace.chunks)}")
        start = Start(self._request(message, tenant), self._rng.choice(BINDINGS))
        op = self._sent(message, start.binding, "stream")
        following = [self._stage.follow("", tenant, start, pace.burst_cut)]
        if task := await start.task:
            self._record_state(op, task)
            others = range(pace.followers - 1)
            following += [self._stage.follow(task.id, tenant, cut=pace.burst_cut) for _ in others]
        await asyncio.wait(following)
