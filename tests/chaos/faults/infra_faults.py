"""Faults of what a cluster stands on: PostgreSQL restarts, freezes and fails over; NATS restarts, freezes, forgets."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from tests.chaos.faults.outages import Outage
from tests.chaos.faults.part_faults import PartStates
from tests.chaos.targets.target import Scene
from tests.nats import NatsServer
from tests.postgres_pair import PostgresPair

HANG: Final = 15.0
"""Seconds for which the former primary of a failover stays frozen after the promotion."""


class InfraFaults:
    """Strikes PostgreSQL and NATS, one fault of each at a time."""

    def __init__(self, states: PartStates, postgres: PostgresPair, nats: NatsServer) -> None:
        self.database_outages: list[tuple[float, float]] = []
        """Periods without a database, in seconds of the epoch."""
        self.failovers: list[tuple[float, float]] = []
        """Those that ended with another primary."""
        self._states = states
        self._postgres = postgres
        self._nats = nats

    async def suffer(self, scene: Scene, outage: Outage) -> None:
        """Performs an outage of CHAOS_OUTAGES."""
        match outage.part, outage.how:
            case "nats", "freeze":
                await self.pause_nats(scene, outage.seconds)
            case "nats", how:
                await self.kill_nats(scene, outage.seconds, wipe=how == "wipe")
            case "postgres", "freeze":
                await self._freeze_postgres(scene, outage.seconds)
            case "postgres", "kill":
                await self.restart_postgres(scene, signal.SIGKILL, outage.seconds)
            case "postgres", how:
                await self._fail_over(scene, outage.seconds, hang=how == "hang")
            case _:
                raise AssertionError(f"{outage} is of another module")

    async def pause_nats(self, scene: Scene, seconds: float) -> None:
        """Freezes NATS for so long."""
        async with self._states.record_fault(scene, self._nats, "pause"):
            self._nats.send(signal.SIGSTOP)
            await asyncio.sleep(seconds)
            self._nats.send(signal.SIGCONT)

    async def kill_nats(self, scene: Scene, seconds: float, *, wipe: bool = False) -> None:
        """Kills NATS, and starts it so many seconds later; `wipe`: with an empty store."""
        async with self._states.record_fault(scene, self._nats, "wipe" if wipe else "kill"):
            self._nats.stop()
            if wipe:
                await asyncio.to_thread(self._nats.wipe)
            await asyncio.sleep(seconds)
            await asyncio.to_thread(self._nats.start)

    async def restart_postgres(self, scene: Scene, how: signal.Signals, seconds: float = 0.0) -> None:
        """Restarts PostgreSQL `seconds` later: SIGKILL and SIGQUIT are crashes, SIGINT an orderly shutdown."""
        async with self._outage(scene, "restart" if how is signal.SIGINT else "kill"):
            await asyncio.to_thread(self._postgres.stop, how)
            await asyncio.sleep(seconds)
            await asyncio.to_thread(self._postgres.start)

    async def _freeze_postgres(self, scene: Scene, seconds: float) -> None:
        async with self._outage(scene, "pause"):
            await asyncio.to_thread(self._postgres.freeze)
            await asyncio.sleep(seconds)
            await asyncio.to_thread(self._postgres.thaw)

    async def _fail_over(self, scene: Scene, seconds: float, *, hang: bool) -> None:
        """The primary is lost, and `seconds` later its standby takes over; then it gets a new standby.

        hang: the primary does not answer and does not refuse either, also some time after the promotion.
        """
        postgres = self._postgres
        async with self._outage(scene, "hang" if hang else "failover"):
            # Commits that became visible after a crash of the primary may be lost with it until its standby has them.
            await postgres.in_sync()
            await asyncio.to_thread(postgres.freeze if hang else postgres.kill)
            await asyncio.sleep(seconds)
            await asyncio.to_thread(postgres.promote)
        self.failovers.append(self.database_outages[-1])
        self._states.struck.add(postgres)  # another failover needs the new standby
        try:
            if hang:
                await asyncio.sleep(HANG)
                await asyncio.to_thread(postgres.standby.kill_all)
                # A query that waited for the frozen primary fails now.
                self.database_outages.append((self.failovers[-1][0], time.time()))
            await asyncio.to_thread(postgres.replace_standby)
        finally:
            self._states.struck.discard(postgres)

    @asynccontextmanager
    async def _outage(self, scene: Scene, how: str) -> AsyncIterator[None]:
        began = time.time()
        async with self._states.record_fault(scene, self._postgres, how):
            yield
        self.database_outages.append((began, time.time()))
