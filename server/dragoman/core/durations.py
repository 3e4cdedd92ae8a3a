"""Durations: ages as text (`30d`), and the delays of an exponential backoff."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, TypeGuard

_AGE_UNITS: Final = {"w": 604_800_000, "d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000}
_AGE_PATTERN: Final = re.compile(r"(\d{1,9})\s*([wdhms]?)", re.ASCII)


MAX_AGE: Final = 36_500 * 86_400_000
"""Milliseconds of the longest age, a hundred years: more is a mistake, and does not fit into every time of protobuf."""


def parse_age(text: str) -> int:
    """Parses an age and returns milliseconds. Raises ValueError, naming the format."""
    match = _AGE_PATTERN.fullmatch(text.strip())
    if not match:
        raise ValueError(f'"{text}" is not an age: a number with w, d, h, m or s, such as 30d; a bare one is seconds')
    if (age := int(match[1]) * _AGE_UNITS[match[2] or "s"]) > MAX_AGE:
        raise ValueError(f'"{text}" is too long an age; at most {format_age(MAX_AGE)}')
    return age


def format_age(milliseconds: int) -> str:
    """The shortest text that `parse_age` reads as the same age; fractions of a second are dropped."""
    for unit, size in _AGE_UNITS.items():
        if milliseconds and milliseconds % size == 0:
            return f"{milliseconds // size}{unit}"
    return f"{milliseconds // 1000}s" if milliseconds else "0"


_MAX_EXPONENT: Final = 62
"""The growth of a delay ends here: 2**62 is far beyond any longest delay, and a float can hold it."""


def is_seconds(value: object) -> TypeGuard[float]:
    """Whether it is a number of seconds, 0 or more."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e9


@dataclass(frozen=True, slots=True)
class Backoff:
    """Retry delays in seconds that grow by `factor` from `first` up to `longest`.

    `jitter` is the share of a delay that is random: 0 for none, 1 for full jitter (from 0 to the delay).
    """

    first: float
    longest: float
    factor: float = 2.0
    jitter: float = 0.0

    def delay(self, attempt: int, random: float = 1.0) -> float:
        """Seconds before retry number `attempt`, from 1. `random` is from 0 (shortest delay) to 1 (full delay)."""
        delay = min(self.first * self.factor ** min(attempt - 1, _MAX_EXPONENT), self.longest)
        return delay * (1 - self.jitter * (1 - random))
