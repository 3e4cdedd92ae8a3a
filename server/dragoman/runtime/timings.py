"""Times of the runtime: waits and intervals that no setting changes, in seconds.

Classes take them through their constructors, so that tests need not wait.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Timings:
    """Waits and intervals in seconds."""

    backlog_poll_interval: float = 2.0
    """Between polls for tasks that were left waiting."""
    version_poll_interval: float = 2.0
    """Between polls of the versions of followed tasks: the cost of a lost last event."""
    absence_poll_interval: float = 5.0
    """Between polls for tasks of agents that are absent for too long."""
    cancel_timeout: float = 2.0
    """For a running agent to stop, before CancelTask returns the task as it is."""
    cancel_poll_interval: float = 2.0
    """Between polls for cancel requests that the bus lost, where other servers may share the store."""
    stop_notice: float = 30.0
    """Before the end of the drain, at which turns are notified (`turn.stopping`)."""
    stop_timeout: float = 5.0
    """For agents to stop after the drain."""
    working_delay: float = 0.05
    """Until a silent turn shows WORKING; a shorter one goes straight to its final state."""
    direct_reply_timeout: float = 2.0
    """That a `direct` agent may take before its task becomes visible."""
    fence_timeout: float = 10.0
    """For a canceled agent to stop. Then it is fenced: its verbs raise LeaseLost."""
    store_wait: float = 5.0
    """That callers wait for the end of a turn to be written; then they read the store, or learn that it is away."""


DEFAULT_TIMINGS: Final = Timings()
