"""How a server is: everything that its parts count, as families of numbers for whoever shows them.

Nothing is counted for this file: it reads plain numbers when somebody looks. What has to be asked of the store is asked
once for all who look within a few seconds.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from dragoman.core import states
from dragoman.core.census import Census
from dragoman.core.counting import Family, Sample, counter, gauge, histogram
from dragoman.core.push import Verdict
from dragoman.core.usage import BILLION
from dragoman.ports import Bus, Store
from dragoman.runtime.dispatch import Dispatch
from dragoman.runtime.follow import Followers
from dragoman.runtime.log import Log
from dragoman.runtime.push import Courier
from dragoman.runtime.retention import Retention
from dragoman.runtime.watchdog import Watchdog

log = logging.getLogger("dragoman.runtime")

FRESH: Final = 2.0
"""Seconds for which what the store counted is good."""

PATIENCE: Final = 5.0
"""Seconds for which a store is waited for: one that does not answer must not hide everything else."""

_OUTCOMES: Final = {Verdict.TAKEN: "taken", Verdict.FAILED: "failed", Verdict.GONE: "gone"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Whom to ask."""

    store: Store
    bus: Bus
    dispatch: Dispatch
    followers: Followers
    log: Log
    retention: Retention
    watchdog: Watchdog
    courier: Courier | None


