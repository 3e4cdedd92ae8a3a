"""Admission: rate limits and quotas of callers, in one process."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from dragoman.core.access.identity import Identity
from dragoman.core.errors import RateLimited
from dragoman.core.limits.admission import QuotaExceeded, TokenBuckets
from dragoman.core.limits.quotas import NO_QUOTA, Quota, Quotas

BURST_SECONDS: Final = 2
"""Seconds' worth of requests that may arrive at once."""

OPEN_STREAMS_RETRY_SECONDS: Final = 1.0
"""Seconds after which to retry when too many streams are open."""

_LIMIT_MESSAGES: Final = {
    "live_tasks": "{current} of your tasks are unfinished; at most {maximum} may be. Wait, or cancel some",
    "live_tasks_per_agent": "{current} of your tasks with this agent are unfinished; at most {maximum} may be. "
    "Wait, or cancel some",
    "queued_bytes": "{current} bytes of your messages are queued; at most {maximum} may be. Retry later",
    "starts_per_minute": "at most {maximum} of your turns with this agent may begin per minute. Retry later",
    "requests_per_second": "at most {maximum} requests per second are allowed for one caller. Retry later",
    "open_streams": "{current} of your streams and waiting calls are open; at most {maximum} may be. Close some",
}
"""The error text of each limit. The name of its setting is put before it."""


class Admission:
    """Enforces rate limits and quotas in one process."""

    def __init__(self, quotas: Quotas | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` gives monotonic seconds."""
        self._quotas = quotas or Quotas()
        self._clock = clock
        self.buckets = TokenBuckets()
        """The callers that sent requests lately."""
        self.open_streams: Counter[str] = Counter()
        """Open streams, waiting calls and connections by principal."""
        self._quota_cache: dict[tuple[str, bool], Quota] = {}

    def quota(self, identity: Identity, agent: str) -> Quota | None:
        """The quota that the store checks for a message of this principal; None for none."""
        key = agent, identity.is_authenticated
        quota = self._quota_cache.get(key)
        if quota is None:
            quota = self._quota_cache[key] = self._quotas.quota(agent, authenticated=identity.is_authenticated)
        return None if quota == NO_QUOTA else quota

    def check_rate(self, identity: Identity) -> None:
        """Counts a request. Raises RateLimited above the request rate."""
        rate = self._quotas.limit_for("requests_per_second", authenticated=identity.is_authenticated)
        if not rate:
            return
        now, interval = self._clock(), 1 / rate
        if wait := self.buckets.delay(identity.principal, now, interval, BURST_SECONDS * rate):
            raise rate_limited("requests_per_second", rate, rate, wait)
        self.buckets.take(identity.principal, now, interval)

    @contextmanager
    def hold_stream(self, identity: Identity) -> Iterator[None]:
        """Counts an open stream, waiting call or connection of a principal. Raises RateLimited."""
        maximum = self._quotas.limit_for("open_streams", authenticated=identity.is_authenticated)
        principal, count = identity.principal, self.open_streams[identity.principal]
        if maximum and count >= maximum:
            raise rate_limited("open_streams", maximum, count, OPEN_STREAMS_RETRY_SECONDS)
        self.open_streams[principal] = count + 1
        try:
            yield
        finally:
            self.open_streams[principal] -= 1
            if not self.open_streams[principal]:
                del self.open_streams[principal]


def rate_limited(limit: str, maximum: int, current: int, retry_after: float) -> RateLimited:
    """The error for an exceeded limit: the name of its setting, its value, and when to retry."""
    text = _LIMIT_MESSAGES[limit].format(current=current, maximum=maximum)
    # Rounded up to milliseconds, so that a client never retries too early.
    return RateLimited(
        f"{limit}: {text}", limit=limit, maximum=maximum, retry_after=math.ceil(retry_after * 1000) / 1000
    )


def quota_exceeded(error: QuotaExceeded) -> RateLimited:
    """The error for a quota that the store found exceeded."""
    return rate_limited(error.limit, error.maximum, error.current, error.retry_after)
