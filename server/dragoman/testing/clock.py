"""A store's clock in the hands of a test."""

from __future__ import annotations


class Clock:
    """Milliseconds since the epoch that only a test moves."""

    def __init__(self, now: int = 1_700_000_000_000) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now

    def forward(self, seconds: float) -> None:
        """Lets time pass."""
        self.now += round(seconds * 1000)
