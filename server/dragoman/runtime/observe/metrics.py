"""Metrics of the runtime.

Nothing is counted here: a scrape reads plain numbers. Statistics of the store are cached for a few seconds.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from dragoman.core.counters import MetricFamily, MetricSample, StoreStats, counter, gauge, histogram
from dragoman.core.limits.quotas import BILLION
from dragoman.core.push.delivery import DeliveryOutcome
from dragoman.core.task import states
from dragoman.ports import Bus, Store
from dragoman.runtime.feeds import TaskFeeds
from dragoman.runtime.log import EventLog
from dragoman.runtime.maintenance.retention import Retention
from dragoman.runtime.observe.watchdog import Watchdog
from dragoman.runtime.push.scheduler import PushScheduler
from dragoman.runtime.scheduler import Scheduler
from dragoman.supervision import FAILURES, log_fault

log = logging.getLogger("dragoman.runtime")

STATS_CACHE_SECONDS: Final = 2.0  # seconds for which the store's statistics are cached
STATS_TIMEOUT: Final = 5.0  # seconds to wait for the store: an unavailable one must not hide all other metrics

_OUTCOMES: Final = {
    DeliveryOutcome.DELIVERED: "delivered",
    DeliveryOutcome.FAILED: "failed",
    DeliveryOutcome.ENDED: "gone",
}


@dataclass(eq=False, repr=False, kw_only=True)
class RuntimeMetrics:
    """The metrics of one runtime, and their sources."""

    store: Store
    bus: Bus
    scheduler: Scheduler
    feeds: TaskFeeds
    event_log: EventLog
    retention: Retention
    watchdog: Watchdog
    push_scheduler: PushScheduler | None
    _store_stats: StoreStats | None = field(default=None, init=False)
    _stats_expire: float = field(default=0.0, init=False)
    _stats_task: asyncio.Task[StoreStats | None] | None = field(default=None, init=False)

    async def families(self) -> list[MetricFamily]:
        """All metric families with their current values."""
        stats = await self.store_stats()
        return [*self._process_families(), *(_store_families(stats) if stats else ()), gauge(
            "store_up", "Whether the store's statistics could be read.", stats is not None
        )]  # fmt: skip

    async def store_stats(self) -> StoreStats | None:
        """Statistics of the store; None while it is unavailable."""
        now = asyncio.get_running_loop().time()
        if self._stats_task is None and now >= self._stats_expire:
            self._stats_task = asyncio.create_task(self._read_stats(), name="store stats")
        if self._stats_task is not None:
            done, _ = await asyncio.wait((self._stats_task,), timeout=STATS_TIMEOUT)
            return self._store_stats if done else None
        return self._store_stats

    async def _read_stats(self) -> StoreStats | None:
        try:
            self._store_stats = await self.store.stats()
        except Exception as error:
            self._store_stats = None
            log_fault(log, "the statistics of the store could not be read", error)
        finally:
            self._stats_expire = asyncio.get_running_loop().time() + STATS_CACHE_SECONDS
            self._stats_task = None
        return self._store_stats

    def _process_families(self) -> Iterator[MetricFamily]:
        yield from _turn_families(self.scheduler)
        commits = self.store.commit_counters
        yield histogram("commit_changes", "Changes per commit.", commits.changes)
        text = "Seconds from the beginning of a transaction to its commit."
        yield histogram("commit_duration_seconds", text, commits.seconds)
        text = "Batches that failed in the database and were rolled back."
        yield counter("commits_failed", text, commits.failed_batches)
        yield counter("events", "Task events committed by this process.", self.event_log.committed_events)
        text = "Appends rejected by the store: fenced, ended, over (a quota), repeated (an idempotency key), ..."
        rejected = sorted({"fenced": 0, **self.event_log.rejected}.items())  # alerts on increases need an initial 0
        yield _labeled("counter", "rejected_appends", text, "reason", rejected)
        held = self.push_scheduler.held if self.push_scheduler else 0
        feeds = self.feeds
        yield gauge("subscribers", "Readers and waiting callers subscribed to a task.", feeds.subscribers - held)
        yield gauge("event_lag_events", "Committed events not yet delivered to the slowest subscriber.", feeds.lag)
        text = "Delay of the event loop until it runs a new callback."
        yield histogram("loop_delay_seconds", text, self.watchdog.delays)
        yield gauge("bus_up", "Whether the bus delivers events to other servers at once.", not self.bus.problem)
        failures = [(work.value, count) for work, count in FAILURES.counts.items()]
        text = "Failures of background work, which started again."
        yield _labeled("counter", "background_failures", text, "work", failures)
        retention = self.retention.counts
        yield counter("tasks_expired", "Tasks ended because they received no reply in time.", retention.expired)
        yield counter("tasks_erased", "Tasks erased at the end of their retention time.", retention.erased)
        if self.push_scheduler is not None:
            yield from _push_families(self.push_scheduler)


def _turn_families(scheduler: Scheduler) -> Iterator[MetricFamily]:
    yield gauge("runs_active", "Running turns.", scheduler.running)
    yield gauge("slots", "Maximum of concurrent turns.", scheduler.runs.slots)
    yield gauge("paused_agents", "Paused agents, of which no turn begins.", len(scheduler.pauses.by_agent))
    counts = sorted(scheduler.counts.items())
    begun = [(agent, turns.started) for agent, turns in counts]
    yield _labeled("counter", "runs_begun", "Runs begun.", "agent", begun)
    ended = [
        (agent, states.word(state), count)
        for agent, turns in counts
        for state, count in sorted(turns.ended_by_state.copy().items())
    ]
    text = "Runs ended, by the state in which they left their task."
    yield _labeled("counter", "runs_ended", text, "agent state", ended)
    seconds = [(agent, turns.seconds) for agent, turns in counts]
    yield _labeled("histogram", "run_duration_seconds", "Duration of runs.", "agent", seconds)
    tokens = [(agent, turns.tokens) for agent, turns in counts]
    yield _labeled("counter", "usage_tokens", "Tokens that agents reported.", "agent", tokens)
    costs = [(agent, turns.cost / BILLION) for agent, turns in counts]
    yield _labeled("counter", "usage_cost", "Costs that agents reported.", "agent", costs)
    absences = [(agent, scheduler.queues.seconds_absent(agent)) for agent, _ in counts]
    absent = [(agent, absence) for agent, absence in absences if absence is not None]
    text = "Seconds since the last worker of an agent disconnected; 0 while one is connected."
    yield _labeled("gauge", "workers_absence_seconds", text, "agent", absent)


def _push_families(push_scheduler: PushScheduler) -> Iterator[MetricFamily]:
    counters = push_scheduler.deps.counters
    outcomes = [(name, counters.outcomes[outcome]) for outcome, name in _OUTCOMES.items()]
    yield _labeled("counter", "push_deliveries", "Webhook requests, by outcome.", "outcome", outcomes)
    text = "Seconds until a webhook request was answered or failed."
    yield histogram("push_duration_seconds", text, counters.seconds)
    yield counter("pushes_given_up", "Receivers and events given up by this process.", counters.given_up)
    yield gauge("pushes_held", "Receivers that this process delivers to.", push_scheduler.held)


def _store_families(stats: StoreStats) -> Iterator[MetricFamily]:
    """Metrics of the store, shared by all its servers."""
    tasks = [(agent, states.word(state), count) for (agent, state), count in sorted(stats.tasks.items())]
    yield _labeled("gauge", "tasks", "Tasks in the store.", "agent state", tasks)
    backlogs = sorted(stats.backlog.items())
    waiting = [(agent, backlog.tasks) for agent, backlog in backlogs]
    yield _labeled("gauge", "waiting_tasks", "Tasks waiting for a slot or a worker.", "agent", waiting)
    ages = [(agent, stats.age(backlog.since)) for agent, backlog in backlogs]
    text = "Seconds since the oldest waiting task became ready."
    yield _labeled("gauge", "queue_age_seconds", text, "agent", ages)
    yield gauge("pushes_due", "Receivers with a delivery due.", stats.pending_pushes)
    text = "Seconds since the oldest due delivery became due."
    yield gauge("push_age_seconds", text, stats.age(stats.pending_pushes_since))
    text = "Seconds since the longest-failing receiver accepted its last delivery."
    yield gauge("push_failing_seconds", text, stats.age(stats.failing_since))
    yield gauge("pushes_dead", "Receivers given up whose events can be redelivered.", stats.dead_pushes)


def _labeled(
    kind: Literal["counter", "gauge", "histogram"], name: str, help: str, labels: str, rows: Iterable[tuple[Any, ...]]
) -> MetricFamily:
    """A family with labels. Each row has the values of the labels, then that of the sample."""
    samples = [MetricSample(row[:-1], row[-1]) for row in rows]
    return MetricFamily(name, kind, help, tuple(labels.split()), samples)
