"""Lease of a process: until when it may run agents, by its own clock.

Others may act for a process when its session has expired by the store's clock. So that no agent runs then, the process
stops its agents earlier: a margin before the end of the last successful renewal, counted from that renewal's start. A
process that was frozen notices this before its agents go on, because each step of an agent begins with a look at the
lease (`GuardedSteps`). Half of the margin is for them to stop, then they are abandoned; the other half is for clocks
that differ. After a lapse a new term begins, and turns and claims of earlier terms stay lost.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from dragoman.ids import elapsed_clock

T = TypeVar("T")

LEASE_MARGIN: Final = 2.0
"""Seconds before the end of a lease at which agents are stopped: they need time to stop, and clocks differ."""

LOOP_TIMEOUT: Final = 20.0  # seconds without an answer of the event loop after which its process renews no lease
LOOP_EXIT: Final = 60.0  # seconds without an answer of the event loop after which a process that serves ends itself

LOOP_QUESTION_INTERVAL: Final = 1.0
"""Seconds between two questions to the event loop: a worker's stream checks it before each frame."""

LEASE_CHECK_INTERVAL: Final = 0.1  # seconds between two looks at a lease that has lapsed
Clock = Callable[[], float]


class Lease:
    """The lease of one process. Thread-safe."""

    def __init__(self, seconds: float, *, margin: float = LEASE_MARGIN, clock: Clock = elapsed_clock) -> None:
        """A lease of so many seconds from now on, whose last `margin` seconds (at most a quarter) are not used."""
        self.now = clock  # the time by the lease's clock
        self._margin = margin
        self.term = 1  # the number of the current term: grows after each lapse
        self._ends = self._lapsed_at = self._end(clock(), seconds)

    def extend(self, began: float, seconds: float) -> None:
        """Extends the lease after a renewal that was sent at `began` and is valid for so long."""
        if self.now() >= self._ends:
            self._lapsed_at, self.term = self._ends, self.term + 1  # in this order: others read without a lock
        self._ends = self._end(began, seconds)

    @property
    def remaining(self) -> float:
        """Seconds for which agents may still run; negative after a lapse."""
        return self._ends - self.now()

    def hold(self) -> LeaseHold:
        return LeaseHold(self, self.term)

    def remaining_of(self, term: int) -> float:
        """Seconds for which agents of a term may still run; 0 or negative after a lapse."""
        return (self._ends if self.term == term else self._lapsed_at) - self.now()

    def _end(self, began: float, seconds: float) -> float:
        return began + seconds - min(self._margin, seconds / 4)


@dataclass(slots=True)
class LeaseHold:
    """The term of a lease, held by a turn or a claim."""

    _lease: Lease
    _term: int

    @property
    def lost(self) -> bool:
        """Whether the lease has lapsed since the hold was taken. Stays true."""
        return self.remaining <= 0

    @property
    def remaining(self) -> float:
        """Seconds for which agents may still run; 0 or negative after a lapse."""
        return self._lease.remaining_of(self._term)


class LoopCheck:
    """Whether the event loop answers: a process that does not run its loop renews no lease.

    Every thread that renews a lease asks before each renewal. The time before a question does not count, so a process
    that was frozen goes on renewing.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, timeout: float = LOOP_TIMEOUT, clock: Clock = time.monotonic
    ) -> None:
        self.timeout = timeout
        self._loop = loop
        self._clock = clock
        self._question_at = -math.inf
        self._answered = True

    def answers(self) -> bool:
        """False if the loop has left a question unanswered for `timeout` seconds. Asks once a second at most."""
        now = self._clock()
        if not self._answered:
            return now - self._question_at < self.timeout
        if now - self._question_at >= LOOP_QUESTION_INTERVAL:
            self._question_at, self._answered = now, False
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(setattr, self, "_answered", True)
        return True


async def watch_lease(lease: Lease, stop_turns: Callable[[], None]) -> None:
    """Calls `stop_turns` when the lease may have lapsed, once a second or more often. Runs until canceled."""
    while True:
        await asyncio.sleep(min(max(lease.remaining, LEASE_CHECK_INTERVAL), 1.0))
        stop_turns()


class GuardedSteps(Awaitable[T]):
    """Awaits the turn of an agent. Where the lease is lost before a step and `must_stop` is true, cancels it.

    So nothing of it runs between a freeze of the process and the check. An agent that was canceled and has not ended
    when the lease is over is abandoned, if it runs on the loop alone. Tasks that it has started are not guarded.
    """

    def __init__(
        self, turn: Coroutine[Any, Any, T], hold: LeaseHold, must_stop: Callable[[], bool], agent: object = None
    ) -> None:
        self._coroutine, self._hold, self._must_stop = turn, hold, must_stop
        self._can_abandon = getattr(agent, "is_on_loop", False)
        self._timer: asyncio.TimerHandle | None = None  # from the cancel of an agent that can be abandoned
        self.begun = False  # whether any of the coroutine has run

    def __await__(self) -> Generator[Any, Any, T]:
        coroutine = self._coroutine
        value: Any = None
        error: BaseException | None = None
        try:
            while True:
                if (remaining := self._hold.remaining) <= 0:
                    is_closing = isinstance(error, GeneratorExit)
                    if self._timer is not None and remaining <= -LEASE_MARGIN / 2 and not is_closing:
                        with suppress(Exception):  # it may await something in a `finally` block
                            coroutine.close()
                        raise asyncio.CancelledError
                    if not (is_closing or isinstance(error, asyncio.CancelledError)) and self._must_stop():
                        error = asyncio.CancelledError()
                if self._can_abandon and self._timer is None and isinstance(error, asyncio.CancelledError):
                    self._wake_at_end(asyncio.current_task())
                self.begun = self.begun or error is None
                try:
                    waits_for = coroutine.send(value) if error is None else coroutine.throw(error)
                except StopIteration as end:
                    result: T = end.value
                    return result
                value, error = None, None
                try:
                    value = yield waits_for
                except BaseException as raised:
                    error = raised
        finally:
            if self._timer is not None:
                self._timer.cancel()

    def _wake_at_end(self, task: asyncio.Task[Any] | None) -> None:
        """Looks at the lease again and again, until the agent has to be abandoned, although no step of it is due."""
        seconds = self._hold.remaining + LEASE_MARGIN / 2
        if self._timer is not None and task is not None and seconds <= 0:
            task.cancel()
        delay = max(seconds, LEASE_CHECK_INTERVAL)
        self._timer = asyncio.get_running_loop().call_later(delay, self._wake_at_end, task)
