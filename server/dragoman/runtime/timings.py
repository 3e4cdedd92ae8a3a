"""Times of the runtime: waits and intervals that no setting changes, in seconds; and the clocks that measure them.

Classes take them through their constructors, so that tests need not wait.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from dragoman.core.durations import Backoff
from dragoman.ids import now_ms
from dragoman.runtime.lease import elapsed_clock


@dataclass(frozen=True)
class Timings:
    """Waits and intervals in seconds."""

    backlog_poll_interval: float = 2.0  # between polls for tasks that were left waiting
    version_poll_interval: float = 2.0  # between polls of the versions of followed tasks: the cost of a lost last event
    absence_poll_interval: float = 5.0  # between polls for tasks of agents that are absent for too long
    cancel_timeout: float = 2.0  # time for a running agent to stop before CancelTask returns the task as it is
    cancel_poll_interval: float = 2.0
    """Between polls for cancel requests that the bus lost, where other servers may share the store."""
    unconfirmed_cancel_interval: float = 60.0
    """Between searches for cancels that another server has not confirmed for too long."""
    stop_notice: float = 30.0  # before the end of the drain, at which turns are notified (`turn.stopping`)
    stop_timeout: float = 2.0  # time for agents to stop after the drain
    working_delay: float = 0.05  # until a silent turn shows WORKING; a shorter one goes straight to its final state
    direct_reply_timeout: float = 2.0  # time for a `direct` agent to reply before its task becomes visible
    mute_timeout: float = 10.0
    """Time for a canceled agent to stop. Then it is muted: its verbs raise LeaseLost."""
    store_wait: float = 5.0
    """Time to write the end of a turn. Then its callers read the store, or get Unavailable."""
    store_retry: Backoff = field(default=Backoff(0.5, 30.0))
    """Between attempts to write the end of a turn, or to read its input, while the store is unavailable."""
    append_wait: float = 5.0
    """Time without a successful append, though one waits or failed, after which the process is not ready."""
    store_probe_interval: float = 1.0  # between probes of the store while appends fail
    renew_interval: float = 2.0  # between renewals of the session, and between polls for tasks of dead sessions
    claim_poll_interval: float = 2.0  # between polls for claims of unknown outcome
    claim_wait: float = 600.0
    """Time for an absent task to appear: a commit that waits for a standby is invisible meanwhile."""
    retention_interval: float = 60.0  # between rounds of the retention job
    compaction_interval: float = 5.0
    """Between rounds of compaction. A round without work costs two reads."""
    audit_flush_interval: float = 0.25  # time to collect entries of the audit log before a write
    audit_count_interval: float = 60.0
    """Time to count rejected callers before an entry of the audit log has their number."""
    push_poll_interval: float = 1.0  # between polls for due pushes
    push_claim_hold: float = 2.0  # time for which a delivery waits for the next event before it releases its claim
    push_place_time: float = 1.0
    """Time for which a webhook request has one of the places of its host. A slower one goes on without a place."""
    push_record_timeout: float = 1.0  # time to write results of webhook requests when the server stops
    push_stop_timeout: float = 2.0  # time for webhook requests in flight to end when the server stops


DEFAULT_TIMINGS: Final = Timings()


@dataclass(frozen=True)
class Clocks:
    """The clocks of a process. Timers are the loop's own; a simulation replaces both."""

    monotonic: Callable[[], float] = time.monotonic  # seconds, for what has passed while the process ran
    elapsed: Callable[[], float] = elapsed_clock
    """Seconds that include the time for which the machine was suspended, for the lease."""
    wall_ms: Callable[[], int] = now_ms  # milliseconds since the epoch, by this machine's clock

    def wall(self) -> float:
        """Seconds since the epoch, by this machine's clock."""
        return self.wall_ms() / 1000


SYSTEM_CLOCKS: Final = Clocks()
