"""A figure that was measured several times: its median, and how far it ranged."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, slots=True)
class Spread:
    """Median, least and most of so many values."""

    median: float
    least: float
    most: float
    count: int

    @classmethod
    def of(cls, values: Iterable[float]) -> Self | None:
        """None of nothing."""
        found = sorted(values)
        if not found:
            return None
        return cls(statistics.median(found), found[0], found[-1], len(found))

    def __str__(self) -> str:
        """`1,795 [1,771..1,847]`; one value stands alone."""
        if self.count == 1:
            return figure(self.median)
        return f"{figure(self.median)} [{figure(self.least)}..{figure(self.most)}]"


def figure(value: float) -> str:
    """Three digits that count, and all of those before the point: 12,345, 123, 12.3, 0.123."""
    size = abs(value)
    if size >= 100:
        return f"{value:,.0f}"
    if size >= 10:
        return f"{value:.1f}"
    if size >= 1 or size == 0:
        return f"{value:.2f}"
    return f"{value:.3f}"
