"""Figures of past hours and days for the console's pictures: a server that has just started has none."""

from __future__ import annotations

import random
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dragoman.core.daily_usage import FIGURE_COLUMNS, HOUR_COLUMNS, DailyFigures, bucket_of

DAYS: Final = 90
PRINCIPALS: Final = {"acme-crm": 0.5, "billing": 0.3, "alice": 0.15, "bob": 0.05}
"""The share of each principal in all tasks."""


@dataclass(frozen=True)
class Load:
    """What an agent has to do."""

    hourly: float
    """Tasks in a busy hour."""
    seconds: float
    """The mean duration of a turn."""
    tokens: int
    """Tokens of one task."""
    failing: float = 0.02
    """The share of its tasks that fail."""
    failing_now: float | None = None
    """The same in the last three hours."""


def add_past(database: Path, loads: Mapping[str, Load]) -> None:
    """Writes figures until the hour before this one. The database must have its tables, and no server."""
    chance = random.Random(1)
    hour = int(time.time()) // 3600
    yesterday = hour // 24 - 1
    with closing(sqlite3.connect(database)) as connection, connection:
        for agent, load in loads.items():
            # The store adds hours to their day when they are old.
            for number in range(24 * yesterday, hour):
                now = load.failing_now if number > hour - 3 else None
                failing = load.failing if now is None else now
                rows = _rows(load, load.hourly * _busy(hour - number), failing, chance)
                connection.executemany(_insert("hour"), [(number, agent, *row, 0, 0, 0) for row in rows])
                times = _times(load, chance)
                connection.executemany(_insert("hour"), [(number, agent, "", *DailyFigures(), *row) for row in times])
            for number in range(yesterday - DAYS, yesterday):
                weekend = (number + 3) % 7 > 4
                rows = _rows(load, load.hourly * (2 if weekend else 11), load.failing, chance)
                connection.executemany(_insert("day"), [(number, agent, *row) for row in rows])


def _insert(unit: str) -> str:
    table = {"hour": "hourly_usage", "day": "daily_usage"}[unit]
    columns = f"{unit}, agent, principal, {FIGURE_COLUMNS if unit == 'day' else HOUR_COLUMNS}"
    marks = ", ".join("?" * len(columns.split(",")))
    return f"INSERT INTO {table} (scope, {columns}) VALUES ('default', {marks})"


def _busy(hours_ago: int) -> float:
    """The load of an hour: most eight hours ago, at whatever time of the day the pictures are taken."""
    return 0.3 + 0.7 * max(0.0, 1 - abs((hours_ago + 4) % 24 - 12) / 8)


def _rows(load: Load, tasks: float, failing: float, chance: random.Random) -> Iterator[tuple[str | int, ...]]:
    """The principal and the figures of each row."""
    for principal, share in PRINCIPALS.items():
        begun = round(tasks * share * chance.uniform(0.7, 1.3))
        failed = sum(chance.random() < failing for _ in range(begun))
        canceled = sum(chance.random() < 0.02 for _ in range(begun - failed))
        figures = DailyFigures(
            begun=begun,
            completed=begun - failed - canceled,
            failed=failed,
            canceled=canceled,
            turns=begun + begun // 5,
            turn_us=int(begun * 1.2 * load.seconds * 1e6),
            tokens=begun * load.tokens,
            cost=begun * load.tokens * 3_000,
        )
        yield principal, *figures


def _times(load: Load, chance: random.Random) -> Iterator[tuple[int, int, int]]:
    """Bucket, number and sum of the times of an hour's turns, and of their times in the queue."""
    for sign, seconds in ((1, load.seconds), (-1, 0.05)):
        buckets: dict[int, list[int]] = {}
        for _ in range(round(load.hourly)):
            time = round(seconds * chance.lognormvariate(-0.3, 0.7) * 1e6)
            buckets.setdefault(sign * bucket_of(time), []).append(time)
        yield from ((bucket, len(times), sum(times)) for bucket, times in buckets.items())
