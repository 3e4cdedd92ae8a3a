"""Limits of a turn: time limit, idle limit, and the usage budget of its task."""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections.abc import Callable

from dragoman.core.cards.agent_spec import AgentSpec
from dragoman.core.limits.quotas import NO_USAGE, TaskBudget, Usage, UsageReport, usage_metadata
from dragoman.core.task.log import Append, Appended, Guard, StatusChange, TaskRecord, TaskRef
from dragoman.runtime.log import EventLog
from dragoman.runtime.turn.finish import IDLE_TOO_LONG, OVER_BUDGET, TIMED_OUT, SystemStatus, system_status


class TurnDeadlines:
    """Timers of one turn at a time. Calls `on_exceeded` when a limit is passed."""

    def __init__(
        self, spec: AgentSpec, on_exceeded: Callable[[], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`clock`: monotonic seconds, from any thread."""
        self.clock = clock
        self._spec = spec
        self._on_exceeded = on_exceeded
        self._context = contextvars.copy_context()  # a canceled timer keeps its context: not one that leads to a turn
        self.timers: list[asyncio.TimerHandle] = []
        """Those of this turn, canceled or not."""
        self.started_at = self._last_checked = 0.0
        self.last_activity = 0.0
        """When the agent last did something, in monotonic seconds. May be set from any thread."""
        self._exceeded: tuple[SystemStatus, float | str] = (TIMED_OUT, 0.0)

    def start(self) -> None:
        """Starts the timers of a turn."""
        self.started_at = self.last_activity = self.clock()
        if limit := self._spec.time_limit:
            self.after(limit, lambda: self._exceed(TIMED_OUT, limit))
        if self._spec.idle_limit:
            self._watch_idle()

    def after(self, seconds: float, call: Callable[[], None]) -> None:
        """Calls `call` after so many seconds, unless the timers are stopped before."""
        self.timers.append(asyncio.get_running_loop().call_later(seconds, call, context=self._context))

    @property
    def elapsed(self) -> float:
        """Seconds since the turn began."""
        return self.clock() - self.started_at

    @property
    def elapsed_us(self) -> int:
        """Microseconds since the turn began; 0 if it never did."""
        return round(self.elapsed * 1e6) if self.started_at else 0

    @property
    def idle_seconds(self) -> float | None:
        """Seconds since the agent's last output; None before the first."""
        return self.clock() - self.last_activity if self.last_activity > self.started_at else None

    def stop(self) -> None:
        """Cancels all timers, until the next `start`."""
        for timer in self.timers:
            timer.cancel()
        self.timers.clear()

    def close(self) -> None:
        """Cancels all timers for good and drops the callback."""
        for timer in self.timers:
            timer.cancel()
        self.timers.clear()
        self._on_exceeded = _ignore_exceeded

    def exceed_budget(self, reason: str) -> None:
        """Stops the turn because the task exceeded its budget."""
        self._exceeded = (OVER_BUDGET, reason)
        self._on_exceeded()

    def end_status(self, record: TaskRecord) -> StatusChange:
        """The status of a turn of the task of `record` that a limit ended."""
        status, limit = self._exceeded
        return system_status(status, record, limit if isinstance(limit, str) else f"The limit is {limit:g} s.")

    @property
    def exceeded(self) -> str:
        """Which limit was exceeded, as the text of `end_status`."""
        status, limit = self._exceeded
        return f"{status.reason}: {status.text} {limit if isinstance(limit, str) else f'The limit is {limit:g} s.'}"

    def _watch_idle(self) -> None:
        self._last_checked = self.last_activity
        now = asyncio.get_running_loop().time()
        self.timers = [timer for timer in self.timers if timer.when() > now]
        self.after(self._spec.idle_limit, self.check_idle)

    def check_idle(self) -> None:
        """Stops the turn if there was no activity since the last check."""
        if self.last_activity != self._last_checked:
            self._watch_idle()
        else:
            self._exceed(IDLE_TOO_LONG, self._spec.idle_limit)

    def _exceed(self, status: SystemStatus, limit: float) -> None:
        self._exceeded = (status, limit)
        self._on_exceeded()


def _ignore_exceeded() -> None:
    """Replaces the callback of a closed turn."""


def call_on_loop(loop: asyncio.AbstractEventLoop, call: Callable[[UsageReport], None], report: UsageReport) -> None:
    """Calls `call(report)` on the loop: at once when already there, else before anything that this thread schedules
    later."""
    try:
        on_loop = asyncio.get_running_loop() is loop
    except RuntimeError:
        on_loop = False
    if on_loop:
        call(report)
    else:
        loop.call_soon_threadsafe(call, report)


class UsageTracker:
    """Writes and sums the usage reports of one runner."""

    def __init__(
        self,
        event_log: EventLog,
        task: TaskRef,
        guard: Guard,
        budget: TaskBudget,
        on_exceeded: Callable[[str], None],
        initial: Usage = NO_USAGE,
    ) -> None:
        """`on_exceeded` is called once per turn with the reason when the budget is exceeded. `initial`: usage of
        earlier turns."""
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
        """The sum of reports without a key: they count for certain, whether written yet or not."""
        self._check_budget(initial)

    def add(self, report: UsageReport) -> None:
        """Writes one report; an empty one marks that another task works for this one. Call on the event loop."""
        self._delegates = self._delegates or not report.has_amount
        if not report.key:
            self._certain = Usage(self._certain.tokens + report.tokens, self._certain.cost + report.cost)
            self._check_budget(self._certain)
        change = Append(task=self._task, guard=self._guard, usage_report=report)
        append = self._log.append(change, self._on_committed, _until_rejected)
        self._pending_appends.add(append)
        append.add_done_callback(self._pending_appends.discard)

    def begin_turn(self) -> None:
        """Starts another turn, which is stopped as well when the budget is exceeded already."""
        self._reported = False
        self._check_budget(self.total)

    async def flush(self) -> None:
        """Waits until every report is committed or rejected, and loads what delegate tasks have used."""
        if self._delegates:
            self.add(UsageReport())
        if self._pending_appends:
            await asyncio.wait(self._pending_appends)

    @property
    def metadata(self) -> bytes:
        """The usage total as metadata of the event that ends a turn; empty for none."""
        return usage_metadata(self.total) if self.total else b""

    def _on_committed(self, appended: Appended | None) -> None:
        if appended is not None and appended.usage is not None:
            self.total = appended.usage
            self._check_budget(self.total)

    def _check_budget(self, usage: Usage) -> None:
        if not self._reported and (reason := self._budget.exceeded(usage)):
            self._reported = True
            # Deferred: the caller may be the asyncio task to be canceled, with its result in hand.
            asyncio.get_running_loop().call_soon(self._on_exceeded, reason)


def _until_rejected() -> bool:
    """Whether a report is given up while the store is unavailable: never, until its claim is lost."""
    return False
