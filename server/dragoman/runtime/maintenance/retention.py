"""Retention and compaction: background jobs that end, erase and compact old tasks.

A task that waited too long for its caller ends by an ordinary append, so subscribers see it; one that ended long enough
ago is erased. Both go in small batches and depend on the store's clock only. While that clock cannot be trusted
(`ClockWatch`), both pause: what they delete does not come back when the clock is corrected.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Final

from dragoman.core.durations import format_age
from dragoman.core.task import states
from dragoman.core.task.log import Append, AppendRejected, TaskRecord, Version
from dragoman.core.task.maintenance import RETENTION_REASON, RetentionPolicy, TaskSelection
from dragoman.ports import Store
from dragoman.runtime.log import EventLog
from dragoman.runtime.maintenance.admin import Maintenance
from dragoman.runtime.observe.audit import Auditor
from dragoman.runtime.turn.finish import EXPIRED, system_status

log = logging.getLogger("dragoman.retention")

ERASE_BATCH_SIZE: Final = 512  # tasks erased before other writers may use the store

CLOCK_JUMP_TOLERANCE: Final = 60.0
"""Seconds by which a clock may differ from the monotonic clock between two measurements: clocks are slewed, and a
statement may take some seconds."""

CLOCK_PAUSE_SECONDS: Final = 86_400.0
"""Seconds without retention and compaction after a jump: a day to correct the clock, and as long as logs of ended tasks
are kept by default."""

MAX_CLOCK_GAP: Final = 86_400.0
"""Seconds between two processes on a store after which the second cannot tell an outage from a clock that is ahead."""

LAST_TIME_KEY: Final = "clock.last"
"""The name under which the store keeps its last trusted time, in milliseconds since the epoch."""

LAST_TIME_INTERVAL: Final = 60_000  # milliseconds after which that time is written again


class ClockWatch:
    """Notices jumps of the store's clock and of this machine's. Thread-safe.

    After a pause a clock that jumped is trusted again, because the new time may be the right one.
    """

    def __init__(
        self,
        *,
        pause: float = CLOCK_PAUSE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """pause: seconds. clock: monotonic seconds. wall: seconds since the epoch, by this machine's clock."""
        self._pause = pause
        self._clock = clock
        self._wall = wall
        self._measured = (clock(), wall())
        self._paused_until: float | None = None
        self._lock = threading.Lock()

    def compare(self, clock_name: str, progress: float, elapsed: float) -> bool:
        """Compares the progress of a clock with the elapsed seconds. True after a jump, which begins a pause."""
        jump = progress - elapsed
        if abs(jump) <= CLOCK_JUMP_TOLERANCE:
            return False
        self._begin_pause(f"{clock_name} jumped by {jump:+.0f} s")
        return True

    def compare_with_earlier(self, last: float, now: float) -> None:
        """Compares the store's time with the last one that an earlier process trusted, both in seconds."""
        if not last - CLOCK_JUMP_TOLERANCE <= now <= last + MAX_CLOCK_GAP:
            self._begin_pause(f"the clock of the store moved by {now - last:+.0f} s since a server last used it")

    def is_trusted(self) -> bool:
        """Whether ages may be computed now. Measures this machine's clock, too."""
        with self._lock:
            then, self._measured = self._measured, (self._clock(), self._wall())
            elapsed, progress = (after - before for after, before in zip(self._measured, then, strict=True))
        self.compare("the clock of this machine", progress, elapsed)
        with self._lock:
            if self._paused_until is not None and self._clock() >= self._paused_until:
                self._paused_until = None
                log.warning("the clock is trusted again: retention and compaction go on")
            return self._paused_until is None

    def _begin_pause(self, reason: str) -> None:
        with self._lock:
            was_paused, self._paused_until = self._paused_until is not None, self._clock() + self._pause
        if not was_paused:  # on one machine both clocks jump at once
            pause = format_age(round(self._pause * 1000))
            log.warning("%s: retention and compaction pause for %s; check the clock (NTP)", reason, pause)


