"""When and how often a failed turn or step runs again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dragoman.agents.functions.step_values import UnstorableResult
from dragoman.core.durations import Backoff
from dragoman.core.exceptions import is_a

MAX_ATTEMPTS: Final = 1_000
"""How often a turn or a step may be tried."""


@dataclass(frozen=True, slots=True)
class Retry:
    """When and how often something that failed runs again.

    attempts: how often it runs in all, 1 to 1,000. backoff: seconds before the second attempt, doubled for each later
    one up to max_backoff. on: the exceptions that are tried again.
    """

    attempts: int = 3
    backoff: float = 1.0
    max_backoff: float = 60.0
    on: type[Exception] | tuple[type[Exception], ...] = Exception

    def __post_init__(self) -> None:
        if self.attempts not in range(1, MAX_ATTEMPTS + 1):
            raise ValueError(f"Retry: attempts={self.attempts!r} must be 1 to {MAX_ATTEMPTS}")
        for name in ("backoff", "max_backoff"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e9:
                raise ValueError(f"Retry: {name}={value!r} must be seconds, 0 or more")

    def delay(self, failures: int) -> float:
        """Seconds to wait after this many failures."""
        return Backoff(self.backoff, max(self.max_backoff, self.backoff)).delay(failures)

    def covers(self, error: BaseException, attempt: int) -> bool:
        """Whether to try again after this error of an attempt. Never after a step that has run: it would run again."""
        return attempt < self.attempts and is_a(error, self.on) and not is_a(error, UnstorableResult)


ONCE: Final = Retry(attempts=1)
