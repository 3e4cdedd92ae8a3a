"""Lease of a process: until when it may use its claims, by its own clock.

Others may act for a process when its session has expired by the store's clock. So that it does not act then, the lease
ends earlier: a margin before the end of the last successful renewal, counted from that renewal's start. After a lapse a
new term begins, and claims of earlier terms stay lost.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

LEASE_MARGIN: Final = 2.0
"""Seconds before the end of a lease that are not used: what a process does needs time to stop, and clocks differ."""

LEASE_CHECK_INTERVAL: Final = 0.1
"""Seconds between two looks at a lease that has lapsed."""

Clock = Callable[[], float]


def elapsed_clock() -> float:
    """Monotonic seconds. On Linux they include the time for which the machine was suspended."""
    return time.clock_gettime(_CLOCK_ID)


_CLOCK_ID: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Lease:
    """The lease of one process. Thread-safe."""

    def __init__(self, seconds: float, *, margin: float = LEASE_MARGIN, clock: Clock = elapsed_clock) -> None:
        """A lease of so many seconds from now on, whose last `margin` seconds (at most a quarter) are not used."""
        self._clock = clock
        self._margin = margin
        self._term = 1
        self._ends = self._end(clock(), seconds)

    def now(self) -> float:
        """The time by the lease's clock."""
        return self._clock()

    def extend(self, began: float, seconds: float) -> None:
        """Extends the lease after a renewal that was sent at `began` and is valid for so long."""
        if self._clock() >= self._ends:
            self._term += 1
        self._ends = self._end(began, seconds)

    @property
    def remaining(self) -> float:
        """Seconds for which claims may still be used; negative after a lapse."""
        return self._ends - self._clock()

    def hold(self) -> LeaseHold:
        """Returns a hold on the current term, for one turn or claim."""
        return LeaseHold(self)

    def is_lost(self, term: int) -> bool:
        """Whether the lease has lapsed since this term began."""
        return self._term != term or self._clock() >= self._ends

    @property
    def term(self) -> int:
        """The number of the current term: grows after each lapse."""
        return self._term

    def _end(self, began: float, seconds: float) -> float:
        return began + seconds - min(self._margin, seconds / 4)


class LeaseHold:
    """What a turn or a claim keeps of a lease: its term."""

    __slots__ = ("_lease", "_term")

    def __init__(self, lease: Lease) -> None:
        self._lease = lease
        self._term = lease.term

    @property
    def lost(self) -> bool:
        """Whether the lease has lapsed since the hold was taken. Stays true."""
        return self._lease.is_lost(self._term)


async def watch_lease(lease: Lease, on_lapse: Callable[[], None]) -> None:
    """Calls `on_lapse` when the lease may have lapsed, once a second or more often. Runs until canceled."""
    while True:
        await asyncio.sleep(min(max(lease.remaining, LEASE_CHECK_INTERVAL), 1.0))
        on_lapse()
