"""Values for telemetry, independent of any export format.

Counters and histograms of this process, and counts over a store. One thread writes; any thread may read at any moment.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Literal, NamedTuple

from dragoman.core.push.delivery import DeliveryOutcome

DURATION_BOUNDS: Final = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0,
)  # fmt: skip
"""Upper bounds of durations in seconds, from a read of the store (1 ms) to a long turn (5 min)."""

BATCH_SIZE_BOUNDS: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0)  # upper bounds of batch sizes


class Histogram:
    """Counts of values by inclusive upper bound, and the sum of the values.

    `counts` has one more entry than `bounds`, for values above all bounds.
    """

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float] = DURATION_BOUNDS) -> None:
        """`bounds` must ascend."""
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def add(self, value: float) -> None:
        """Counts one value. Call from one thread only."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    @property
    def count(self) -> int:
        return sum(self.counts)


MetricKind = Literal["counter", "gauge", "histogram"]


class MetricSample(NamedTuple):
    """One sample of a family: its label values, and a number or histogram."""

    labels: tuple[str, ...]
    value: float | Histogram


@dataclass(frozen=True, slots=True)
class MetricFamily:
    """Samples of one metric. `name` ends in its unit, without a format's suffix such as `_total`."""

    name: str
    kind: MetricKind
    help: str
    labels: tuple[str, ...] = ()
    samples: Sequence[MetricSample] = ()


def _family_of_one(kind: MetricKind, name: str, help: str, value: float | Histogram) -> MetricFamily:
    return MetricFamily(name, kind, help, samples=(MetricSample((), value),))


counter: Final = partial(_family_of_one, "counter")
gauge: Final = partial(_family_of_one, "gauge")
histogram: Final = partial(_family_of_one, "histogram")


@dataclass(slots=True)
class RequestSeries:
    """Counters of requests with the same binding, method and dialect."""

    codes: dict[object, int] = field(default_factory=dict)  # counts by HTTP or gRPC status, or JSON-RPC code
    seconds: Histogram = field(default_factory=Histogram)


class RequestMetrics:
    """Counts requests and open streams."""

    def __init__(self) -> None:
        self._series: dict[tuple[str, str, str], RequestSeries] = {}
        self._stream_counts: list[tuple[str, Callable[[], int]]] = []

    def count(self, binding: str, method: str, dialect: str, code: object, seconds: float) -> None:
        series = self._series.get((binding, method, dialect))
        if series is None:
            series = self._series[binding, method, dialect] = RequestSeries()
        series.codes[code] = series.codes.get(code, 0) + 1
        series.seconds.add(seconds)

    def add_stream_count(self, binding: str, count_open: Callable[[], int]) -> None:
        """Adds a gauge; `count_open` returns the number of open streams."""
        self._stream_counts.append((binding, count_open))

    def families(self) -> Iterator[MetricFamily]:
        labels, series = ("binding", "method", "dialect"), sorted(self._series.items())
        counts = [
            MetricSample((*values, str(code)), count) for values, one in series for code, count in one.codes.items()
        ]
        help = "Finished requests. Requests for unknown methods and paths have the method `other`."
        yield MetricFamily("requests", "counter", help, (*labels, "code"), counts)
        durations = [MetricSample(values, one.seconds) for values, one in series]
        help = "Seconds from the start of a request to the end of its response; for streams, how long they were open."
        yield MetricFamily("request_duration_seconds", "histogram", help, labels, durations)
        streams = [MetricSample((binding,), count_open()) for binding, count_open in self._stream_counts]
        yield MetricFamily("open_streams", "gauge", "Open streams and WebSocket connections.", ("binding",), streams)


@dataclass(slots=True)
class CommitCounters:
    """The commits of one store in this process."""

    changes: Histogram = field(default_factory=lambda: Histogram(BATCH_SIZE_BOUNDS))  # changes in one commit
    seconds: Histogram = field(default_factory=Histogram)
    """Durations from the start of the transaction until it was on disk."""
    failed_batches: int = 0  # batches that the database rejected and rolled back


@dataclass(slots=True)
class TurnCounters:
    """The turns of one agent in this process."""

    started: int = 0
    ended_by_state: Counter[int] = field(default_factory=Counter)
    """Turns by the resulting state of the task (pb.TaskState)."""
    seconds: Histogram = field(default_factory=Histogram)
    tokens: int = 0  # reported tokens
    cost: int = 0  # reported cost, in billionths of the operator's currency


@dataclass(slots=True)
class DeliveryCounters:
    """Results of webhook requests so far. Counters only grow."""

    outcomes: Counter[DeliveryOutcome] = field(default_factory=Counter)
    given_up: int = 0  # receivers that were given up, and events
    seconds: Histogram = field(default_factory=Histogram)  # how long receivers took to respond or fail


@dataclass(frozen=True, slots=True)
class AgentBacklog:
    """Waiting tasks of one agent. `since`: when the oldest one began to wait, in milliseconds since the epoch."""

    tasks: int
    since: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreStats:
    """Counts over all owners. Times are milliseconds since the epoch, by the store's clock; 0 for none."""

    counted_at: int  # the time of the count
    tasks: Mapping[tuple[str, int], int] = field(default_factory=dict)  # visible tasks by agent and state
    backlog: Mapping[str, AgentBacklog] = field(default_factory=dict)  # by agent
    pending_pushes: int = 0  # push configurations with undelivered events
    pending_pushes_since: int = 0  # the earliest due time among them
    failing_since: int = 0  # when the receiver that has been failing longest began to fail
    dead_pushes: int = 0  # push configurations in state GIVEN_UP

    def age(self, since: int) -> float:
        """Seconds from `since` until the count; 0 for none."""
        return max(self.counted_at - since, 0) / 1000 if since else 0.0
