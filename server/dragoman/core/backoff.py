"""Exponential backoff: the delay before a retry, computed from the attempt's number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_MAX_EXPONENT: Final = 62
"""No delay grows further: 2**62 is far beyond any longest delay, and a float still holds it."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """Delays in seconds that grow by `factor` from `first` up to `longest`.

    `jitter` is the share of a delay that chance may take away: 0 is none, 1 is full jitter (from 0 to the delay).
    """

    first: float
    longest: float
    factor: float = 2.0
    jitter: float = 0.0

    def delay(self, attempt: int, random: float = 1.0) -> float:
        """Seconds before retry number `attempt`, from 1. `random` is from 0 (all of the jitter taken away) to 1."""
        delay = min(self.first * self.factor ** min(attempt - 1, _MAX_EXPONENT), self.longest)
        return delay * (1 - self.jitter * (1 - random))