@dataclass(eq=False, repr=False)
class StoreClock:
    """Tells whether the time of the store can be trusted, in this process and compared with earlier ones."""

    store: Store
    watch: ClockWatch
    session: int
    lease: float  # seconds
    renew: Callable[[], Awaitable[object]]  # renews the session, which measures the store's clock
    _is_compared: bool = field(default=False, init=False)

    async def is_trusted(self) -> bool:
        """Measures the clocks. If they are trusted, stores the time for the next process. Raises the store's errors."""
        await self.renew()
        expiry = (await self.store.sessions()).get(self.session)
        if expiry is None:  # it could not be renewed
            return False
        now = expiry - round(self.lease * 1000)
        last = await self.store.key_values.get(LAST_TIME_KEY)
        if last and not self._is_compared:
            self.watch.compare_with_earlier(int(last) / 1000, now / 1000)
        self._is_compared = True
        if not self.watch.is_trusted():
            return False
        if not last or abs(now - int(last)) >= LAST_TIME_INTERVAL:
            await self.store.key_values.compare_and_set(LAST_TIME_KEY, str(now), expected=last)
        return True


@dataclass(slots=True)
class RetentionCounters:
    """Counters of this process. They only grow and may be read at any time."""

    rounds: int = 0
    skipped: int = 0  # rounds left out because the clock was not trusted
    expired: int = 0  # tasks ended because they got no answer in time
    erased: int = 0  # tasks erased at the end of their retention time


@dataclass(eq=False, repr=False)
class Retention:
    """Applies the retention policy to one store."""

    store: Store
    event_log: EventLog
    maintenance: Maintenance
    rules: RetentionPolicy
    auditor: Auditor | None
    audit_retention_ms: int  # milliseconds after which entries of the audit log are removed; 0: never
    trusts_clock: Callable[[], Awaitable[bool]]  # whether a round may be run now
    batch_size: int = ERASE_BATCH_SIZE  # tasks erased before other writers may use the store
    counts: RetentionCounters = field(default_factory=RetentionCounters, init=False)

    async def run_if_trusted(self) -> None:
        """Runs a round, unless the clock is not trusted."""
        if await self.trusts_clock():
            await self.run_once()
        else:
            self.counts.skipped += 1

    async def compact(self) -> None:
        """Compacts the store, which truncates logs by their age, unless the clock is not trusted."""
        if await self.trusts_clock():
            await self.store.compact()

    async def run_once(self) -> None:
        """Ends tasks that waited too long, and erases those that ended too long ago."""
        self.counts.erased += await self.maintenance.resume_erasures(self.rules.age)
        for agent, state in await self.store.erasures.inactive_states():
            age = self.rules.age(agent, state)
            if not age:
                continue
            selection = TaskSelection(older_than=age, agent=agent, state=state)
            if state in states.INTERRUPTED:
                await self._expire(selection)
            else:
                await self._erase(selection)
        auditor = self.auditor if self.audit_retention_ms else None
        if auditor is not None and (removed := await auditor.truncate(self.audit_retention_ms)):
            log.info("expired entries of the audit log were removed: %d", removed)
        self.counts.rounds += 1

    async def _expire(self, selection: TaskSelection) -> None:
        before = self.counts.expired
        async with aclosing(self.store.erasures.select(selection)) as batches:
            async for records in batches:
                results = await asyncio.gather(*(self._end(record, selection) for record in records))
                self.counts.expired += sum(results)
        self._report("tasks without an answer in time, ended as FAILED", selection, self.counts.expired - before)

    async def _end(self, record: TaskRecord, selection: TaskSelection) -> bool:
        """Ends a waiting task. False when it has changed meanwhile, or is running."""
        if record.has_open_turn:
            return False
        events = [system_status(EXPIRED, record, f"({format_age(selection.older_than)})")]
        try:
            await self.event_log.append(
                Append(task=record.ref, guard=Version(record.last_sequence), events=events, release=True)
            )
        except AppendRejected:
            return False
        return True

    async def _erase(self, selection: TaskSelection) -> None:
        before = self.counts.erased
        while True:
            # Pending webhooks are delivered first; those that fail are given up in time.
            receipt = await self.maintenance.purge(
                replace(selection, by_retention=True), reason=RETENTION_REASON, limit=self.batch_size
            )
            self.counts.erased += receipt.counts.tasks
            if receipt.counts.tasks < self.batch_size:
                break
        self._report("tasks past their retention time, erased", selection, self.counts.erased - before)

    def _report(self, text: str, selection: TaskSelection, tasks: int) -> None:
        if tasks:
            state = states.short_name(selection.state)
            fields = {"agent": selection.agent, "state": state, "after": format_age(selection.older_than)}
            log.info("%s: %d of %s in %s", text, tasks, selection.agent, state, extra={"tasks": tasks, **fields})
