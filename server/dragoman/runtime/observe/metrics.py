"""Metrics of the runtime.

Nothing is counted here: a scrape reads plain numbers. Statistics of the store are cached for a few seconds.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

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

STATS_CACHE_SECONDS: Final = 2.0
"""Seconds for which the store's statistics are cached."""

STATS_TIMEOUT: Final = 5.0
"""Seconds to wait for the store: an unavailable one must not hide all other metrics."""

_OUTCOMES: Final = {
    DeliveryOutcome.DELIVERED: "delivered",
    DeliveryOutcome.FAILED: "failed",
    DeliveryOutcome.ENDED: "gone",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsDeps:
    """The sources of the metrics."""

    store: Store
    bus: Bus
    scheduler: Scheduler
    feeds: TaskFeeds
    event_log: EventLog
    retention: Retention
    watchdog: Watchdog
    push_scheduler: PushScheduler | None


class RuntimeMetrics:
    """The metrics of one runtime."""

    def __init__(self, deps: MetricsDeps) -> None:
        self._deps = deps
        self._store_stats: StoreStats | None = None
        self._stats_expire = 0.0
        self._stats_task: asyncio.Task[StoreStats | None] | None = None

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
            self._store_stats = await self._deps.store.stats()
        except Exception as error:
            self._store_stats = None
            log_fault(log, "the statistics of the store could not be read", error)
        finally:
            self._stats_expire = asyncio.get_running_loop().time() + STATS_CACHE_SECONDS
            self._stats_task = None
        return self._store_stats

    def _process_families(self) -> Iterator[MetricFamily]:
        """Metrics of this process."""
        deps = self._deps
        yield from _turn_families(deps.scheduler)
        commits = deps.store.commit_counters
        yield histogram("commit_changes", "Changes per commit.", commits.changes)
        yield histogram(
            "commit_duration_seconds", "Seconds from the beginning of a transaction to its commit.", commits.seconds
        )
        yield counter(
            "commits_failed", "Batches that failed in the database and were rolled back.", commits.failed_batches
        )
        yield counter("events", "Task events committed by this process.", deps.event_log.committed_events)
        yield MetricFamily(
            "rejected_appends",
            "counter",
            "Appends rejected by the store: fenced, ended, over (a quota), repeated (an idempotency key), ...",
            ("reason",),
            [MetricSample((reason,), count) for reason, count in _with_zero("fenced", deps.event_log.rejected)],
        )
        held = deps.push_scheduler.held if deps.push_scheduler else 0
        feeds = deps.feeds
        yield gauge("subscribers", "Readers and waiting callers subscribed to a task.", feeds.subscribers - held)
        yield gauge("event_lag_events", "Committed events not yet delivered to the slowest subscriber.", feeds.lag)
        yield histogram(
            "loop_delay_seconds", "Delay of the event loop until it runs a new callback.", deps.watchdog.delays
        )
        yield gauge("bus_up", "Whether the bus delivers events to other servers at once.", not deps.bus.problem)
        yield MetricFamily(
            "background_failures",
            "counter",
            "Failures of background work, which started again.",
            ("work",),
            [MetricSample((work.value,), count) for work, count in FAILURES.counts.items()],
        )
        retention = deps.retention.counts
        yield counter("tasks_expired", "Tasks ended because they received no reply in time.", retention.expired)
        yield counter("tasks_erased", "Tasks erased at the end of their retention time.", retention.erased)
        if deps.push_scheduler is not None:
            yield from _push_families(deps.push_scheduler)


def _turn_families(scheduler: Scheduler) -> Iterator[MetricFamily]:
    yield gauge("runs_active", "Running turns.", scheduler.running)
    yield gauge("slots", "Maximum of concurrent turns.", scheduler.runs.slots)
    yield gauge("paused_agents", "Paused agents, of which no turn begins.", len(scheduler.pauses.by_agent))
    counts = sorted(scheduler.counts.items())
    yield MetricFamily(
        "runs_begun",
        "counter",
        "Runs begun.",
        ("agent",),
        [MetricSample((agent,), turns.started) for agent, turns in counts],
    )
    yield MetricFamily(
        "runs_ended",
        "counter",
        "Runs ended, by the state in which they left their task.",
        ("agent", "state"),
        [
            MetricSample((agent, _state_label(state)), count)
            for agent, turns in counts
            for state, count in sorted(turns.ended_by_state.copy().items())
        ],
    )
    yield MetricFamily(
        "run_duration_seconds",
        "histogram",
        "Duration of runs.",
        ("agent",),
        [MetricSample((agent,), turns.seconds) for agent, turns in counts],
    )
    tokens = [MetricSample((agent,), turns.tokens) for agent, turns in counts]
    yield MetricFamily("usage_tokens", "counter", "Tokens that agents reported.", ("agent",), tokens)
    costs = [MetricSample((agent,), turns.cost / BILLION) for agent, turns in counts]
    yield MetricFamily("usage_cost", "counter", "Costs that agents reported.", ("agent",), costs)
    absences = [(agent, scheduler.queues.seconds_absent(agent)) for agent, _ in counts]
    yield MetricFamily(
        "workers_absence_seconds",
        "gauge",
        "Seconds since the last worker of an agent disconnected; 0 while one is connected.",
        ("agent",),
        [MetricSample((agent,), absence) for agent, absence in absences if absence is not None],
    )


def _push_families(push_scheduler: PushScheduler) -> Iterator[MetricFamily]:
    counters = push_scheduler.delivery_counters
    outcomes = [MetricSample((name,), counters.outcomes[outcome]) for outcome, name in _OUTCOMES.items()]
    yield MetricFamily("push_deliveries", "counter", "Webhook requests, by outcome.", ("outcome",), outcomes)
    yield histogram(
        "push_duration_seconds", "Seconds until a webhook request was answered or failed.", counters.seconds
    )
    yield counter("pushes_given_up", "Receivers given up by this process.", counters.given_up)
    yield gauge("pushes_held", "Receivers that this process delivers to.", push_scheduler.held)


def _store_families(stats: StoreStats) -> Sequence[MetricFamily]:
    """Metrics of the store, shared by all its servers."""
    tasks = sorted(stats.tasks.items())
    waiting = sorted(stats.backlog.items())
    return (
        MetricFamily(
            "tasks",
            "gauge",
            "Tasks in the store.",
            ("agent", "state"),
            [MetricSample((agent, _state_label(state)), count) for (agent, state), count in tasks],
        ),
        MetricFamily(
            "waiting_tasks",
            "gauge",
            "Tasks waiting for a slot or a worker.",
            ("agent",),
            [MetricSample((agent,), backlog.tasks) for agent, backlog in waiting],
        ),
        MetricFamily(
            "queue_age_seconds",
            "gauge",
            "Seconds since the oldest waiting task became ready.",
            ("agent",),
            [MetricSample((agent,), stats.age(backlog.since)) for agent, backlog in waiting],
        ),
        gauge("pushes_due", "Receivers with a delivery due.", stats.pending_pushes),
        gauge(
            "push_age_seconds",
            "Seconds since the oldest due delivery became due.",
            stats.age(stats.pending_pushes_since),
        ),
        gauge(
            "push_failing_seconds",
            "Seconds since the longest-failing receiver accepted its last delivery.",
            stats.age(stats.failing_since),
        ),
        gauge("pushes_dead", "Receivers given up whose events can be redelivered.", stats.dead_pushes),
    )


def _with_zero(name: str, counts: dict[str, int]) -> list[tuple[str, int]]:
    """The counts, with this one present from the start: alerts on increases need an initial 0."""
    return sorted({name: 0, **counts}.items())


def _state_label(state: int) -> str:
    return states.name(state).removeprefix("TASK_STATE_").lower().replace("_", "-")
