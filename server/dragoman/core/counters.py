"""What is counted while the server works: plain numbers that cost next to nothing, and that whoever shows them reads.

Nothing here knows who shows them, or in what form. Counters only grow, and are read at any moment, from any thread.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

DURATION_BOUNDS: Final = (
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
    60.0,
    300.0,
)
"""Upper bounds for what takes seconds: from a read to a long turn."""

BATCH_SIZE_BOUNDS: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0)
"""Upper bounds for what comes in batches."""


class Histogram:
    """How often a value was at most each bound, and above all of them; and the sum of the values."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float] = DURATION_BOUNDS) -> None:
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


class MetricSample(NamedTuple):
    """One value of a family: the values of its labels, and the number, or how a number was spread."""

    labels: tuple[str, ...]
    value: float | Histogram


@dataclass(frozen=True, slots=True)
class MetricFamily:
    """Samples of one meaning. `name` has its unit, and no ending that one form of showing it asks for."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: tuple[str, ...] = ()
    samples: Sequence[MetricSample] = ()


def counter(name: str, help: str, value: float) -> MetricFamily:
    """A family of one number that only grows."""
    return MetricFamily(name, "counter", help, samples=(MetricSample((), value),))


def gauge(name: str, help: str, value: float) -> MetricFamily:
    """A family of one number that goes up and down."""
    return MetricFamily(name, "gauge", help, samples=(MetricSample((), value),))


def histogram(name: str, help: str, value: Histogram) -> MetricFamily:
    """A family of one spread."""
    return MetricFamily(name, "histogram", help, samples=(MetricSample((), value),))


@dataclass(slots=True)
class CommitCounters:
    """The commits of one store in this process."""

    changes: Histogram = field(default_factory=lambda: Histogram(BATCH_SIZE_BOUNDS))
    """Changes in one commit."""
    seconds: Histogram = field(default_factory=Histogram)
    """How long one took, from the beginning of its transaction until it was on disk."""
    failed_batches: int = 0
    """Batches that the database refused, and that were undone."""


@dataclass(slots=True)
class TurnCounters:
    """The runs of one agent in this process, so far."""

    started: int = 0
    ended_by_state: Counter[int] = field(default_factory=Counter)
    """By the state in which a run left its task."""
    seconds: Histogram = field(default_factory=Histogram)
    tokens: int = 0
    cost: int = 0
    """What their agents reported; the cost in billionths."""


@dataclass(frozen=True, slots=True)
class AgentBacklog:
    """Tasks of one agent that wait for a worker. `since`: from when on the one waits that has
    waited the longest.
    """

    tasks: int
    since: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreStats:
    """Counts over all owners. Times are milliseconds since the epoch, by the store's clock; 0 for none."""

    counted_at: int
    """When it was counted."""
    tasks: Mapping[tuple[str, int], int] = field(default_factory=dict)
    """Visible tasks by agent and state."""
    backlog: Mapping[str, AgentBacklog] = field(default_factory=dict)
    """By agent."""
    pending_pushes: int = 0
    """Push configurations that have something to deliver."""
    pending_pushes_since: int = 0
    """When what has been due the longest was to be delivered."""
    failing_since: int = 0
    """Since when the receiver that fails the longest takes nothing."""
    dead_pushes: int = 0
    """Push configurations that were given up."""

    def age(self, since: int) -> float:
        """Seconds from a time until it was counted; 0 for none."""
        return max(self.counted_at - since, 0) / 1000 if since else 0.0
