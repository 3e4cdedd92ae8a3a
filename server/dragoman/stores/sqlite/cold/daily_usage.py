"""Daily usage (`core.daily_usage`): rows of figures by hour or day, scope, principal and agent.

A commit adds to the rows of its hour (`hot/figures.py`). After KEPT_HOURS these are merged into those of their day.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any, Final

from dragoman.core.daily_usage import (
    DAY_HOURS,
    DAY_KEY,
    FIGURE_COLUMNS,
    HOUR_COLUMNS,
    HOUR_KEY,
    DailyFigures,
    DailyUsageQuery,
    DailyUsageRow,
    HourlyUsage,
    HourlyUsageQuery,
    HourlyUsageRow,
    TimesRow,
    added_columns,
)
from dragoman.core.limits.quotas import MAX_USAGE
from dragoman.stores.sqlite.queries import marks

ADDED: Final = f"DO UPDATE SET {added_columns('', 'min')}"  # the end of an upsert
_HOURS: Final = (
    f"SELECT hour / {DAY_HOURS}, scope, principal, agent, {FIGURE_COLUMNS} FROM hourly_usage WHERE bucket = 0"
)
BY_DAY: Final = f"(SELECT {DAY_KEY}, {FIGURE_COLUMNS} FROM daily_usage UNION ALL {_HOURS})"
"""The rows of both tables, by day."""
_SUMS: Final = ", ".join(f"total({name})" for name in DailyFigures._fields)
"""`sum` fails beyond 64 bits. These are exact up to 2**53."""
_OF_PRINCIPAL: Final = "principal = ?1 AND (?2 = '' OR scope = ?2)"
_ERASE_PRINCIPAL: Final = tuple(
    statement
    for table, time, columns, key in (
        ("daily_usage", "day", FIGURE_COLUMNS, DAY_KEY), ("hourly_usage", "hour", HOUR_COLUMNS, HOUR_KEY)
    )
    for statement in (
        f"INSERT INTO {table} ({time}, scope, principal, agent, {columns})"
        f" SELECT {time}, scope, '', agent, {columns} FROM {table} WHERE {_OF_PRINCIPAL}"
        f" ON CONFLICT ({key}) {ADDED}",
        f"DELETE FROM {table} WHERE {_OF_PRINCIPAL}",
    )
)  # fmt: skip
_MERGE_HOUR: Final = (
    f"INSERT INTO daily_usage ({DAY_KEY}, {FIGURE_COLUMNS}) {_HOURS} AND hour = ? ON CONFLICT ({DAY_KEY}) {ADDED}",
    "DELETE FROM hourly_usage WHERE hour = ?",
)


def erase_principal(connection: sqlite3.Connection, principal: str, scope: str) -> None:
    """Adds a principal's figures to those of erased principals. `scope`: only there; empty for everywhere."""
    for statement in _ERASE_PRINCIPAL:
        connection.execute(statement, (principal, scope))


def merge_hours_before(connection: sqlite3.Connection, hour: int) -> bool:
    """Merges the oldest hour before `hour` into its day. Returns False when none is left."""
    (first,) = connection.execute("SELECT min(hour) FROM hourly_usage WHERE hour < ?", (hour,)).fetchone()
    for statement in _MERGE_HOUR if first is not None else ():
        connection.execute(statement, (first,))
    return first is not None


def delete_days_before(connection: sqlite3.Connection, day: int) -> int:
    return connection.execute("DELETE FROM daily_usage WHERE day < ?", (day,)).rowcount


Condition = tuple[str, Sequence[int | str]]  # a condition and its values


def read(connection: sqlite3.Connection, query: DailyUsageQuery) -> list[DailyUsageRow]:
    conditions: list[Condition] = [("day BETWEEN ? AND ?", (query.first_day, query.last_day)), *_conditions(query)]
    if query.principal:
        conditions.append(("principal = ?", (query.principal,)))
    if query.after:
        conditions.append((f"({', '.join(query.group_by)}) > ({marks(query.after)})", query.after))
    return [DailyUsageRow(*row) for row in _sums(connection, BY_DAY, query.group_by, conditions, query.limit)]


def read_hours(connection: sqlite3.Connection, query: HourlyUsageQuery) -> HourlyUsage:
    conditions: list[Condition] = [("hour >= ?", (query.first_hour,)), *_conditions(query)]
    rows = _sums(connection, "hourly_usage", ("agent", "hour"), [*conditions, ("bucket = 0", ())])
    hours = [HourlyUsageRow(agent, hour, figures) for (agent, hour), figures in rows]
    where, values = _where([*conditions, ("bucket <> 0", ())])
    sql = f"SELECT agent, bucket, sum(times), sum(time_us) FROM hourly_usage WHERE {where} GROUP BY 1, 2 ORDER BY 1, 2"
    return HourlyUsage(hours, [TimesRow(*row) for row in connection.execute(sql, values)])


def _sums(
    connection: sqlite3.Connection, table: str, columns: Sequence[str], conditions: Sequence[Condition], limit: int = -1
) -> Iterator[tuple[tuple[Any, ...], DailyFigures]]:
    """The sums of the rows for each group of `columns`, in their order."""
    groups, width = ", ".join(columns), len(columns)
    where, values = _where(conditions)
    by_group = f"GROUP BY {groups} ORDER BY {groups}" if groups else ""
    sql = f"SELECT {', '.join([*columns, _SUMS])} FROM {table} WHERE {where} {by_group} LIMIT ?"
    for row in connection.execute(sql, (*values, limit)):
        yield tuple(row[:width]), DailyFigures._make(min(int(value), MAX_USAGE) for value in row[width:])


def _where(conditions: Sequence[Condition]) -> tuple[str, list[int | str]]:
    values = [value for _, values in conditions for value in values]
    return " AND ".join(condition for condition, _ in conditions), values


def _conditions(query: DailyUsageQuery | HourlyUsageQuery) -> list[Condition]:
    """The conditions on scope and agent."""
    wanted = (("scope", query.scopes), ("agent", query.agents))
    return [(f"{column} IN ({marks(names)})", sorted(names)) for column, names in wanted if names]
