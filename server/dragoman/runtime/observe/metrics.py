"""How a server is: everything that its parts count, as families of numbers for whoever shows them.

Nothing is counted for this file: it reads plain numbers when somebody looks. What has to be asked of the store is asked
once for all who look within a few seconds.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Final

from dragoman.core.counters import Histogram, MetricFamily, MetricSample, StoreStats, counter, gauge, histogram
from dragoman.core.limits.quotas import BILLION
from dragoman.core.push.delivery import DeliveryOutcome
from dragoman.core.task import states
from dragoman.ports import Bus, Store
from dragoman.runtime.feeds import TaskFeeds
from dragoman.runtime.log import EventLog
from dragoman.runtime.maintenance.retention import Retention
from dragoman.runtime.push.scheduler import PushScheduler
from dragoman.runtime.scheduler import Scheduler
from dragoman.runtime.turn.runner import TurnRunner

log = logging.getLogger("dragoman.runtime")

STATS_CACHE_SECONDS: Final = 2.0
"""Seconds for which what the store counted is good."""

STATS_TIMEOUT: Final = 5.0
"""Seconds for which a store is waited for: one that does not answer must not hide everything else."""

_OUTCOMES: Final = {DeliveryOutcome.DELIVERED: "taken", DeliveryOutcome.FAILED: "failed", DeliveryOutcome.ENDED: "gone"}


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsDeps:
    """Whom to ask."""

    store: Store
    bus: Bus
    scheduler: Scheduler
    feeds: TaskFeeds
    event_log: EventLog
    retention: Retention
    watchdog: Watchdog
    push_scheduler: PushScheduler | None


class RuntimeMetrics:
    """The numbers of one runtime."""

    def __init__(self, deps: MetricsDeps) -> None:
        self._deps = deps
        self._store_stats: StoreStats | None = None
        self._stats_expire = 0.0
        self._stats_task: asyncio.Task[StoreStats | None] | None = None

    async def families(self) -> list[MetricFamily]:
        """Everything, as it is now."""
        census = await self.store_stats()
        return [*self._process_families(), *(_store_families(census) if census else ()), gauge(
            "store_up", "Whether the store could be asked how much there is.", census is not None
        )]  # fmt: skip

    async def store_stats(self) -> StoreStats | None:
        """How much there is in the store; None while it cannot be asked."""
        now = asyncio.get_running_loop().time()
        if self._stats_task is None and now >= self._stats_expire:
            self._stats_task = asyncio.create_task(self._read_stats(), name="census")
        if self._stats_task is not None:
            done, _ = await asyncio.wait((self._stats_task,), timeout=STATS_TIMEOUT)
            return self._store_stats if done else None
        return self._store_stats

    async def _read_stats(self) -> StoreStats | None:
        try:
            self._store_stats = await self._deps.store.stats()
        except Exception:
            self._store_stats = None
            log.exception("the store could not be asked how much there is")
        self._stats_expire = asyncio.get_running_loop().time() + STATS_CACHE_SECONDS
        self._stats_task = None
        return self._store_stats

    def _process_families(self) -> Iterator[MetricFamily]:
        """What this process does."""
        parts = self._deps
        yield from _turn_families(parts.scheduler)
        commits = parts.store.commit_counters
        yield histogram("commit_changes", "Changes that were committed together.", commits.changes)
        yield histogram("commit_duration_seconds", "From the beginning of a transaction to the disk.", commits.seconds)
        yield counter(
            "commits_failed", "Batches that the database refused, and that were undone.", commits.failed_batches
        )
        yield counter(
            "events", "Events of tasks that were committed by this process.", parts.event_log.committed_events
        )
        yield MetricFamily(
            "refused_writes",
            "counter",
            "Writes that the store refused: fenced, ended, over (a quota), repeated (an idempotency key), ...",
            ("reason",),
            [MetricSample((reason,), count) for reason, count in _with_zero("fenced", parts.event_log.rejected)],
        )
        held = parts.push_scheduler.held if parts.push_scheduler else 0
        followers = parts.feeds
        yield gauge("subscribers", "Readers and waiting callers that follow a task.", followers.subscribers - held)
        yield gauge("event_lag_events", "Committed events that the slowest of them has not been given.", followers.lag)
        yield histogram("loop_delay_seconds", "How late the event loop comes to something new.", parts.watchdog.delays)
        yield gauge("bus_up", "Whether other servers hear at once what happens here.", not parts.bus.problem)
        kept = parts.retention.counts
        yield counter("tasks_expired", "Tasks that ended because nobody answered them.", kept.expired)
        yield counter("tasks_erased", "Tasks erased because their time was over.", kept.erased)
        if parts.push_scheduler is not None:
            yield from _push_families(parts.push_scheduler)


def _turn_families(scheduler: Scheduler) -> Iterator[MetricFamily]:
    yield gauge("runs_active", "Turns that run now.", scheduler.running)
    yield gauge("slots", "Turns that may run at the same time.", scheduler.slots)
    counts = sorted(scheduler.counts.items())
    yield MetricFamily(
        "runs_begun",
        "counter",
        "Runs begun.",
        ("agent",),
        [MetricSample((agent,), runs.started) for agent, runs in counts],
    )
    yield MetricFamily(
        "runs_ended",
        "counter",
        "Runs ended, by the state in which they left their task.",
        ("agent", "state"),
        [
            MetricSample((agent, _state_label(state)), count)
            for agent, runs in counts
            for state, count in sorted(runs.ended_by_state.copy().items())
        ],
    )
    yield MetricFamily(
        "run_duration_seconds",
        "histogram",
        "How long runs took.",
        ("agent",),
        [MetricSample((agent,), runs.seconds) for agent, runs in counts],
    )
    tokens = [MetricSample((agent,), runs.tokens) for agent, runs in counts]
    yield MetricFamily("usage_tokens", "counter", "Tokens that agents reported.", ("agent",), tokens)
    costs = [MetricSample((agent,), runs.cost / BILLION) for agent, runs in counts]
    yield MetricFamily("usage_cost", "counter", "Costs that they reported.", ("agent",), costs)
    waited = [(agent, scheduler.remote_capacity.seconds_absent(agent)) for agent, _ in counts]
    yield MetricFamily(
        "workers_absence_seconds",
        "gauge",
        "For how long no worker of an agent has been there; 0 while there is one.",
        ("agent",),
        [MetricSample((agent,), absence) for agent, absence in waited if absence is not None],
    )


def _push_families(push_scheduler: PushScheduler) -> Iterator[MetricFamily]:
    calls = push_scheduler.delivery_counters
    outcomes = [MetricSample((name,), calls.outcomes[verdict]) for verdict, name in _OUTCOMES.items()]
    yield MetricFamily(
        "push_deliveries", "counter", "Calls of receivers, by what came of them.", ("outcome",), outcomes
    )
    yield histogram("push_duration_seconds", "How long receivers took to answer, or not to.", calls.seconds)
    yield counter("pushes_given_up", "Receivers that were given up by this process.", calls.given_up)
    yield gauge("pushes_held", "Receivers that this process delivers to now.", push_scheduler.held)


def _store_families(stats: StoreStats) -> Sequence[MetricFamily]:
    """What there is for all servers of the store together."""
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
            "Tasks that wait for somebody to run them.",
            ("agent",),
            [MetricSample((agent,), one.tasks) for agent, one in waiting],
        ),
        MetricFamily(
            "queue_age_seconds",
            "gauge",
            "For how long the task waits that has waited the longest.",
            ("agent",),
            [MetricSample((agent,), stats.age(one.since)) for agent, one in waiting],
        ),
        gauge("pushes_due", "Receivers that are to be called now.", stats.pending_pushes),
        gauge(
            "push_age_seconds", "How late the push is that is due the longest.", stats.age(stats.pending_pushes_since)
        ),
        gauge(
            "push_failing_seconds",
            "For how long the receiver that fails the longest takes nothing.",
            stats.age(stats.failing_since),
        ),
        gauge("pushes_dead", "Receivers that were given up, and whose events can be sent again.", stats.dead_pushes),
    )


def _with_zero(name: str, counts: dict[str, int]) -> list[tuple[str, int]]:
    """The counts, with one that is there from the beginning: alerts on what grows need it to have been 0."""
    return sorted({name: 0, **counts}.items())


def _state_label(state: int) -> str:
    return states.name(state).removeprefix("TASK_STATE_").lower().replace("_", "-")


BLOCKED_LOOP_SECONDS: Final = 1.0
"""Seconds without a turn of the loop after which it counts as blocked."""

WATCHDOG_INTERVAL: Final = 0.25

_PACKAGE_PATH: Final = str(Path(__file__).resolve().parents[2])


class Watchdog:
    """Watches the loop it is made on, until it is stopped."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        blocked: float = BLOCKED_LOOP_SECONDS,
        interval: float = WATCHDOG_INTERVAL,
    ) -> None:
        self._loop = loop
        self._blocked = blocked
        self._interval = interval
        self._loop_thread = threading.get_ident()
        self.delays = Histogram()
        """Seconds that the loop took to come to something new, looked at several times a second."""
        self._last_alive = time.monotonic()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="dragoman-watchdog", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        told = False
        before = time.monotonic()
        while not self._stop.wait(self._interval):
            try:
                self._loop.call_soon_threadsafe(self._alive, time.monotonic())
            except RuntimeError:  # the loop is closed
                return
            now = time.monotonic()
            paused = now - before > self._blocked  # this thread stood still too: the process was stopped
            before = now
            late = now - self._last_alive
            if late < self._blocked or paused:
                told = False
            elif not told:
                told = True
                agent, file, line = self._blocking_line()
                text = "the event loop has been blocked for %.1f s by agent %s: %s, line %d"
                log.warning(text, late, agent, file, line, extra={"agent": agent})

    def _alive(self, scheduled_at: float) -> None:
        self._last_alive = time.monotonic()
        self.delays.add(self._last_alive - scheduled_at)

    def _blocking_line(self) -> tuple[str, str, int]:
        """The agent whose code the loop is in, and the innermost line that is its author's."""
        frame = sys._current_frames().get(self._loop_thread)
        place, agent = ("?", 0), "(none)"
        inner: FrameType | None = frame
        while frame is not None:
            file = frame.f_code.co_filename
            run = frame.f_locals.get("self")
            if isinstance(run, TurnRunner):
                agent = run.record.agent
                break
            if (
                not file.startswith(_PACKAGE_PATH)
                and "site-packages" not in file
                and not file.startswith(sys.base_prefix)
            ):
                place = (file, frame.f_lineno) if place == ("?", 0) else place
            frame = frame.f_back
        if place == ("?", 0) and inner is not None:
            place = (inner.f_code.co_filename, inner.f_lineno)
        return agent, *place
