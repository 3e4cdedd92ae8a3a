"""Daily usage of the store in memory: figures by hour or day, scope, principal and agent (`core.daily_usage`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from operator import add

from tests.simulation.memory.database import MemoryDatabase

from dragoman.core.daily_usage import (
    DAY_HOURS,
    KEPT_DAYS,
    KEPT_HOURS,
    DailyCounter,
    DailyFigures,
    DailyUsageQuery,
    DailyUsageRow,
    HourlyUsage,
    HourlyUsageQuery,
    HourlyUsageRow,
    TimesRow,
    day_of,
    hour_of,
)
from dragoman.core.limits.quotas import MAX_USAGE

Key = tuple[int, str, str, str]
"""Hour or day, scope, principal, agent."""

_CAPPED = [name in ("tokens", "cost") for name in DailyFigures._fields]


def add_figures(rows: dict[Key, DailyFigures], key: Key, figures: Iterable[int]) -> None:
    """Adds figures to those of a row."""
    sums = map(add, rows.get(key, DailyFigures()), figures)
    rows[key] = DailyFigures(
        *(min(value, MAX_USAGE) if capped else value for value, capped in zip(sums, _CAPPED, strict=True))
    )


def flush(database: MemoryDatabase) -> None:
    """Adds what appends have counted to the rows of its hours."""
    counter, keys = database.daily, database.daily_keys
    for day in keys.missing(counter.days):
        keys.load(day, {key[1:] for at, key, _ in _by_day(database) if at == day})
    for row in counter.rows(keys):
        hour, scope, principal, agent, *figures, bucket, times, time_us = row
        key = (int(hour), str(scope), str(principal), str(agent))
        if bucket:
            known = database.times.get((key, int(bucket)), (0, 0))
            database.times[key, int(bucket)] = known[0] + int(times), known[1] + int(time_us)
        else:
            add_figures(database.hourly, key, map(int, figures))
    database.daily = DailyCounter()


def _by_day(database: MemoryDatabase) -> Iterator[tuple[int, Key, DailyFigures]]:
    for key, figures in database.days.items():
        yield key[0], key, figures
    for key, figures in database.hourly.items():
        yield key[0] // DAY_HOURS, key, figures


def compact(database: MemoryDatabase) -> int:
    """Merges old hours into their days, and deletes old days. Returns how many rows were deleted."""
    flush(database)
    now = database.clock()
    for key in [key for key in database.hourly if key[0] < hour_of(now) - KEPT_HOURS + 1]:
        add_figures(database.days, (key[0] // DAY_HOURS, *key[1:]), database.hourly.pop(key))
    for place in [place for place in database.times if place[0][0] < hour_of(now) - KEPT_HOURS + 1]:
        del database.times[place]
    old = [key for key in database.days if key[0] < day_of(now) - KEPT_DAYS]
    for key in old:
        del database.days[key]
    return len(old)


def erase_principal(database: MemoryDatabase, principal: str, scope: str) -> None:
    """Adds a principal's figures to those of erased principals."""
    flush(database)
    for rows in (database.hourly, database.days):
        for key in [key for key in rows if key[2] == principal and scope in ("", key[1])]:
            add_figures(rows, (key[0], key[1], "", key[3]), rows.pop(key))


def daily(database: MemoryDatabase, query: DailyUsageQuery) -> list[DailyUsageRow]:
    """The sums of each group."""
    flush(database)
    groups: dict[tuple[int | str, ...], DailyFigures] = {} if query.group_by else {(): DailyFigures()}
    for day, key, figures in _by_day(database):
        if not query.first_day <= day <= query.last_day or not _covers(query, key):
            continue
        if query.principal not in ("", key[2]):
            continue
        values: dict[str, int | str] = dict(zip(("day", "scope", "principal", "agent"), (day, *key[1:]), strict=True))
        group: tuple[int | str, ...] = tuple(values[name] for name in query.group_by)
        groups[group] = DailyFigures(*map(add, groups.get(group, DailyFigures()), figures))
    rows = [
        DailyUsageRow(group, _capped(groups[group]))
        for group in sorted(groups)
        if not query.after or group > query.after
    ]
    return rows[: query.limit]


def hourly(database: MemoryDatabase, query: HourlyUsageQuery) -> HourlyUsage:
    """The sums of each agent and hour, and the times of each agent and bucket."""
    flush(database)
    sums: dict[tuple[str, int], DailyFigures] = {}
    for key, figures in database.hourly.items():
        if key[0] >= query.first_hour and _covers(query, key):
            place = (key[3], key[0])
            sums[place] = DailyFigures(*map(add, sums.get(place, DailyFigures()), figures))
    rows = [HourlyUsageRow(agent, hour, _capped(sums[agent, hour])) for agent, hour in sorted(sums)]
    buckets: dict[tuple[str, int], tuple[int, int]] = {}
    for (key, bucket), (times, time_us) in database.times.items():
        if key[0] >= query.first_hour and _covers(query, key):
            known = buckets.get((key[3], bucket), (0, 0))
            buckets[key[3], bucket] = known[0] + times, known[1] + time_us
    return HourlyUsage(rows, [TimesRow(*place, *buckets[place]) for place in sorted(buckets)])


def _covers(query: DailyUsageQuery | HourlyUsageQuery, key: Key) -> bool:
    return (not query.scopes or key[1] in query.scopes) and (not query.agents or key[3] in query.agents)


def _capped(figures: DailyFigures) -> DailyFigures:
    return DailyFigures(*(min(value, MAX_USAGE) for value in figures))