class Vitals:
    """The numbers of one runtime."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._counted: Census | None = None
        self._until = 0.0
        self._counting: asyncio.Task[Census | None] | None = None

    async def families(self) -> list[Family]:
        """Everything, as it is now."""
        census = await self.census()
        return [*self._here(), *(_of_store(census) if census else ()), gauge(
            "store_up", "Whether the store could be asked how much there is.", census is not None
        )]  # fmt: skip

    async def census(self) -> Census | None:
        """How much there is in the store; None while it cannot be asked."""
        now = asyncio.get_running_loop().time()
        if self._counting is None and now >= self._until:
            self._counting = asyncio.create_task(self._count(), name="census")
        if self._counting is not None:
            done, _ = await asyncio.wait((self._counting,), timeout=PATIENCE)
            return self._counted if done else None
        return self._counted

    async def _count(self) -> Census | None:
        try:
            self._counted = await self._parts.store.census()
        except Exception:
            self._counted = None
            log.exception("the store could not be asked how much there is")
        self._until = asyncio.get_running_loop().time() + FRESH
        self._counting = None
        return self._counted

    def _here(self) -> Iterator[Family]:
        """What this process does."""
        parts = self._parts
        yield from _runs(parts.dispatch)
        commits = parts.store.commits
        yield histogram("commit_changes", "Changes that were committed together.", commits.changes)
        yield histogram("commit_duration_seconds", "From the beginning of a transaction to the disk.", commits.seconds)
        yield counter("commits_failed", "Batches that the database refused, and that were undone.", commits.failed)
        yield counter("events", "Events of tasks that were committed by this process.", parts.log.events)
        yield Family(
            "refused_writes",
            "counter",
            "Writes that the store refused: fenced, ended, over (a quota), repeated (an idempotency key), ...",
            ("reason",),
            [Sample((reason,), count) for reason, count in _with("fenced", parts.log.refused)],
        )
        held = parts.courier.held if parts.courier else 0
        followers = parts.followers
        yield gauge("subscribers", "Readers and waiting callers that follow a task.", followers.subscribers - held)
        yield gauge("event_lag_events", "Committed events that the slowest of them has not been given.", followers.lag)
        yield histogram("loop_delay_seconds", "How late the event loop comes to something new.", parts.watchdog.delays)
        yield gauge("bus_up", "Whether other servers hear at once what happens here.", not parts.bus.trouble)
        kept = parts.retention.counts
        yield counter("tasks_expired", "Tasks that ended because nobody answered them.", kept.expired)
        yield counter("tasks_erased", "Tasks erased because their time was over.", kept.erased)
        if parts.courier is not None:
            yield from _pushes(parts.courier)


def _runs(dispatch: Dispatch) -> Iterator[Family]:
    yield gauge("runs_active", "Turns that run now.", dispatch.running)
    yield gauge("slots", "Turns that may run at the same time.", dispatch.slots)
    counts = sorted(dispatch.counts.items())
    yield Family(
        "runs_begun", "counter", "Runs begun.", ("agent",), [Sample((agent,), runs.begun) for agent, runs in counts]
    )
    yield Family(
        "runs_ended",
        "counter",
        "Runs ended, by the state in which they left their task.",
        ("agent", "state"),
        [
            Sample((agent, _state(state)), count)
            for agent, runs in counts
            for state, count in sorted(runs.ended.copy().items())
        ],
    )
    yield Family(
        "run_duration_seconds",
        "histogram",
        "How long runs took.",
        ("agent",),
        [Sample((agent,), runs.seconds) for agent, runs in counts],
    )
    tokens = [Sample((agent,), runs.tokens) for agent, runs in counts]
    yield Family("usage_tokens", "counter", "Tokens that agents reported.", ("agent",), tokens)
    costs = [Sample((agent,), runs.cost / BILLION) for agent, runs in counts]
    yield Family("usage_cost", "counter", "Costs that they reported.", ("agent",), costs)
    waited = [(agent, dispatch.places.absence(agent)) for agent, _ in counts]
    yield Family(
        "workers_absence_seconds",
        "gauge",
        "For how long no worker of an agent has been there; 0 while there is one.",
        ("agent",),
        [Sample((agent,), absence) for agent, absence in waited if absence is not None],
    )


def _pushes(courier: Courier) -> Iterator[Family]:
    calls = courier.calls
    outcomes = [Sample((name,), calls.verdicts[verdict]) for verdict, name in _OUTCOMES.items()]
    yield Family("push_deliveries", "counter", "Calls of receivers, by what came of them.", ("outcome",), outcomes)
    yield histogram("push_duration_seconds", "How long receivers took to answer, or not to.", calls.seconds)
    yield counter("pushes_given_up", "Receivers that were given up by this process.", calls.dead)
    yield gauge("pushes_held", "Receivers that this process delivers to now.", courier.held)


def _of_store(census: Census) -> Sequence[Family]:
    """What there is for all servers of the store together."""
    tasks = sorted(census.tasks.items())
    waiting = sorted(census.waiting.items())
    return (
        Family(
            "tasks",
            "gauge",
            "Tasks in the store.",
            ("agent", "state"),
            [Sample((agent, _state(state)), count) for (agent, state), count in tasks],
        ),
        Family(
            "waiting_tasks",
            "gauge",
            "Tasks that wait for somebody to run them.",
            ("agent",),
            [Sample((agent,), one.tasks) for agent, one in waiting],
        ),
        Family(
            "queue_age_seconds",
            "gauge",
            "For how long the task waits that has waited the longest.",
            ("agent",),
            [Sample((agent,), census.age(one.since)) for agent, one in waiting],
        ),
        gauge("pushes_due", "Receivers that are to be called now.", census.pushes),
        gauge("push_age_seconds", "How late the push is that is due the longest.", census.age(census.pushes_since)),
        gauge(
            "push_failing_seconds",
            "For how long the receiver that fails the longest takes nothing.",
            census.age(census.failing_since),
        ),
        gauge("pushes_dead", "Receivers that were given up, and whose events can be sent again.", census.dead),
    )


def _with(name: str, counts: dict[str, int]) -> list[tuple[str, int]]:
    """The counts, with one that is there from the beginning: alerts on what grows need it to have been 0."""
    return sorted({name: 0, **counts}.items())


def _state(state: int) -> str:
    return states.name(state).removeprefix("TASK_STATE_").lower().replace("_", "-")
