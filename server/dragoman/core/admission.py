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

from typing import Final, NamedTuple

from dragoman.core.log import OVER, Refused
from dragoman.core.plan import Plan
from dragoman.core.quotas import Quota

LATER: Final = 5.0
"""Seconds after which to try again where only the caller's own tasks say when there is room."""


class Overrun(Refused):
    """The append would take its sender over a limit. `has` is what the sender has without it."""

    def __init__(self, limit: str, most: int, has: int, retry_after: float) -> None:
        super().__init__(OVER, None)
        self.limit = limit
        self.most = most
        self.has = has
        self.retry_after = retry_after


class Standing(NamedTuple):
    """What a principal has: unfinished tasks, those of the agent in question, bytes that wait; and for how many
    milliseconds it has to wait until its next turn may begin."""

    live: int = 0
    live_here: int = 0
    queued: int = 0
    wait: float = 0.0


def check(quota: Quota, standing: Standing, made: Plan) -> None:
    """Raises Overrun for a change that would take its sender over its quota."""
    live, live_here, queued, wait = standing
    if made.before is None:
        if 0 < quota.live_tasks <= live:
            raise Overrun("live_tasks", quota.live_tasks, live, LATER)
        if 0 < quota.live_tasks_per_agent <= live_here:
            raise Overrun("live_tasks_per_agent", quota.live_tasks_per_agent, live_here, LATER)
    if quota.queued_bytes and queued and queued + sum([row.size for row in made.messages]) > quota.queued_bytes:
        raise Overrun("queued_bytes", quota.queued_bytes, queued, LATER)
    if quota.starts_per_minute and wait and starts(made):
        raise Overrun("starts_per_minute", quota.starts_per_minute, quota.starts_per_minute, wait / 1000)


def starts(made: Plan) -> bool:
    """Whether a change begins a turn, now or as soon as somebody is free: not a message for one under way."""
    before = made.before
    return made.change.message is not None and (before is None or not (before.running or before.ready))
