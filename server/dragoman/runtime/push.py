"""Push notifications, delivered: who has something to be told, and that somebody tells it (design: the log as outbox).

The store knows what is due; a hint only makes it quicker. Whenever an append to a task with configurations is committed
here, and once every second, this process looks for pushes that nobody delivers, claims them under its session, and has
a `Carrier` deliver each. Nothing of this is in the way of a stream or of a commit: carriers read as followers do.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from dragoman.core.errors import Unavailable
from dragoman.core.log import TaskRef
from dragoman.core.push import Push, PushState
from dragoman.ports import Bus, PushKey, Signal, Stop, Store
from dragoman.runtime.carrier import Calls, Carrier, Means

log = logging.getLogger("dragoman.push")

LOOK: Final = 1.0
"""Seconds between two looks for what is due."""

HOSTS: Final = 64
"""Hosts that one look is about; the next one goes on from there."""

CALLS: Final = 256
CALLS_PER_HOST: Final = 8
"""Calls under way at a time."""

HELD: Final = 4096
HELD_PER_HOST: Final = 64
"""Pushes that are held at a time: what is past that stays in the store, and no slow host takes all of them."""

QUIET: Final = 65_536
"""Tasks that are known to need no nudge; past that all of them are looked at once more."""

GRACE: Final = 5.0
"""Seconds that calls under way get to be answered when the server stops."""


@dataclass(slots=True)
class Delivered:
    """What this process has done so far. Counters only grow; read them whenever you like."""

    begun: int = 0
    """Pushes that were claimed."""
    failed: int = 0
    """Looks that could not be completed."""


class Courier:
    """Delivers what is due of one store, in one process."""

    def __init__(
        self, store: Store, session: int, means: Means, ready: asyncio.Event | None = None, *, look: float = LOOK
    ) -> None:
        """Delivers nothing before `ready` is set, if there is one."""
        self._store = store
        self._session = session
        self._means = means
        self._ready = ready
        self._look = look
        self._next_look = 0.0
        self._carriers: dict[PushKey, Carrier] = {}
        self._tasks: dict[PushKey, asyncio.Task[None]] = {}
        self._hosts: Counter[str] = Counter()
        self._nudged: set[TaskRef] = set()
        self._quiet: set[TaskRef] = set()
        self._unanswered: dict[PushKey, str] = {}
        """Claims that the store broke off in, with their hosts: it may hold them for us, and nobody else would take
        those."""
        self._wake = asyncio.Event()
        self._after = ""
        self._running: asyncio.Task[None] | None = None
        means.rests.ended = self._somebody_there
        self._deaf: Stop | None = None
        self.counts = Delivered()

    # Hints ------------------------------------------------------------------------------------------------------

    def nudge(self, ref: TaskRef) -> None:
        """There may be something to tell of a task. Costs next to nothing where its receivers are being told."""
        if ref not in self._quiet:
            self._nudged.add(ref)
            self._wake.set()

    def _signalled(self, ref: TaskRef, signal: Signal) -> None:
        """Takes what the bus says: the configurations of a task are others now."""
        if signal is Signal.PUSHES:
            self._quiet.discard(ref)
            for (task, _), carrier in self._carriers.items():
                if task == ref:
                    carrier.doubt()
            self.nudge(ref)

    def _somebody_there(self) -> None:
        """A host rests no longer: what is due for it is begun now."""
        self._next_look = 0.0
        self._wake.set()

    @property
    def calls(self) -> Calls:
        """What came of the calls of this process."""
        return self._means.calls

    @property
    def held(self) -> int:
        """Pushes that are being delivered here."""
        return len(self._carriers)

    def following(self, ref: TaskRef) -> int:
        """How many followers of a task here are carriers of ours."""
        return sum(task == ref for task, _ in self._carriers)

    # Life -------------------------------------------------------------------------------------------------------

    async def start(self, bus: Bus) -> None:
        """Begins to look, and to listen to the bus."""
        self._deaf = await bus.obey(self._signalled)
        self._running = asyncio.create_task(self._run(), name="push courier")

    async def stop(self) -> None:
        """Ends it: what is being posted may be answered, for a little while. May be called twice."""
        if self._running is None:
            return
        self._running.cancel()
        if self._deaf is not None:
            await self._deaf()
        for carrier in self._carriers.values():
            carrier.stop()
        left = [self._running, *self._tasks.values()]
        _, late = await asyncio.wait(left, timeout=GRACE)
        for task in late:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        await self._means.ledger.close()
        self._running = None

    async def _run(self) -> None:
        if self._ready is not None:
            await self._ready.wait()
        clock = asyncio.get_running_loop().time
        while True:
            try:
                await self._take_nudges()
                if clock() >= self._next_look:
                    self._next_look = clock() + self._look
                    await self.look()
            except Exception:
                self.counts.failed += 1
                log.exception("could not look for what is to be pushed")
                await asyncio.sleep(self._look)
            try:
                async with asyncio.timeout_at(self._next_look):
                    await self._wake.wait()
            except TimeoutError:
                pass

    async def look(self) -> None:
        """Begins to deliver what is due in the store and nobody delivers."""
        found, self._after = await self._store.pushes.due(each=HELD_PER_HOST, hosts=HOSTS, after=self._after)
        while self._after and await self._begin(found):
            found, self._after = await self._store.pushes.due(each=HELD_PER_HOST, hosts=HOSTS, after=self._after)
        await self._begin(found)

    async def _take_nudges(self) -> None:
        self._wake.clear()
        nudged, self._nudged = self._nudged, set()
        for ref in nudged:
            live = [push for push in await self._store.pushes.of(ref) if push.state is PushState.LIVE]
            # Hosts that rest are left to the looks, which try them in bulk.
            await self._begin(push for push in live if push.due and push.config.host not in self._means.rests)
            # Those who are held hear of the next event as followers, and what is due later is found by a look.
            if all(push.due or (ref, push.config.id) in self._carriers for push in live):
                if len(self._quiet) >= QUIET:
                    self._quiet.clear()
                self._quiet.add(ref)

    # Carriers ---------------------------------------------------------------------------------------------------

    async def _begin(self, found: Iterable[Push]) -> int:
        """Claims of these what there is room for, and delivers it. Gives how many were claimed."""
        keys = dict(self._unanswered)
        room = self._hosts + Counter(keys.values())
        for push in found:
            key, host = (push.task, push.config.id), push.config.host
            if key in keys or key in self._carriers or room[host] >= HELD_PER_HOST:
                continue
            if len(self._carriers) + len(keys) >= HELD:
                break
            room[host] += 1
            keys[key] = host
        try:
            taken = await self._store.pushes.claim(self._session, list(keys)) if keys else []
        except Unavailable as error:
            if error.uncertain:
                self._unanswered = keys
            raise
        self._unanswered = {}
        for push in taken:
            self._carry(push)
        self.counts.begun += len(taken)
        return len(taken)

    def _carry(self, push: Push) -> None:
        key, host = (push.task, push.config.id), push.config.host
        carrier = self._carriers[key] = Carrier(push, self._means)
        self._hosts[host] += 1
        task = self._tasks[key] = asyncio.create_task(carrier.run(), name=f"push to {host}")
        task.add_done_callback(lambda done: self._over(push, done))

    def _over(self, push: Push, done: asyncio.Task[None]) -> None:
        key, host = (push.task, push.config.id), push.config.host
        del self._carriers[key], self._tasks[key]
        self._hosts[host] -= 1
        if not self._hosts[host]:
            del self._hosts[host]
        self._quiet.discard(push.task)
        if not done.cancelled() and (error := done.exception()):
            log.error("a carrier of pushes broke", exc_info=error, extra={"task": push.task_id})
