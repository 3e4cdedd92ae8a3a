"""Faults of the servers and workers of a cluster: killed, drained and paused; and which parts work."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from subprocess import TimeoutExpired
from typing import Final

from tests.chaos.history import Fault
from tests.chaos.targets.target import Scene
from tests.chaos_checker.checker import GRACE
from tests.chaos_checker.end_checker import DRAIN
from tests.cluster import START, Part, ServerPart, WorkerPart
from tests.eventually import eventually
from tests.nats import NatsServer
from tests.postgres_pair import PostgresPair

_KINDS: Final = {ServerPart: "server", WorkerPart: "worker", NatsServer: "nats", PostgresPair: "postgres"}
"""Names of parts in the history."""


class PartStates:
    """Which parts of a cluster work, and which have a fault in progress."""

    def __init__(self) -> None:
        self.struck: set[object] = set()
        """Parts with a fault in progress."""
        self._since: dict[object, float] = {}
        """Times since which parts work; parts with a fault are missing."""

    def works(self, part: object) -> None:
        """A part works from now on."""
        self._since[part] = time.monotonic()

    def up_for(self, part: object) -> float:
        """Seconds since which a part works; 0 for one with a fault."""
        return time.monotonic() - self._since[part] if part in self._since else 0.0

    @asynccontextmanager
    async def record_fault(self, scene: Scene, part: object, how: str) -> AsyncIterator[None]:
        """Records a fault, and the time until the part worked again."""
        at = scene.now
        self.struck.add(part)
        self._since.pop(part, None)
        try:
            yield
        finally:
            seconds = round(scene.now - at, 3)
            scene.record.add(Fault(at=at, how=how, part=_KINDS[type(part)], seconds=seconds))
            self.works(part)
            self.struck.discard(part)

    async def until_free(self, part: object) -> None:
        """Waits until a part has no fault in progress."""
        while part in self.struck:  # noqa: ASYNC110  # no event to wait for
            await asyncio.sleep(0.1)


class PartFaults:
    """Kills, drains and pauses servers and workers, and starts them again."""

    def __init__(
        self,
        states: PartStates,
        database: PostgresPair,
        on_serves: Callable[[Part], None],
        on_ended: Callable[[Part], None],
    ) -> None:
        """database: its faults excuse slow starts and shutdowns. on_serves, on_ended: called after each."""
        self.problems: list[str] = []
        """Unexpected ends."""
        self._states = states
        self._database = database
        self._on_serves = on_serves
        self._on_ended = on_ended

    async def kill(self, scene: Scene, part: Part, absent: float) -> None:
        """Kills a part, and starts it `absent` seconds later."""
        async with self._states.record_fault(scene, part, "kill"):
            self._on_ended(part)
            await asyncio.to_thread(part.kill)
            await asyncio.sleep(absent)
            await self._start(part)

    async def drain(self, scene: Scene, part: Part) -> None:
        """Asks a part to end, and starts it again."""
        async with self._states.record_fault(scene, part, "drain"):
            await eventually(lambda: part.drains, START)
            part.send(signal.SIGTERM)
            try:
                code = await asyncio.to_thread(part.ends, DRAIN + GRACE)
            except TimeoutExpired:
                if self._database not in self._states.struck:  # otherwise it waits to write how its turns ended
                    self.problems.append(f"{part.name} still runs {DRAIN + GRACE:g} s after it was asked to end")
                await asyncio.to_thread(part.kill)
            else:
                if code:
                    self.problems.append(f"{part.name} was asked to end, and did with exit code {code}")
            self._on_ended(part)
            await self._start(part)

    async def hold(self, scene: Scene, part: Part, seconds: float) -> None:
        """Pauses a part with SIGSTOP, and continues it."""
        async with self._states.record_fault(scene, part, "pause"):
            part.send(signal.SIGSTOP)
            await asyncio.sleep(seconds)
            part.send(signal.SIGCONT)

    async def _start(self, part: Part) -> None:
        """Starts a server; repeats the start if the server exits because the database is unavailable."""
        deadline = time.monotonic() + 3 * START
        while True:
            try:
                await asyncio.to_thread(partial(part.start, ready=isinstance(part, ServerPart)))
                break
            except RuntimeError:
                await asyncio.to_thread(part.kill)
                if self._database not in self._states.struck and time.monotonic() > deadline:
                    raise
        self._on_serves(part)
