"""Daily usage: what tasks did and used, by UTC day, scope, principal and agent; of the last two days also by hour.

Results, time and usage are counted in the same commit as what they count, so they are exact after a crash, and a
repeated commit counts once. So are begun tasks and turns on shared stores; on SQLite those of one commit may be counted
with the next one (`DailyCounter.can_wait`), and a crash loses them. The figures outlive the tasks: erasing a task
changes none, and erasing a principal removes only its name. A commit adds to the figures of its hour; after KEPT_HOURS
these are added to the figures of their day.

Hours also have histograms of times, by scope and agent: `bucket` is 0 for figures, positive for lengths of turns,
negative for times in the queue. They are rows of the same table, since another one costs a page in every commit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from math import ceil, log
from operator import add
from typing import Final, Literal, NamedTuple

from dragoman.core.limits.quotas import MAX_USAGE, UsageReport
from dragoman.core.task import states
from dragoman.core.task.log import TaskRecord
from dragoman.core.task.plan import Plan

HOUR_MS: Final = 3_600_000
DAY_HOURS: Final = 24
DAY_MS: Final = DAY_HOURS * HOUR_MS

KEPT_HOURS: Final = 48  # hours for which figures are kept by hour, with the current one

KEPT_DAYS: Final = 400  # days for which figures are kept: a year, and some weeks to compare it with the year before

MAX_DAILY_KEYS: Final = 10_000
"""Keys of one day with figures of their own: callers can invent scopes, and principals are unlimited."""

EPOCH_ORDINAL: Final = date(1970, 1, 1).toordinal()

BUCKET_RATIO: Final = 1.05
"""Of the bounds of a histogram's bucket. The mean of a bucket is within 5 % of each of its times, never above the
longest, and exact for a single one."""
_LOG_RATIO: Final = log(BUCKET_RATIO)


def hour_of(milliseconds: int) -> int:
    """The number of a UTC hour, from milliseconds since the epoch."""
    return milliseconds // HOUR_MS


def day_of(milliseconds: int) -> int:
    """The number of a UTC day, from milliseconds since the epoch."""
    return milliseconds // DAY_MS


def day_text(day: int) -> str:
    """The day as `YYYY-MM-DD`."""
    return date.fromordinal(EPOCH_ORDINAL + day).isoformat()


def parse_day(text: str) -> int:
    """The number of a day written as `YYYY-MM-DD`. Raises ValueError."""
    return date.fromisoformat(text).toordinal() - EPOCH_ORDINAL


HourlyKey = tuple[int, str, str, str]
"""The key of figures: UTC hour, scope, principal and agent. An empty principal stands for erased ones; with an empty
scope, for everything beyond MAX_DAILY_KEYS."""


class DailyFigures(NamedTuple):
    """Figures of one key, or a sum of them. A Message in place of a task counts as a completed task."""

    begun: int = 0  # tasks begun
    completed: int = 0
    failed: int = 0
    canceled: int = 0
    rejected: int = 0
    turns: int = 0
    """Calls of the agent: first turns, later ones, and repeated attempts."""
    turn_us: int = 0
    """Microseconds that turns took. Turns whose process died add nothing."""
    tokens: int = 0  # as reported
    cost: int = 0  # as reported, in billionths of the operator's currency


DAY_KEY: Final = "day, scope, principal, agent"
HOUR_KEY: Final = "hour, scope, principal, agent, bucket"
FIGURE_COLUMNS: Final = ", ".join(DailyFigures._fields)
TIME_COLUMNS: Final = ("times", "time_us")  # of a bucket: how many, and their sum
HOUR_COLUMNS: Final = f"{FIGURE_COLUMNS}, bucket, {', '.join(TIME_COLUMNS)}"


def added_columns(table: str, least: str, more: tuple[str, ...] = ()) -> str:
    """The assignments of an upsert that adds figures. table: prefix of the stored row. least: the minimum in SQL."""
    sums = {name: f"{table}{name} + excluded.{name}" for name in DailyFigures._fields + more}
    for name in ("tokens", "cost"):
        sums[name] = f"{least}({sums[name]}, {MAX_USAGE})"
    return ", ".join(f"{name} = {total}" for name, total in sums.items())


_BEGUN, _TURNS, _TURN_US, _TOKENS, _COST = map(
    DailyFigures._fields.index, ("begun", "turns", "turn_us", "tokens", "cost")
)
_OUTCOMES: Final[Mapping[int, int]] = {
    state: DailyFigures._fields.index(states.word(state)) for state in states.TERMINAL
}
"""The index of the figure that counts tasks which end in a state."""

_DAYS_IN_MEMORY: Final = 2  # a batch around midnight has changes of two days


class DailyCounter:
    """Figures of one batch of appends, which a store adds to its rows when it commits the batch."""

    def __init__(self) -> None:
        self._figures: dict[HourlyKey, list[int]] = {}
        """In the order of DailyFigures: every append adds to them, so they are lists."""
        self._times: dict[tuple[HourlyKey, int], list[int]] = {}
        """By bucket, in the order of TIME_COLUMNS."""
        self.can_wait = True
        """Whether only tasks begun and turns are counted. The end of a turn follows soon, with figures that may not be
        lost; writing both together saves a page of the log in every second commit of a lone caller."""

    def __bool__(self) -> bool:
        return bool(self._figures)

    def count(self, plan: Plan, now: int) -> None:
        """Counts a change. `now`: milliseconds since the epoch."""
        before, record, change = plan.before, plan.record, plan.change
        outcome = _OUTCOMES.get(record.state)
        if change.discard:
            outcome = _OUTCOMES[states.COMPLETED if change.reply else states.FAILED]
        is_claimed = record.token > (before.token if before is not None else 0)
        turns = is_claimed + plan.turn_continues
        if turns or outcome is not None or before is None or change.turn_us:
            key = _key(record, now)
            figures = self._of(key)
            figures[_TURNS] += turns
            figures[_TURN_US] += change.turn_us
            if change.turn_us:
                self._count_time(key, change.turn_us, 1)
            if is_claimed:
                waited = record.turn_at - before.turn_at if before is not None and before.ready else 0
                self._count_time(key, max(waited, 0) * 1000, -1)
            if before is None:
                figures[_BEGUN] += 1
            if outcome is not None:
                figures[outcome] += 1
            if outcome is not None or change.turn_us:
                self.can_wait = False

    def count_usage(self, record: TaskRecord, report: UsageReport, now: int) -> None:
        """Counts a usage report that counted for its task."""
        self.can_wait = False
        figures = self._of(_key(record, now))
        figures[_TOKENS] = min(figures[_TOKENS] + report.tokens, MAX_USAGE)
        figures[_COST] = min(figures[_COST] + report.cost, MAX_USAGE)

    @property
    def days(self) -> set[int]:
        return {key[0] // DAY_HOURS for key in self._figures}

    def add(self, other: DailyCounter) -> None:
        """Adds the figures of another counter, which stays as it is."""
        for key, figures in other._figures.items():
            self._figures[key] = list(map(add, self._of(key), figures))
        for place, times in other._times.items():
            self._times[place] = list(map(add, self._times.get(place, (0, 0)), times))
        self.can_wait = self.can_wait and other.can_wait

    def rows(self, keys: DailyKeys) -> list[tuple[int | str, ...]]:
        """A row of HOUR_COLUMNS after the fields of its key, for each key and each bucket, in their order."""
        assigned: dict[HourlyKey, list[int]] = {}
        for key, figures in self._figures.items():
            key = keys.assign(key)
            assigned[key] = list(map(add, assigned.get(key, DailyFigures()), figures))
        times: dict[tuple[HourlyKey, int], list[int]] = {}
        for (key, bucket), some in self._times.items():
            hour, scope, _, agent = keys.assign(key)
            place = (hour, scope, "", agent), bucket
            times[place] = list(map(add, times.get(place, (0, 0)), some))
        rows: list[tuple[int | str, ...]] = [(*key, *figures, 0, 0, 0) for key, figures in sorted(assigned.items())]
        return rows + [(*key, *DailyFigures(), bucket, *some) for (key, bucket), some in sorted(times.items())]

    def _of(self, key: HourlyKey) -> list[int]:
        return self._figures.setdefault(key, [0] * len(DailyFigures._fields))

    def _count_time(self, key: HourlyKey, us: int, sign: int) -> None:
        times = self._times.setdefault((key, sign * bucket_of(us)), [0, 0])
        times[0] += 1
        times[1] += us


def _key(record: TaskRecord, now: int) -> HourlyKey:
    return now // HOUR_MS, record.ref.owner.scope, record.principal, record.agent


def bucket_of(us: int) -> int:
    """The number of the histogram bucket of a time in microseconds, from 1."""
    return 1 + int(log(max(us, 1)) / _LOG_RATIO)


class DailyKeys:
    """The keys of the last days that have figures of their own, at most MAX_DAILY_KEYS a day."""

    def __init__(self, limit: int = MAX_DAILY_KEYS) -> None:
        self._limit = limit
        self._by_day: dict[int, set[tuple[str, ...]]] = {}
        """Scope, principal and agent."""

    def missing(self, days: Iterable[int]) -> list[int]:
        """Those of these days that have to be loaded."""
        return [day for day in days if day not in self._by_day]

    def load(self, day: int, names: Iterable[tuple[str, ...]]) -> None:
        """Adds the scopes, principals and agents of a day's stored figures. Drops those of an earlier day."""
        self._by_day[day] = set(names)
        if len(self._by_day) > _DAYS_IN_MEMORY:
            del self._by_day[next(iter(self._by_day))]

    def assign(self, key: HourlyKey) -> HourlyKey:
        """The key to count for: this one, or beyond the limit one that all scopes and principals share."""
        known, names = self._by_day.get(key[0] // DAY_HOURS), key[1:]
        if known is not None and names not in known:
            if len(known) >= self._limit:
                return key[0], "", "", key[3]
            known.add(names)
        return key


UsageGroup = Literal["day", "scope", "principal", "agent"]


@dataclass(frozen=True, slots=True)
class DailyUsageQuery:
    """Which figures to sum, and by what."""

    first_day: int
    last_day: int  # included
    group_by: tuple[UsageGroup, ...] = ()  # empty for one sum of all
    scopes: frozenset[str] = frozenset()  # empty for all
    agents: frozenset[str] = frozenset()  # empty for all
    principal: str = ""  # empty for all
    after: tuple[int | str, ...] = ()  # the group of the last row of the page before; empty for the first page
    limit: int = 100


class DailyUsageRow(NamedTuple):
    """The sum of one group, whose values are in the order of `DailyUsageQuery.group_by`."""

    group: tuple[int | str, ...]
    figures: DailyFigures


@dataclass(frozen=True, slots=True)
class HourlyUsageQuery:
    """Which hours to sum by agent. Empty sets match all scopes and agents."""

    first_hour: int
    scopes: frozenset[str] = frozenset()
    agents: frozenset[str] = frozenset()


class HourlyUsageRow(NamedTuple):
    """Figures of an agent's tasks in one UTC hour."""

    agent: str
    hour: int
    figures: DailyFigures


class TimesRow(NamedTuple):
    """One bucket of an agent's times: how many, and their sum."""

    agent: str
    bucket: int
    times: int
    time_us: int


class HourlyUsage(NamedTuple):
    """Figures by agent and hour, and the times of all these hours by agent and bucket; each in this order."""

    hours: list[HourlyUsageRow]
    times: list[TimesRow]


@dataclass(frozen=True, slots=True)
class TimeSummary:
    """Number, mean and quantiles of times, in microseconds."""

    count: int
    mean: float
    p50: float
    p95: float


def summarize(buckets: Iterable[TimesRow]) -> TimeSummary:
    """The summary of the times in these buckets of one kind. Quantiles are nearest ranks, within 5 %."""
    rows = sorted(buckets, key=lambda row: abs(row.bucket))
    count = sum(row.times for row in rows)
    mean = sum(row.time_us for row in rows) / max(count, 1)
    p50, p95 = (_quantile(rows, ceil(share * count / 100)) for share in (50, 95))
    return TimeSummary(count, mean, p50, p95)


def _quantile(rows: Sequence[TimesRow], rank: int) -> float:
    for row in rows:
        if rank <= row.times:
            return row.time_us / row.times
        rank -= row.times
    return 0.0
