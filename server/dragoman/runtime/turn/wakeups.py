"""Wakes sleeping turns: polls find those that wake before the next poll, and set a timer for each."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Container
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, Protocol

from dragoman.core.errors import A2AError, Unavailable
from dragoman.core.task.log import Append, Appended, AppendRejected, Asleep, TaskRecord, TaskRef
from dragoman.ports import Store
from dragoman.runtime.log import EventLog
from dragoman.supervision import log_fault

log = logging.getLogger("dragoman.runtime")

MAX_TIMERS: Final = 10_000
"""Turns with a timer in this process; later ones are found by a poll."""


class WakeReservation(Protocol):
    """A slot for a turn that is about to be woken (`runtime.scheduler.Reservation`)."""

    session: int

    def commit(self, appended: Appended | None) -> None: ...


@dataclass(eq=False, repr=False)
class Wakeups:
    """Wakes sleeping turns at their time. Every process wakes all turns of its agents; the first one wins."""

    store: Store
    event_log: EventLog
    agents: Container[str]
    """The ids of the agents served here."""
    reserve: Callable[[str], WakeReservation]
    """Reserves a slot for a turn of an agent."""
    interval: float
    """Seconds between two calls of `poll`."""
    clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000
    """Milliseconds since the epoch."""
    _timers: dict[TaskRef, asyncio.TimerHandle] = field(default_factory=dict, init=False)
    _waking: set[asyncio.Task[None]] = field(default_factory=set, init=False)

    @property
    def timers(self) -> int:
        """Turns that wake before the next poll, or are being woken."""
        return len(self._timers)

    async def poll(self) -> None:
        """Sets a timer for each turn that wakes before the next poll."""
        try:
            records = await self.store.sleeping_tasks(self.clock() + round(self.interval * 1000), MAX_TIMERS)
        except Exception as error:
            log_fault(log, "sleeping turns could not be read; retrying", error)
            return
        for record in records:
            self._set_timer(record)

    def note(self, record: TaskRecord) -> None:
        """A turn of this process went to sleep."""
        if record.wake_at <= self.clock() + round(self.interval * 1000):
            self._set_timer(record)

    def stop(self) -> None:
        """Wakes no further turns."""
        while self._timers:
            self._timers.popitem()[1].cancel()

    def _set_timer(self, record: TaskRecord) -> None:
        if record.agent not in self.agents or record.ref in self._timers or len(self._timers) >= MAX_TIMERS:
            return
        delay = max(record.wake_at - self.clock(), 0) / 1000
        self._timers[record.ref] = asyncio.get_running_loop().call_later(delay, self._start_waking, record)

    def _start_waking(self, record: TaskRecord) -> None:
        waking = asyncio.get_running_loop().create_task(self._wake(record), name=f"wake {record.id}")
        self._waking.add(waking)
        waking.add_done_callback(partial(self._end_waking, record.ref))

    def _end_waking(self, ref: TaskRef, waking: asyncio.Task[None]) -> None:
        self._waking.discard(waking)
        self._timers.pop(ref, None)

    async def _wake(self, record: TaskRecord) -> None:
        change = Append(task=record.ref, guard=Asleep(), wake=True)
        try:
            reservation = self.reserve(record.agent)
        except Unavailable:  # this server is shutting down, or the agent is away
            return
        # Rejected: another process has woken it, or it was canceled. Another error: the next poll finds it again.
        with suppress(AppendRejected, A2AError):
            await self.event_log.append(replace(change, claim_session=reservation.session), reservation.commit)
