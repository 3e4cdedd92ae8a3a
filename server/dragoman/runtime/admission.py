"""Admission on the way in: how often a principal may ask, how much may be open for it, and how it is refused.

What a message may add is decided by the store, in the transaction that would accept it (core/admission.py). Here is
what needs no transaction, the same for every binding, and the one place where a limit becomes a refusal.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from dragoman.core.admission import Overrun
from dragoman.core.errors import RateLimited
from dragoman.core.identity import Identity
from dragoman.core.pace import Pace
from dragoman.core.quotas import FREE, Quota, Quotas

BURST: Final = 2
"""Seconds' worth of requests that may come at once."""

AGAIN: Final = 1.0
"""Seconds after which to try again when too much is open."""

_TEXTS: Final = {
    "live_tasks": "{has} of your tasks have not ended, and at most {most} may be unfinished; wait, or cancel some",
    "live_tasks_per_agent": "{has} of your tasks with this agent have not ended, and at most {most} may be unfinished; "
    "wait, or cancel some",
    "queued_bytes": "{has} bytes of your messages wait to be taken up, and at most {most} may; wait",
    "starts_per_minute": "at most {most} of your turns with this agent may begin in a minute; wait",
    "requests_per_second": "at most {most} requests of one caller are answered in a second; wait",
    "open_streams": "{has} of your streams and waiting calls are open, and at most {most} may be; close some",
}
"""What each limit says. The name of the setting goes before it."""


class Admission:
    """The limits of one process."""

    def __init__(self, quotas: Quotas | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` gives seconds, and never goes back."""
        self._quotas = quotas or Quotas()
        self._clock = clock
        self._pace = Pace()
        self._open: Counter[str] = Counter()
        self._made: dict[tuple[str, bool], Quota] = {}

    def quota(self, identity: Identity, agent: str) -> Quota | None:
        """What the store has to hold a message of this principal against; None for nothing."""
        key = agent, identity.known
        quota = self._made.get(key)
        if quota is None:
            quota = self._made[key] = self._quotas.quota(agent, known=identity.known)
        return None if quota == FREE else quota

    def ask(self, identity: Identity) -> None:
        """Counts a request. Raises RateLimited when they come too often."""
        rate = self._quotas.value("requests_per_second", known=identity.known)
        if not rate:
            return
        now, every = self._clock(), 1 / rate
        if wait := self._pace.wait(identity.principal, now, every, BURST * rate):
            raise refusal("requests_per_second", rate, rate, wait)
        self._pace.take(identity.principal, now, every)

    @contextmanager
    def open(self, identity: Identity) -> Iterator[None]:
        """Counts what stays open for a principal: a stream, a call that waits, a connection. Raises RateLimited."""
        most = self._quotas.value("open_streams", known=identity.known)
        principal, count = identity.principal, self._open[identity.principal]
        if most and count >= most:
            raise refusal("open_streams", most, count, AGAIN)
        self._open[principal] = count + 1
        try:
            yield
        finally:
            self._open[principal] -= 1
            if not self._open[principal]:
                del self._open[principal]


def refusal(limit: str, most: int, has: int, retry_after: float) -> RateLimited:
    """What a caller is told: the limit by the name of its setting, its value, and when to try again."""
    said = _TEXTS[limit].format(has=has, most=most)
    # No earlier than it is worth while, on clocks that count milliseconds.
    return RateLimited(f"{limit}: {said}", limit=limit, most=most, retry_after=math.ceil(retry_after * 1000) / 1000)


def refused(overrun: Overrun) -> RateLimited:
    """The same for a refusal of the store."""
    return refusal(overrun.limit, overrun.most, overrun.has, overrun.retry_after)
