"""Queueing model of sends and chunks: how many share a commit, how fast callers are served, and how long one waits.

Sends are a closed network: each caller waits for its response, then sends again. Its stations are the core of servers,
PostgreSQL and NATS, and the core of the callers; the time of a commit in which no CPU works is a delay. Mean value
analysis gives rate and latency exactly for constant demands; the demand depends only on how many writes share a commit.
Chunks are an open network: an agent makes the next one whether or not the last was delivered.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

ITERATIONS: Final = 500
DAMPING: Final = 0.5
"""Fixed points are reached in some dozen iterations for every load below saturation."""

CONVERGED: Final = 1e-9
"""Writes per commit by which the last iteration may have changed the result."""

SATURATED: Final = 0.98
"""The highest utilization, commits excluded, for which an open network is solved. Above it the queue grows."""


class Saturated(ValueError):
    """The load needs more CPU than there is. The text has the utilization."""


@dataclass(frozen=True, slots=True)
class Demand:
    """What one unit needs, in seconds. `unit`: CPU apart from commits; `commit`: CPU of one commit, of all processes;
    `delay`: wait of a write without CPU, such as the disk; `caller`: CPU of the caller's process. `writes`: of a unit.
    `full_batch`: writes that share a commit when more of them wait than a process can serve.
    """

    unit: float
    commit: float
    delay: float
    caller: float
    writes: float
    full_batch: float

    def cpu(self, batch: float) -> float:
        """Returns the CPU of one unit when `batch` writes share a commit."""
        return self.unit + self.commit * self.writes / batch

    def slowed(self, factor: float) -> Demand:
        """Returns the demand with CPU times multiplied."""
        return replace(self, unit=self.unit * factor, commit=self.commit * factor)


@dataclass(frozen=True, slots=True)
class Solution:
    """Units per second, mean seconds of one, writes per commit, and utilization of the core."""

    rate: float
    latency: float
    batch: float
    utilization: float


def batch_of(callers: float, full_batch: float) -> float:
    """Returns the writes that share a commit of a process with so many callers.

    With few callers their writes form two groups: one is being committed while the other waits, so half of the callers
    share a commit. With many callers most wait for CPU, and the batch is the process's own limit. Two independent
    limits are joined as the root of the sum of their inverse squares.
    """
    share, limit = max(callers / 2, 1.0), max(full_batch, 1.0)
    return max(1.0, 1 / math.sqrt(1 / share**2 + 1 / limit**2)) if callers > 1 else 1.0


def solve_closed(demand: Demand, callers: int, servers: int = 1) -> Solution:
    """Returns the steady state of `callers` in all, spread evenly over `servers` that share one core."""
    batch = batch_of(callers / servers, demand.full_batch)
    core, delay = demand.cpu(batch), demand.writes * commit_delay(demand.delay, batch)
    at_core = at_caller = rate = 0.0
    for population in range(1, callers + 1):
        core_time, caller_time = core * (1 + at_core), demand.caller * (1 + at_caller)
        rate = population / (delay + core_time + caller_time)
        at_core, at_caller = rate * core_time, rate * caller_time
    return Solution(rate, callers / rate, batch, rate * core)


def commit_delay(delay: float, batch: float) -> float:
    """Returns the wait of a write for its commit, and half the commit before if one is in flight.

    A batch of one found the writer idle; in a batch of n, all but the first write came during another commit.
    """
    return delay * (1 + (1 - 1 / batch) / 2)


def solve_open(demand: Demand, rate: float) -> Solution:
    """Returns the steady state of units that come independently, `rate` a second, at one process with its own core.

    Writes that come during a commit share the next one: with m of them on average, m + exp(-m) share it, since a commit
    after an idle time has one. A commit's CPU shares the core with everything else. Raises Saturated.
    """
    batch = 1.0
    for _ in range(ITERATIONS):
        others = min(rate * demand.unit, SATURATED)
        commit = demand.commit / (1 - others) + demand.delay
        arrived = rate * demand.writes * commit
        found = min(arrived + math.exp(-arrived), max(demand.full_batch, 1.0))
        batch += DAMPING * (found - batch)
        if abs(found - batch) < CONVERGED:
            break
    utilization, others = rate * demand.cpu(batch), rate * demand.unit
    if others > SATURATED or utilization > 1:  # commits one after the other with room in each are no overload
        raise Saturated(f"{utilization:.0%} of a core")
    commit = demand.commit / (1 - others) + demand.delay
    busy = min(1.0, rate * demand.writes / batch * commit)
    latency = demand.unit * (1 + busy) / (1 - others) + commit * (1 + busy / 2) + demand.caller
    return Solution(rate, latency, batch, utilization)
