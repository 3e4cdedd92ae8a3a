"""How often: token buckets that take one number each (the generic cell rate algorithm, ITU-T I.371 annex A).

A bucket holds `burst` tokens and gains one every `every` units of time. Of each only the moment is kept at which it
will be full again; a bucket that is full is none, so that memory holds those alone who asked for something lately.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

KEPT: Final = 100_000
"""Buckets kept at most. One more, and the one that was used longest ago counts as full."""


_NOTHING: Final = 1e-6
"""Parts of a token that are what floating-point numbers leave over, and no reason to wait."""


class Pace:
    """Buckets by key. Times are the caller's own, in any unit."""

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self._full_at: dict[Hashable, float] = {}

    def __len__(self) -> int:
        return len(self._full_at)

    def wait(self, key: Hashable, now: float, every: float, burst: float) -> float:
        """How long until this bucket has a token; 0 when it has one."""
        wait = self._full_at.get(key, now) - now - (burst - 1) * every
        return wait if wait > every * _NOTHING else 0.0

    def take(self, key: Hashable, now: float, every: float) -> None:
        """Takes a token, which may be one that the bucket does not have yet."""
        full_at = max(now, self._full_at.pop(key, now)) + every  # and goes to the end of the line
        self._full_at[key] = full_at
        if len(self._full_at) > self._kept:
            self._forget(now)

    def _forget(self, now: float) -> None:
        full = [key for key, full_at in self._full_at.items() if full_at <= now]
        for key in full or [next(iter(self._full_at))]:
            del self._full_at[key]
