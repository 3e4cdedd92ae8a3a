"""Circuit breaker of one remote agent: after several failures it is not called until it responds again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(eq=False)
class CircuitBreaker:
    """Circuit breaker of one agent. `clock` returns monotonic seconds."""

    clock: Callable[[], float]
    max_failures: int = 5  # in a row, after which the agent counts as unavailable
    min_interval: float = 0.5  # seconds between two that count: if many turns lose one connection, it is one failure
    is_open: bool = field(default=False, init=False)  # whether the agent must not be called
    last_error: str = field(default="", init=False)  # the text of the last failure; empty after a success
    _failed_at: float = field(default=0.0, init=False)
    _failures: int = field(default=0, init=False)
    _last_failure_at: float = field(default=float("-inf"), init=False)
    _opened_at: float | None = field(default=None, init=False)

    @property
    def is_half_open(self) -> bool:
        """Whether probes are allowed after it was open, and none has succeeded yet."""
        return self._opened_at is not None and not self.is_open

    @property
    def seconds_open(self) -> float:
        """Seconds since it first opened; 0 while it is not open."""
        return max(self.clock() - self._opened_at, 0.001) if self.is_open and self._opened_at is not None else 0.0

    @property
    def seconds_since_error(self) -> float:
        """Seconds since the last failure; 0 after a success."""
        return max(self.clock() - self._failed_at, 0.001) if self.last_error else 0.0

    def record_success(self) -> bool:
        """Records a response of any kind. Returns whether the breaker was not closed before."""
        was_open = self._opened_at is not None
        self._failures, self._last_failure_at, self._opened_at = 0, float("-inf"), None
        self.is_open, self.last_error = False, ""
        return was_open

    def record_failure(self, reason: str) -> bool:
        """Records a failure. Returns whether it opened the breaker."""
        self.last_error, self._failed_at = reason, self.clock()
        if self.is_open:
            return False
        now = self.clock()
        if not self.is_half_open:
            if now - self._last_failure_at < self.min_interval:
                return False
            self._last_failure_at = now
            self._failures += 1
            if self._failures < self.max_failures:
                return False
        self.open(reason)
        return True

    def open(self, reason: str) -> None:
        self.last_error, self._failed_at, self.is_open = reason, self.clock(), True
        if self._opened_at is None:
            self._opened_at = self.clock()

    def half_open(self) -> None:
        """Allows one turn as a probe."""
        self.is_open = False
