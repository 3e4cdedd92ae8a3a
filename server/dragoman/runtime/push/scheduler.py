"""Push notifications, delivered: who has something to be told, and that somebody tells it (design: the log as outbox).

The store knows what is due; a hint only makes it quicker. Whenever an append to a task with configurations is committed
here, and once every second, this process looks for pushes that nobody delivers, claims them under its session, and has
a `PushDelivery` deliver each. Nothing of this is in the way of a stream or of a commit: carriers read as followers do.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from dragoman.core.errors import InvalidParams, TaskNotFound, Unavailable
from dragoman.core.push.delivery import DeliveryAttempt, PushRecord, PushState
from dragoman.core.task.log import TaskRecord, TaskRef
from dragoman.core.task.maintenance import TaskSelection
from dragoman.ports import Bus, PushConfigKey, Store, TaskSignal, Unsubscribe
from dragoman.runtime.push.delivery import DeliveryCounters, DeliveryDeps, PushDelivery

log = logging.getLogger("dragoman.push")

PUSH_POLL_INTERVAL: Final = 1.0
"""Seconds between two looks for what is due."""

MAX_HOSTS_PER_POLL: Final = 64
"""Hosts that one look is about; the next one goes on from there."""

MAX_CALLS: Final = 256
MAX_CALLS_PER_HOST: Final = 8
"""Calls under way at a time."""

MAX_HELD_PUSHES: Final = 4096
MAX_HELD_PER_HOST: Final = 64
"""Pushes that are held at a time: what is past that stays in the store, and no slow host takes all of them."""

MAX_SETTLED_TASKS: Final = 65_536
"""Tasks that are known to need no nudge; past that all of them are looked at once more."""

PUSH_STOP_TIMEOUT: Final = 5.0
"""Seconds that calls under way get to be answered when the server stops."""


@dataclass(slots=True)
class PushCounters:
    """What this process has done so far. Counters only grow; read them whenever you like."""

    claimed: int = 0
    """Pushes that were claimed."""
    failed_polls: int = 0
    """Looks that could not be completed."""


class PushScheduler:
    """Delivers what is due of one store, in one process."""

    def __init__(
        self,
        store: Store,
        session: int,
        deps: DeliveryDeps,
        ready: asyncio.Event | None = None,
        *,
        poll_interval: float = PUSH_POLL_INTERVAL,
    ) -> None:
        """Delivers nothing before `ready` is set, if there is one."""
        self._store = store
        self._session = session
        self._deps = deps
        self._ready = ready
        self._poll_interval = poll_interval
        self._next_poll = 0.0
        self._deliveries: dict[PushConfigKey, PushDelivery] = {}
        self._tasks: dict[PushConfigKey, asyncio.Task[None]] = {}
        self._hosts: Counter[str] = Counter()
        self._woken_tasks: set[TaskRef] = set()
        self._settled_tasks: set[TaskRef] = set()
        self._unknown_claims: dict[PushConfigKey, str] = {}
        """Claims that the store broke off in, with their hosts: it may hold them for us, and nobody else would take
        those."""
        self._wakeup = asyncio.Event()
        self._next_host = ""
        self._running: asyncio.Task[None] | None = None
        deps.breaker.on_closed = self._on_host_recovered
        self._unsubscribe: Unsubscribe | None = None
        self.counts = PushCounters()

    # Hints ------------------------------------------------------------------------------------------------------

    def wake(self, ref: TaskRef) -> None:
        """There may be something to tell of a task. Costs next to nothing where its receivers are being told."""
        if ref not in self._settled_tasks:
            self._woken_tasks.add(ref)
            self._wakeup.set()

    def _on_signal(self, ref: TaskRef, signal: TaskSignal) -> None:
        """Takes what the bus says: the configurations of a task are others now."""
        if signal is TaskSignal.PUSH_CONFIGS:
            self._settled_tasks.discard(ref)
            for (task, _), carrier in self._deliveries.items():
                if task == ref:
                    carrier.revalidate()
            self.wake(ref)

    def _on_host_recovered(self) -> None:
        """A host rests no longer: what is due for it is begun now."""
        self._next_poll = 0.0
        self._wakeup.set()

    @property
    def delivery_counters(self) -> DeliveryCounters:
        """What came of the calls of this process."""
        return self._deps.counters

    @property
    def held(self) -> int:
        """Pushes that are being delivered here."""
        return len(self._deliveries)

    def delivery_count(self, ref: TaskRef) -> int:
        """How many followers of a task here are carriers of ours."""
        return sum(task == ref for task, _ in self._deliveries)

    # Life -------------------------------------------------------------------------------------------------------

    async def start(self, bus: Bus) -> None:
        """Begins to look, and to listen to the bus."""
        self._unsubscribe = await bus.subscribe_signals(self._on_signal)
        self._running = asyncio.create_task(self._run(), name="push courier")

    async def stop(self) -> None:
        """Ends it: what is being posted may be answered, for a little while. May be called twice."""
        if self._running is None:
            return
        self._running.cancel()
        if self._unsubscribe is not None:
            await self._unsubscribe()
        for carrier in self._deliveries.values():
            carrier.stop()
        left = [self._running, *self._tasks.values()]
        _, late = await asyncio.wait(left, timeout=PUSH_STOP_TIMEOUT)
        for task in late:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        await self._deps.recorder.close()
        self._running = None

    async def _run(self) -> None:
        if self._ready is not None:
            await self._ready.wait()
        clock = asyncio.get_running_loop().time
        while True:
            try:
                await self._claim_woken()
                if clock() >= self._next_poll:
                    self._next_poll = clock() + self._poll_interval
                    await self.poll()
            except Exception:
                self.counts.failed_polls += 1
                log.exception("could not look for what is to be pushed")
                await asyncio.sleep(self._poll_interval)
            try:
                async with asyncio.timeout_at(self._next_poll):
                    await self._wakeup.wait()
            except TimeoutError:
                pass

    async def poll(self) -> None:
        """Begins to deliver what is due in the store and nobody delivers."""
        found, self._next_host = await self._store.pushes.due(
            per_host=MAX_HELD_PER_HOST, max_hosts=MAX_HOSTS_PER_POLL, after_host=self._next_host
        )
        while self._next_host and await self._claim(found):
            found, self._next_host = await self._store.pushes.due(
                per_host=MAX_HELD_PER_HOST, max_hosts=MAX_HOSTS_PER_POLL, after_host=self._next_host
            )
        await self._claim(found)

    async def _claim_woken(self) -> None:
        self._wakeup.clear()
        nudged, self._woken_tasks = self._woken_tasks, set()
        for ref in nudged:
            live = [push for push in await self._store.pushes.list_configs(ref) if push.state is PushState.LIVE]
            # Hosts that rest are left to the looks, which try them in bulk.
            await self._claim(push for push in live if push.due_at and push.config.host not in self._deps.breaker)
            # Those who are held hear of the next event as followers, and what is due later is found by a look.
            if all(push.due_at or (ref, push.config.id) in self._deliveries for push in live):
                if len(self._settled_tasks) >= MAX_SETTLED_TASKS:
                    self._settled_tasks.clear()
                self._settled_tasks.add(ref)

    # Carriers ---------------------------------------------------------------------------------------------------

    async def _claim(self, pushes: Iterable[PushRecord]) -> int:
        """Claims of these what there is room for, and delivers it. Gives how many were claimed."""
        keys = dict(self._unknown_claims)
        room = self._hosts + Counter(keys.values())
        for push in pushes:
            key, host = (push.task, push.config.id), push.config.host
            if key in keys or key in self._deliveries or room[host] >= MAX_HELD_PER_HOST:
                continue
            if len(self._deliveries) + len(keys) >= MAX_HELD_PUSHES:
                break
            room[host] += 1
            keys[key] = host
        try:
            taken = await self._store.pushes.claim(self._session, list(keys)) if keys else []
        except Unavailable as error:
            if error.outcome_unknown:
                self._unknown_claims = keys
            raise
        self._unknown_claims = {}
        for push in taken:
            self._start_delivery(push)
        self.counts.claimed += len(taken)
        return len(taken)

    def _start_delivery(self, push: PushRecord) -> None:
        key, host = (push.task, push.config.id), push.config.host
        carrier = self._deliveries[key] = PushDelivery(push, self._deps)
        self._hosts[host] += 1
        task = self._tasks[key] = asyncio.create_task(carrier.run(), name=f"push to {host}")
        task.add_done_callback(lambda done: self._on_delivery_ended(push, done))

    def _on_delivery_ended(self, push: PushRecord, done: asyncio.Task[None]) -> None:
        key, host = (push.task, push.config.id), push.config.host
        del self._deliveries[key], self._tasks[key]
        self._hosts[host] -= 1
        if not self._hosts[host]:
            del self._hosts[host]
        self._settled_tasks.discard(push.task)
        if not done.cancelled() and (error := done.exception()):
            log.error("a carrier of pushes broke", exc_info=error, extra={"task": push.task_id})


@dataclass(frozen=True, slots=True)
class PushHistory:
    """A configuration and its last tries, newest first."""

    push: PushRecord
    attempts: list[DeliveryAttempt]


class Redelivery:
    """The operators' side of one store's pushes."""

    def __init__(self, store: Store, bus: Bus) -> None:
        self._store = store
        self._bus = bus

    async def of_task(self, record: TaskRecord) -> list[PushHistory]:
        """Every configuration of a task, the oldest first."""
        pushes = self._store.pushes
        return [
            PushHistory(push, await pushes.attempts(record.ref, push.config.id))
            for push in await pushes.list_configs(record.ref)
        ]

    async def of_selection(self, selection: TaskSelection) -> list[PushHistory]:
        """Every configuration of the tasks of an id. Raises TaskNotFound."""
        return [one for head in await self._records(selection) for one in await self.of_task(head)]

    async def waiting(self, limit: int) -> list[PushRecord]:
        """What has something to deliver, or was given up: what fails for longest first."""
        return await self._store.pushes.unfinished(limit)

    async def redeliver(self, selection: TaskSelection, id: str = "", after: int | None = None) -> list[PushRecord]:
        """Begins again to deliver to one configuration of a task, or to all: what it has not taken, or everything
        after event `after`. Gives them as they stand then.

        Raises TaskNotFound for a task or a configuration that is not there, InvalidParams for an id that several tasks
        have, and for an event that lies beyond the task's last.
        """
        first, *others = await self._records(selection)
        if others:
            raise InvalidParams.field("taskId", "belongs to several tasks: say which agent, principal or scope")
        if after is not None and not 0 <= after < first.last_sequence:
            raise InvalidParams.field("from", f"must be an event of the task, 1 to {first.last_sequence}")
        begun = await self._store.pushes.restart(first.ref, [id] if id else [], after)
        if not begun:
            raise TaskNotFound("the task has no such push notification configuration")
        self._bus.publish_signal(first.ref, TaskSignal.PUSH_CONFIGS)
        return begun

    async def _records(self, selection: TaskSelection) -> list[TaskRecord]:
        heads = [head for head in await self._store.locate(selection.task) if selection.matches(head, 0)]
        if not heads:
            raise TaskNotFound
        return heads
