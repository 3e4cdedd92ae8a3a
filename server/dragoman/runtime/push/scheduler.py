"""Push scheduler: finds due pushes, claims them, and starts a delivery for each.

The store has the due pushes (the log is the outbox); hints only make delivery faster. After an append to a task with
push configurations, and once a second, this process claims due pushes under its session and has a `PushDelivery`
deliver each. Deliveries read like any subscriber and never delay a stream or a commit.

At most one process sends to a configuration: its holder sends only under its lease, which ends by the holder's own
clock before the session expires by the store's. Expired sessions count only when this process has renewed its own in
time for a whole lease: after an outage of the store, the other holders get time to renew, and nothing is repeated.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Final

from dragoman.core.errors import Unavailable
from dragoman.core.push.delivery import PushRecord, PushState, Share
from dragoman.core.task.log import TaskRef
from dragoman.ports import Bus, PushConfigKey, TaskSignal, Unsubscribe
from dragoman.runtime.lease import Lease, LeaseHold, watch_lease
from dragoman.runtime.push.delivery import DeliveryDeps, HostBreaker, PushDelivery
from dragoman.supervision import Background, start_task

log = logging.getLogger("dragoman.push")

MAX_HOSTS_PER_POLL: Final = 64  # hosts per query; the next one continues after them
MAX_HELD_PUSHES: Final = 4096
MAX_HELD_PER_SHARE: Final = 64
"""Claimed pushes, in total and per share of a host: the rest stays in the store, and no slow host takes all places."""

MAX_SETTLED_TASKS: Final = 65_536  # tasks known to need no wake-up; when full, all are forgotten and checked again


class PushScheduler:
    """Delivers the due pushes of one store, in one process."""

    def __init__(
        self, session: int, deps: DeliveryDeps, trusts_expiry: Callable[[], Awaitable[bool]], lease: Lease | None = None
    ) -> None:
        """`trusts_expiry`: whether expired sessions belong to dead processes. `lease`: of this process; None if no
        other process uses the store."""
        self._lease = lease
        self._trusts_expiry = trusts_expiry
        self._store = deps.store
        self._session = session
        self.deps = deps
        self.breaker = HostBreaker(self._on_host_recovered)  # the circuit breakers of all hosts
        self._longest_delay = round(deps.options.retry_policy.max_delay * 1000)
        self._next_poll = 0.0
        self._deliveries: dict[PushConfigKey, PushDelivery] = {}
        self._tasks: dict[PushConfigKey, asyncio.Task[None]] = {}
        self._shares: Counter[Share] = Counter()
        self._woken_tasks: dict[TaskRef, None] = {}  # in the order in which they were woken
        self._settled_tasks: set[TaskRef] = set()
        self._unknown_claims: dict[PushConfigKey, Share] = {}
        """Claims of unknown outcome, with their shares. The store may hold them for this session, and then no other
        process takes them."""
        self._wakeup = asyncio.Event()
        self._next_host = ""
        self._running: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._unsubscribe: Unsubscribe | None = None

    # Hints ------------------------------------------------------------------------------------------------------

    def wake(self, ref: TaskRef) -> None:
        """Hint: a task may have events to deliver. Costs next to nothing while its deliveries are running."""
        if ref not in self._settled_tasks:
            self._woken_tasks[ref] = None
            self._wakeup.set()

    def _on_signal(self, ref: TaskRef, signal: TaskSignal) -> None:
        if signal is TaskSignal.PUSH_CONFIGS:
            self._settled_tasks.discard(ref)
            for (task, _), delivery in self._deliveries.items():
                if task == ref:
                    delivery.revalidate()
            self.wake(ref)

    def _on_host_recovered(self) -> None:
        self._next_poll = 0.0
        self._wakeup.set()

    @property
    def held(self) -> int:
        """Pushes being delivered here."""
        return len(self._deliveries)

    def delivery_count(self, ref: TaskRef) -> int:
        """How many subscribers of a task in this process are push deliveries."""
        return sum(task == ref for task, _ in self._deliveries)

    # Start and stop ---------------------------------------------------------------------------------------------

    async def start(self, bus: Bus) -> None:
        self._unsubscribe = await bus.subscribe_signals(self._on_signal)
        self._running = start_task(Background.PUSH, self._run)
        if self._lease is not None:
            watch = partial(watch_lease, self._lease, self.end_lapsed_calls)
            self._watching = start_task(Background.LEASE, watch, "of webhooks")

    async def stop(self) -> None:
        """Stops. Requests in flight get `push_stop_timeout` seconds. May be called twice."""
        if self._running is None:
            return
        self._running.cancel()
        if self._unsubscribe is not None:
            await self._unsubscribe()
        for delivery in self._deliveries.values():
            delivery.stop()
        tasks = [self._running, *self._tasks.values()]
        _, late = await asyncio.wait(tasks, timeout=self.deps.timings.push_stop_timeout)
        for task in late:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait([self._watching])
        await self.deps.recorder.close()
        self._running = None

    async def _run(self) -> None:
        if (ready := self.deps.options.ready) is not None:
            await ready.wait()
        clock = asyncio.get_running_loop().time
        while True:
            await self.claim_woken()
            if clock() >= self._next_poll:
                self._next_poll = clock() + self.deps.timings.push_poll_interval
                await self.poll()
            with suppress(TimeoutError):
                async with asyncio.timeout_at(self._next_poll):
                    await self._wakeup.wait()

    async def poll(self) -> None:
        """Claims and starts due pushes that no process delivers."""
        while await self._claim(*await self._due()) and self._next_host:
            pass

    async def _due(self) -> tuple[list[PushRecord], bool]:
        """The next due pushes, and whether they include those of expired sessions."""
        bounded = partial(self._store.pushes.due, per_share=MAX_HELD_PER_SHARE, max_hosts=MAX_HOSTS_PER_POLL)
        find = partial(bounded, longest_delay=self._longest_delay)
        pushes, next_host = await find(after_host=self._next_host)
        expired = any(push.session not in (0, self._session) for push in pushes)
        # After the query: the store may have been unavailable meanwhile.
        if expired and not await self._trusts_expiry():
            expired = False
            pushes, next_host = await find(after_host=self._next_host, expired=False)
        self._next_host = next_host
        return pushes, expired

    def end_lapsed_calls(self) -> None:
        """Ends the requests in flight whose lease has ended, so that no other process sends at the same time."""
        for delivery in self._deliveries.values():
            delivery.end_lapsed_call()

    async def claim_woken(self) -> None:
        """Claims and starts the due pushes of tasks that got events since the last call."""
        self._wakeup.clear()
        woken, self._woken_tasks = self._woken_tasks, {}
        for ref in woken:
            live = [push for push in await self._store.pushes.list_configs(ref) if push.state is PushState.LIVE]
            # Hosts with an open breaker are left to the polls, which try them in bulk.
            await self._claim(push for push in live if push.due_at and push.config.host not in self.breaker)
            # Running deliveries get the next event from the feed; pushes due later are found by a poll.
            if all(push.due_at or (ref, push.config.id) in self._deliveries for push in live):
                if len(self._settled_tasks) >= MAX_SETTLED_TASKS:
                    self._settled_tasks.clear()
                self._settled_tasks.add(ref)

    # Deliveries -------------------------------------------------------------------------------------------------

    async def _claim(self, pushes: Iterable[PushRecord], expired: bool = False) -> int:
        """Claims as many of these as there is room for, and starts their deliveries. Returns how many.

        `expired`: also those of sessions that have expired, not only of those that have certainly ended.
        """
        hold = self._lease.hold() if self._lease is not None else None
        if hold is not None and hold.lost:
            return 0
        keys = dict(self._unknown_claims)
        room = self._shares + Counter(keys.values())
        for push in pushes:
            key, share = (push.task, push.config.id), push.share
            if key in keys or key in self._deliveries or room[share] >= MAX_HELD_PER_SHARE:
                continue
            if len(self._deliveries) + len(keys) >= MAX_HELD_PUSHES:
                break
            room[share] += 1
            keys[key] = share
        try:
            claim = partial(self._store.pushes.claim, expired=expired, longest_delay=self._longest_delay)
            claimed = await claim(self._session, list(keys)) if keys else []
        except Unavailable as error:
            if error.outcome_unknown:
                self._unknown_claims = keys
            raise
        self._unknown_claims = {}
        for push in claimed:
            self._start_delivery(push, hold)
        return len(claimed)

    def _start_delivery(self, push: PushRecord, hold: LeaseHold | None) -> None:
        key = push.task, push.config.id
        delivery = self._deliveries[key] = PushDelivery(push, self.deps, self.breaker, hold)
        self._shares[push.share] += 1
        task = self._tasks[key] = asyncio.create_task(delivery.run(), name=f"push to {push.config.host}")
        task.add_done_callback(lambda done: self._on_delivery_ended(push, done))

    def _on_delivery_ended(self, push: PushRecord, done: asyncio.Task[None]) -> None:
        key = push.task, push.config.id
        del self._deliveries[key], self._tasks[key]
        self._shares -= Counter((push.share,))
        self._settled_tasks.discard(push.task)
        if not done.cancelled() and (error := done.exception()):
            log.error("a push delivery failed unexpectedly", exc_info=error, extra={"task": push.task_id})
