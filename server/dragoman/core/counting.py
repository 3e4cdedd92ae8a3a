"""What is counted while the server works: plain numbers that cost next to nothing, and that whoever shows them reads.

Nothing here knows who shows them, or in what form. Counters only grow, and are read at any moment, from any thread.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Upper bounds for what takes seconds: from a read to a long turn."""

SIZES: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0)
"""Upper bounds for what comes in batches."""


class Histogram:
    """How often a value was at most each bound, and above all of them; and the sum of the values."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float] = SECONDS) -> None:
        """`bounds` ascend."""
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def add(self, value: float) -> None:
        """Counts one value. From one thread only."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    @property
    def count(self) -> int:
        """How many values there were."""
        return sum(self.counts)


class Sample(NamedTuple):
    """One value of a family: the values of its labels, and the number, or how a number was spread."""

    labels: tuple[str, ...]
    value: float | Histogram


@dataclass(frozen=True, slots=True)
class Family:
    """Samples of one meaning. `name` has its unit, and no ending that one form of showing it asks for."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: tuple[str, ...] = ()
    samples: Sequence[Sample] = ()


def counter(name: str, help: str, value: float) -> Family:
    """A family of one number that only grows."""
    return Family(name, "counter", help, samples=(Sample((), value),))


def gauge(name: str, help: str, value: float) -> Family:
    """A family of one number that goes up and down."""
    return Family(name, "gauge", help, samples=(Sample((), value),))


def histogram(name: str, help: str, value: Histogram) -> Family:
    """A family of one spread."""
    return Family(name, "histogram", help, samples=(Sample((), value),))


@dataclass(slots=True)
class Commits:
    """The commits of one store in this process."""

    changes: Histogram = field(default_factory=lambda: Histogram(SIZES))
    """Changes in one commit."""
    seconds: Histogram = field(default_factory=Histogram)
    """How long one took, from the beginning of its transaction until it was on disk."""
    failed: int = 0
    """Batches that the database refused, and that were undone."""


@dataclass(slots=True)
class Runs:
    """The runs of one agent in this process, so far."""

    begun: int = 0
    ended: Counter[int] = field(default_factory=Counter)
    """By the state in which a run left its task."""
    seconds: Histogram = field(default_factory=Histogram)
    tokens: int = 0
    cost: int = 0
    """What their agents reported; the cost in billionths."""
