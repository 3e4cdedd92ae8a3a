"""How long a turn may take, in all and without a word; and what else has a limit."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from dragoman.core.card import AgentSpec
from dragoman.core.log import StatusChange
from dragoman.runtime.notices import IDLE, OVER_BUDGET, TIMED_OUT, Notice, notice


class Deadlines:
    """The limits of one turn at a time. `late` is called when one of them is passed."""

    def __init__(self, spec: AgentSpec, late: Callable[[], None]) -> None:
        self._spec = spec
        self._late = late
        self._timers: list[asyncio.TimerHandle] = []
        self._began = self._last = self._looked = 0.0
        self._passed: tuple[Notice, float | str] = (TIMED_OUT, 0.0)

    def start(self) -> None:
        """Begins to count, for one turn."""
        self._began = self._last = time.monotonic()
        if limit := self._spec.time_limit:
            self.after(limit, lambda: self._pass(TIMED_OUT, limit))
        if self._spec.idle_limit:
            self._watch()

    def after(self, seconds: float, call: Callable[[], None]) -> None:
        """Makes a call in so many seconds, unless it counts no more by then."""
        self._timers.append(asyncio.get_running_loop().call_later(seconds, call))

    def heard(self) -> None:
        """The agent said something. Safe from any thread."""
        self._last = time.monotonic()

    @property
    def took(self) -> float:
        """Seconds since it began."""
        return time.monotonic() - self._began

    @property
    def silence(self) -> float | None:
        """Seconds since the agent last said something; None when it has not."""
        return time.monotonic() - self._last if self._last > self._began else None

    def stop(self) -> None:
        """Counts no more, until it is started again."""
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()

    def close(self) -> None:
        """Counts no more, and forgets whom to call."""
        self.stop()
        self._late = _nobody

    def exceed(self, why: str) -> None:
        """The task has used more than it may: that is a limit, too."""
        self._passed = (OVER_BUDGET, why)
        self._late()

    def end(self) -> StatusChange:
        """How the turn ends that passed a limit."""
        what, limit = self._passed
        return notice(what, limit if isinstance(limit, str) else f"The limit is {limit:g} s.")

    def _watch(self) -> None:
        self._looked = self._last
        now = asyncio.get_running_loop().time()
        self._timers = [timer for timer in self._timers if timer.when() > now]
        self.after(self._spec.idle_limit, self._look)

    def _look(self) -> None:
        if self._last != self._looked:
            self._watch()
        else:
            self._pass(IDLE, self._spec.idle_limit)

    def _pass(self, what: Notice, limit: float) -> None:
        self._passed = (what, limit)
        self._late()


def _nobody() -> None:
    """The turn is over."""
