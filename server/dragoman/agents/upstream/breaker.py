"""When to leave an agent upstream alone for a while: after some failures in a row, until somebody reached it again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

FAILURES: Final = 5
"""Failures in a row after which nobody tries any more."""

APART: Final = 0.5
"""Seconds between two failures that count as two: a hundred turns that lose one connection saw one failure."""


class Breaker:
    """Whether an agent is there, as far as those who called it know. `clock` gives seconds, and never goes back."""

    def __init__(self, clock: Callable[[], float], failures: int = FAILURES, apart: float = APART) -> None:
        self._clock = clock
        self._most = failures
        self._apart = apart
        self._failures = 0
        self._last = float("-inf")
        self._opened: float | None = None
        self.trouble = ""
        """What the last failure was; empty when the last call was none."""

    @property
    def is_open(self) -> bool:
        """Whether the agent is left alone."""
        return self._opened is not None

    @property
    def absence(self) -> float:
        """Seconds since the agent is left alone; 0 while it is not."""
        return 0.0 if self._opened is None else max(self._clock() - self._opened, 0.001)

    def reached(self) -> bool:
        """It answered, whatever it said. Gives whether it had been left alone."""
        was_open = self.is_open
        self._failures, self._last, self._opened, self.trouble = 0, float("-inf"), None, ""
        return was_open

    def missed(self, why: str) -> bool:
        """It did not answer. Gives whether it is left alone from now on, and was not before."""
        now = self._clock()
        self.trouble = why
        if now - self._last < self._apart:
            return False
        self._last = now
        self._failures += 1
        if self._failures < self._most or self.is_open:
            return False
        self._opened = now
        return True

    def open(self, why: str) -> None:
        """Leaves it alone at once."""
        self.trouble = why
        if self._opened is None:
            self._opened = self._clock()
