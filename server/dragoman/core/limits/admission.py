"""What one principal may take up, and when it is too much: decided inside of the transaction that would accept it.

A message is accepted if its sender, with it, stays inside of its quota:

- `live_tasks`, `live_tasks_per_agent`: tasks that have not ended, of all agents and of this one. Only a new task
  counts against them.
- `queued_bytes`: messages that nobody has taken up yet. What is alone in the queue is always let in: its size has a
  limit of its own.
- `starts_per_minute`: turns that begin, with this agent. So many at once, and then one after the other.

A message that was accepted before, under the same idempotency key, is answered before any of this is asked.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, NamedTuple

from dragoman.core.limits.quotas import Quota
from dragoman.core.task.log import OVER_QUOTA, AppendRejected
from dragoman.core.task.plan import Plan

QUOTA_RETRY_DELAY: Final = 5.0
"""Seconds after which to try again where only the caller's own tasks say when there is room."""


class QuotaExceeded(AppendRejected):
    """The append would take its sender over a limit. `has` is what the sender has without it."""

    def __init__(self, limit: str, maximum: int, current: int, retry_after: float) -> None:
        super().__init__(OVER_QUOTA, None)
        self.limit = limit
        self.maximum = maximum
        self.current = current
        self.retry_after = retry_after


class PrincipalLoad(NamedTuple):
    """What a principal has: unfinished tasks, those of the agent in question, bytes that wait; and for how many
    milliseconds it has to wait until its next turn may begin."""

    live_tasks: int = 0
    live_tasks_of_agent: int = 0
    queued_bytes: int = 0
    start_delay_ms: float = 0.0


def check_quota(quota: Quota, load: PrincipalLoad, plan: Plan) -> None:
    """Raises Overrun for a change that would take its sender over its quota."""
    live, live_here, queued, wait = load
    if plan.before is None:
        if 0 < quota.live_tasks <= live:
            raise QuotaExceeded("live_tasks", quota.live_tasks, live, QUOTA_RETRY_DELAY)
        if 0 < quota.live_tasks_per_agent <= live_here:
            raise QuotaExceeded("live_tasks_per_agent", quota.live_tasks_per_agent, live_here, QUOTA_RETRY_DELAY)
    if quota.queued_bytes and queued and queued + sum([row.size for row in plan.messages]) > quota.queued_bytes:
        raise QuotaExceeded("queued_bytes", quota.queued_bytes, queued, QUOTA_RETRY_DELAY)
    if quota.starts_per_minute and wait and starts_turn(plan):
        raise QuotaExceeded("starts_per_minute", quota.starts_per_minute, quota.starts_per_minute, wait / 1000)


def starts_turn(plan: Plan) -> bool:
    """Whether a change begins a turn, now or as soon as somebody is free: not a message for one under way."""
    before = plan.before
    return plan.change.message is not None and (before is None or not (before.running or before.ready))


MAX_TOKEN_BUCKETS: Final = 100_000
"""Buckets kept at most. One more, and the one that was used longest ago counts as full."""


_ROUNDING_TOLERANCE: Final = 1e-6
"""Parts of a token that are what floating-point numbers leave over, and no reason to wait."""


class TokenBuckets:
    """Buckets by key. Times are the caller's own, in any unit."""

    def __init__(self, max_buckets: int = MAX_TOKEN_BUCKETS) -> None:
        self._max_buckets = max_buckets
        self._full_at: dict[Hashable, float] = {}

    def __len__(self) -> int:
        return len(self._full_at)

    def delay(self, key: Hashable, now: float, interval: float, burst: float) -> float:
        """How long until this bucket has a token; 0 when it has one."""
        wait = self._full_at.get(key, now) - now - (burst - 1) * interval
        return wait if wait > interval * _ROUNDING_TOLERANCE else 0.0

    def take(self, key: Hashable, now: float, interval: float) -> None:
        """Takes a token, which may be one that the bucket does not have yet."""
        full_at = max(now, self._full_at.pop(key, now)) + interval  # and goes to the end of the line
        self._full_at[key] = full_at
        if len(self._full_at) > self._max_buckets:
            self._evict(now)

    def _evict(self, now: float) -> None:
        full = [key for key, full_at in self._full_at.items() if full_at <= now]
        for key in full or [next(iter(self._full_at))]:
            del self._full_at[key]
