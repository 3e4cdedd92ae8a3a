"""Quota checks of messages, made inside the accepting transaction, and token buckets.

- `live_tasks`, `live_tasks_per_agent`: tasks that have not ended, of all agents and of this one; checked for new tasks.
- `queued_bytes`: undelivered messages. The first message in the queue is always accepted: its size has its own limit.
- `starts_per_minute`: turns started with this agent, as a token bucket with a burst of one minute.
- `stored_bytes`: counted in the background, and part of the quota once they have reached the limit.
- `scopes`: those in which the sender has created tasks, beside the default one; without a grant it can name any.

A repeated message with a known idempotency key is answered before these checks.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, NamedTuple

from dragoman.core.limits.quotas import Quota
from dragoman.core.task.log import OVER_QUOTA, AppendRejected
from dragoman.core.task.plan import Plan

QUOTA_RETRY_DELAY: Final = 5.0  # `retry_after` in seconds, where the time depends on the caller's own tasks
STORED_RETRY_DELAY: Final = 60.0  # the same where something has to be erased: stored bytes, scopes


class QuotaExceeded(AppendRejected):
    """The append would take its sender over a limit. `current` is the sender's value without it."""

    def __init__(self, limit: str, maximum: int, current: int, retry_after: float) -> None:
        super().__init__(OVER_QUOTA, None)
        self.limit = limit
        self.maximum = maximum
        self.current = current
        self.retry_after = retry_after


class PrincipalLoad(NamedTuple):
    """The load of a principal."""

    live_tasks: int = 0
    live_tasks_of_agent: int = 0
    queued_bytes: int = 0
    start_delay_ms: float = 0.0  # until its next turn may start
    scopes: int = 0  # that it has used, if the change is in a further one


def check_quota(quota: Quota, load: PrincipalLoad, plan: Plan) -> None:
    """Raises QuotaExceeded for a change that would take its sender over its quota."""
    live, live_of_agent, queued, start_delay, scopes = load
    if quota.stored_bytes:
        raise QuotaExceeded("stored_bytes", quota.stored_bytes, quota.stored, STORED_RETRY_DELAY)
    if plan.before is None:
        if 0 < quota.scopes <= scopes:
            raise QuotaExceeded("scopes", quota.scopes, scopes, STORED_RETRY_DELAY)
        if 0 < quota.live_tasks <= live:
            raise QuotaExceeded("live_tasks", quota.live_tasks, live, QUOTA_RETRY_DELAY)
        if 0 < quota.live_tasks_per_agent <= live_of_agent:
            raise QuotaExceeded("live_tasks_per_agent", quota.live_tasks_per_agent, live_of_agent, QUOTA_RETRY_DELAY)
    if quota.queued_bytes and queued and queued + sum([row.size for row in plan.messages]) > quota.queued_bytes:
        raise QuotaExceeded("queued_bytes", quota.queued_bytes, queued, QUOTA_RETRY_DELAY)
    if quota.starts_per_minute and start_delay and starts_turn(plan):
        raise QuotaExceeded("starts_per_minute", quota.starts_per_minute, quota.starts_per_minute, start_delay / 1000)


def starts_turn(plan: Plan) -> bool:
    """Whether a change starts a turn, now or later: true unless its message is for a running or waiting turn."""
    before = plan.before
    return plan.change.message is not None and (before is None or not before.has_open_turn)


MAX_TOKEN_BUCKETS: Final = 100_000
"""Maximum number of buckets. Beyond it the least recently used one is dropped, and so counts as full."""

_ROUNDING_TOLERANCE: Final = 1e-6
"""Share of an interval that is a rounding error of floating-point numbers, and no reason to wait."""


class TokenBuckets:
    """Token buckets by key. Times are arguments, in any unit."""

    def __init__(self, max_buckets: int = MAX_TOKEN_BUCKETS) -> None:
        self._max_buckets = max_buckets
        self._full_at: dict[Hashable, float] = {}

    def __len__(self) -> int:
        return len(self._full_at)

    def delay(self, key: Hashable, now: float, interval: float, burst: float) -> float:
        """Time until this bucket has a token; 0 when it has one."""
        wait = self._full_at.get(key, now) - now - (burst - 1) * interval
        return wait if wait > interval * _ROUNDING_TOLERANCE else 0.0

    def take(self, key: Hashable, now: float, interval: float) -> None:
        """Takes a token, even one that the bucket does not have yet."""
        full_at = max(now, self._full_at.pop(key, now)) + interval  # popped, so that it becomes the most recent
        self._full_at[key] = full_at
        if len(self._full_at) > self._max_buckets:
            full = [key for key, full_at in self._full_at.items() if full_at <= now]
            for evicted in full or [next(iter(self._full_at))]:
                del self._full_at[evicted]
