"""How long a turn may take, in all and without a word; and what else has a limit."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from dragoman.core.cards.agent_spec import AgentSpec
from dragoman.core.limits.quotas import NO_USAGE, USAGE_METADATA_KEY, TaskBudget, Usage, UsageReport
from dragoman.core.task.log import Append, Appended, ArtifactChange, Guard, StatusChange, TaskRef
from dragoman.runtime.log import EventLog
from dragoman.runtime.turn.status import IDLE_TOO_LONG, OVER_BUDGET, TIMED_OUT, SystemStatus, system_status
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


class TurnDeadlines:
    """The limits of one turn at a time. `late` is called when one of them is passed."""

    def __init__(self, spec: AgentSpec, on_exceeded: Callable[[], None]) -> None:
        self._spec = spec
        self._on_exceeded = on_exceeded
        self._timers: list[asyncio.TimerHandle] = []
        self._started_at = self._last_activity = self._last_checked = 0.0
        self._exceeded: tuple[SystemStatus, float | str] = (TIMED_OUT, 0.0)

    def start(self) -> None:
        """Begins to count, for one turn."""
        self._started_at = self._last_activity = time.monotonic()
        if limit := self._spec.time_limit:
            self.after(limit, lambda: self._exceed(TIMED_OUT, limit))
        if self._spec.idle_limit:
            self._watch_idle()

    def after(self, seconds: float, call: Callable[[], None]) -> None:
        """Makes a call in so many seconds, unless it counts no more by then."""
        self._timers.append(asyncio.get_running_loop().call_later(seconds, call))

    def record_activity(self) -> None:
        """The agent said something. Safe from any thread."""
        self._last_activity = time.monotonic()

    @property
    def elapsed(self) -> float:
        """Seconds since it began."""
        return time.monotonic() - self._started_at

    @property
    def idle_seconds(self) -> float | None:
        """Seconds since the agent last said something; None when it has not."""
        return time.monotonic() - self._last_activity if self._last_activity > self._started_at else None

    def stop(self) -> None:
        """Counts no more, until it is started again."""
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()

    def close(self) -> None:
        """Counts no more, and forgets whom to call."""
        self.stop()
        self._on_exceeded = _ignore_exceeded

    def exceed_budget(self, reason: str) -> None:
        """The task has used more than it may: that is a limit, too."""
        self._exceeded = (OVER_BUDGET, reason)
        self._on_exceeded()

    def end_status(self) -> StatusChange:
        """How the turn ends that passed a limit."""
        what, limit = self._exceeded
        return system_status(what, limit if isinstance(limit, str) else f"The limit is {limit:g} s.")

    def _watch_idle(self) -> None:
        self._last_checked = self._last_activity
        now = asyncio.get_running_loop().time()
        self._timers = [timer for timer in self._timers if timer.when() > now]
        self.after(self._spec.idle_limit, self._check_idle)

    def _check_idle(self) -> None:
        if self._last_activity != self._last_checked:
            self._watch_idle()
        else:
            self._exceed(IDLE_TOO_LONG, self._spec.idle_limit)

    def _exceed(self, status: SystemStatus, limit: float) -> None:
        self._exceeded = (status, limit)
        self._on_exceeded()


def _ignore_exceeded() -> None:
    """The turn is over."""


Change = StatusChange | ArtifactChange


def call_on_loop(loop: asyncio.AbstractEventLoop, call: Callable[[UsageReport], None], report: UsageReport) -> None:
    """Makes a call on the loop: at once if that is where we are, and otherwise before whatever its thread does next
    is heard of there."""
    try:
        here = asyncio.get_running_loop() is loop
    except RuntimeError:
        here = False
    if here:
        call(report)
    else:
        loop.call_soon_threadsafe(call, report)


class UsageTracker:
    """The reports of one run."""

    def __init__(
        self,
        event_log: EventLog,
        task: TaskRef,
        guard: Guard,
        budget: TaskBudget,
        on_exceeded: Callable[[str], None],
        initial: Usage = NO_USAGE,
    ) -> None:
        """`over` is told once when the task has used more than it may, and why. `before`: what earlier turns used."""
        self._log = event_log
        self._task = task
        self._guard = guard
        self._budget = budget
        self._on_exceeded = on_exceeded
        self._reported = False
        self._delegates = initial.own != initial
        self._pending_appends: set[asyncio.Future[Appended]] = set()
        self.initial = initial
        self.total = initial
        self._certain = initial
        """The sum of what is certain to count, written or not: reports without a key."""
        self._check_budget(initial)

    def add(self, report: UsageReport) -> None:
        """One report; one of nothing says that another task may work for this one. On the event loop."""
        self._delegates = self._delegates or not report.has_amount
        if not report.key:
            self._certain = Usage(self._certain.tokens + report.tokens, self._certain.cost + report.cost)
            self._check_budget(self._certain)
        writing = self._log.append(Append(task=self._task, guard=self._guard, usage_report=report), self._on_committed)
        self._pending_appends.add(writing)
        writing.add_done_callback(self._pending_appends.discard)

    def begin_turn(self) -> None:
        """Another turn begins. It is told as well when the task may use no more."""
        self._reported = False
        self._check_budget(self.total)

    async def flush(self) -> None:
        """Waits until every report is on disk, or refused, and is told of what other tasks have used for this one."""
        if self._delegates:
            self.add(UsageReport())
        if self._pending_appends:
            await asyncio.wait(self._pending_appends)

    def with_usage(self, changes: Sequence[Change]) -> list[Change]:
        """The last changes of a turn, with the sum in the metadata of their status."""
        *others, last = changes
        if not self.total or not isinstance(last, StatusChange):
            return list(changes)
        holder = pb.Message()
        holder.metadata.MergeFromString(last.metadata)
        holder.metadata.update({USAGE_METADATA_KEY: self.total.as_metadata})
        return [*others, replace(last, metadata=holder.metadata.SerializeToString())]

    def _on_committed(self, appended: Appended | None) -> None:
        if appended is not None and appended.usage is not None:
            self.total = appended.usage
            self._check_budget(self.total)

    def _check_budget(self, usage: Usage) -> None:
        if not self._reported and (why := self._budget.exceeded(usage)):
            self._reported = True
            # Not at once: who reports may be the very task that is to be canceled, with its result in hand.
            asyncio.get_running_loop().call_soon(self._on_exceeded, why)
