"""When to leave an agent upstream alone for a while: after some failures in a row, until somebody reached it again.

Three states: shut out of use (`is_open`, as of an electric circuit), in use, and ajar between the two: its card was
read again, and whether it takes calls, too, one turn is to find out.
"""

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
        self.most = failures
        self._apart = apart
        self._failures = 0
        self._last = float("-inf")
        self._since: float | None = None
        self.is_open = False
        """The agent is left alone."""
        self.trouble = ""
        """What the last failure was; empty when the last call was none."""

    @property
    def is_ajar(self) -> bool:
        """It was left alone, and has not answered a call since."""
        return self._since is not None and not self.is_open

    @property
    def absence(self) -> float:
        """Seconds since it was first left alone; 0 while it is not."""
        return max(self._clock() - self._since, 0.001) if self.is_open and self._since is not None else 0.0

    def reached(self) -> bool:
        """It answered a call, whatever it said. Gives whether that is news."""
        news = self._since is not None
        self._failures, self._last, self._since = 0, float("-inf"), None
        self.is_open, self.trouble = False, ""
        return news

    def missed(self, why: str) -> bool:
        """It did not answer. Gives whether it is left alone from now on, and was not before."""
        self.trouble = why
        if self.is_open:
            return False
        now = self._clock()
        if not self.is_ajar:
            if now - self._last < self._apart:
                return False
            self._last = now
            self._failures += 1
            if self._failures < self.most:
                return False
        self.open(why)
        return True

    def open(self, why: str) -> None:
        """Leaves it alone at once."""
        self.trouble, self.is_open = why, True
        if self._since is None:
            self._since = self._clock()

    def ajar(self) -> None:
        """There is hope: one turn may try."""
        self.is_open = False
