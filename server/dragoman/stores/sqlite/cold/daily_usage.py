"""Daily usage (`core.daily_usage`): rows of figures by hour or day, scope, principal and agent.

A batch adds to the rows of its hour. After KEPT_HOURS these are merged into those of their day.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Final

from dragoman.core.daily_usage import (
    DAY_HOURS,
    DAY_KEY,
    FIGURE_COLUMNS,
    HOUR_KEY,
    DailyCounter,
    DailyFigures,
    DailyKeys,
    DailyUsageQuery,
    DailyUsageRow,
    HourlyUsageQuery,
    HourlyUsageRow,
    added_columns,
)
from dragoman.core.limits.quotas import MAX_USAGE
from dragoman.stores.sqlite.hot.rows import SqliteBulkStatement

_ADDED: Final = f"DO UPDATE SET {added_columns('', 'min')}"
_ADD_ROWS: Final = SqliteBulkStatement(
    f"INSERT INTO hourly_usage ({HOUR_KEY}, {FIGURE_COLUMNS})",
    4 + len(DailyFigures._fields),
    f"ON CONFLICT ({HOUR_KEY}) {_ADDED}",
)
_BY_DAY: Final = f"""(
    SELECT {DAY_KEY}, {FIGURE_COLUMNS} FROM daily_usage
    UNION ALL SELECT hour / {DAY_HOURS}, scope, principal, agent, {FIGURE_COLUMNS} FROM hourly_usage)"""
_SELECT_NAMES: Final = f"SELECT DISTINCT scope, principal, agent FROM {_BY_DAY} WHERE day = ?"
_SUMS: Final = ", ".join(f"total({name})" for name in DailyFigures._fields)
"""`sum` fails beyond 64 bits. These are exact up to 2**53."""
_OF_PRINCIPAL: Final = "principal = ?1 AND (?2 = '' OR scope = ?2)"
_ERASE_PRINCIPAL: Final = tuple(
    statement
    for table, time in (("daily_usage", "day"), ("hourly_usage", "hour"))
    for statement in (
        f"INSERT INTO {table} ({time}, scope, principal, agent, {FIGURE_COLUMNS})"
        f" SELECT {time}, scope, '', agent, {FIGURE_COLUMNS} FROM {table} WHERE {_OF_PRINCIPAL}"
        f" ON CONFLICT ({time}, scope, principal, agent) {_ADDED}",
        f"DELETE FROM {table} WHERE {_OF_PRINCIPAL}",
    )
)
_MERGE_HOUR: Final = (
    f"INSERT INTO daily_usage ({DAY_KEY}, {FIGURE_COLUMNS})"
    f" SELECT hour / {DAY_HOURS}, scope, principal, agent, {FIGURE_COLUMNS} FROM hourly_usage WHERE hour = ?"
    f" ON CONFLICT ({DAY_KEY}) {_ADDED}",
    "DELETE FROM hourly_usage WHERE hour = ?",
)


def add_counts(connection: sqlite3.Connection, cursor: sqlite3.Cursor, keys: DailyKeys, counter: DailyCounter) -> None:
    """Adds the figures of one batch to their rows. `cursor`: of the connection."""
    for day in keys.missing(counter.days):
        keys.load(day, connection.execute(_SELECT_NAMES, (day,)))
    if rows := counter.rows(keys):
        _ADD_ROWS.run(cursor, rows)


def erase_principal(connection: sqlite3.Connection, principal: str, scope: str) -> None:
    """Adds a principal's figures to those of erased principals. `scope`: only there; empty for everywhere."""
    for statement in _ERASE_PRINCIPAL:
        connection.execute(statement, (principal, scope))


def oldest_hour(connection: sqlite3.Connection) -> int | None:
    """The first hour that is not merged into its day; None without any."""
    hour: int | None = connection.execute("SELECT min(hour) FROM hourly_usage").fetchone()[0]
    return hour


def merge_hour(connection: sqlite3.Connection, hour: int) -> None:
    """Adds the figures of an hour to those of its day, and deletes its rows."""
    for statement in _MERGE_HOUR:
        connection.execute(statement, (hour,))


def has_days_before(connection: sqlite3.Connection, day: int) -> bool:
    """Whether there are figures of earlier days."""
    return connection.execute("SELECT 1 FROM daily_usage WHERE day < ? LIMIT 1", (day,)).fetchone() is not None


def delete_days_before(connection: sqlite3.Connection, day: int) -> int:
    """Deletes the figures of earlier days. Returns the number of rows."""
    return connection.execute("DELETE FROM daily_usage WHERE day < ?", (day,)).rowcount


def read(connection: sqlite3.Connection, query: DailyUsageQuery) -> list[DailyUsageRow]:
    """The sums of each group."""
    conditions, values = _conditions(query)
    conditions.append("day BETWEEN ? AND ?")
    values += query.first_day, query.last_day
    if query.principal:
        conditions.append("principal = ?")
        values.append(query.principal)
    groups = ", ".join(query.group_by)
    if query.after:
        conditions.append(f"({groups}) > ({', '.join('?' * len(query.after))})")
        values += query.after
    by_group = f"GROUP BY {groups} ORDER BY {groups}" if groups else ""
    rows = connection.execute(
        f"SELECT {', '.join([*query.group_by, _SUMS])} FROM {_BY_DAY} WHERE {' AND '.join(conditions)}"
        f" {by_group} LIMIT ?",
        (*values, query.limit),
    )
    width = len(query.group_by)
    return [DailyUsageRow(tuple(row[:width]), _figures(row[width:])) for row in rows]


def read_hours(connection: sqlite3.Connection, query: HourlyUsageQuery) -> list[HourlyUsageRow]:
    """The sums of each agent and hour, in this order."""
    conditions, values = _conditions(query)
    conditions.append("hour >= ?")
    rows = connection.execute(
        f"SELECT agent, hour, {_SUMS} FROM hourly_usage WHERE {' AND '.join(conditions)}"
        " GROUP BY agent, hour ORDER BY agent, hour",
        (*values, query.first_hour),
    )
    return [HourlyUsageRow(agent, hour, _figures(sums)) for agent, hour, *sums in rows]


def _conditions(query: DailyUsageQuery | HourlyUsageQuery) -> tuple[list[str], list[int | str]]:
    """The conditions on scope and agent."""
    conditions, values = list[str](), list[int | str]()
    for column, names in (("scope", query.scopes), ("agent", query.agents)):
        if names:
            conditions.append(f"{column} IN ({', '.join('?' * len(names))})")
            values += sorted(names)
    return conditions, values


def _figures(sums: Sequence[float]) -> DailyFigures:
    return DailyFigures._make(min(int(value), MAX_USAGE) for value in sums)
