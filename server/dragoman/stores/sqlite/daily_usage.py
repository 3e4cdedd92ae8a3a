"""Daily usage (`core.daily_usage`): rows of figures by day, scope, principal and agent."""

from __future__ import annotations

import sqlite3
from typing import Final

from dragoman.core.daily_usage import (
    FIGURE_COLUMNS,
    KEY_COLUMNS,
    DailyCounter,
    DailyFigures,
    DailyKeys,
    DailyUsageQuery,
    DailyUsageRow,
    added_columns,
)
from dragoman.core.limits.quotas import MAX_USAGE
from dragoman.stores.sqlite.hot.rows import SqliteBulkStatement

_ADD: Final = f"ON CONFLICT ({KEY_COLUMNS}) DO UPDATE SET {added_columns('', 'min')}"
_ADD_ROWS: Final = SqliteBulkStatement(
    f"INSERT INTO daily_usage ({KEY_COLUMNS}, {FIGURE_COLUMNS})", 4 + len(DailyFigures._fields), _ADD
)
_SELECT_KEYS: Final = f"SELECT {KEY_COLUMNS} FROM daily_usage WHERE day = ?"
_OF_PRINCIPAL: Final = "principal = ?1 AND (?2 = '' OR scope = ?2)"
_MERGE_ERASED: Final = f"""
INSERT INTO daily_usage ({KEY_COLUMNS}, {FIGURE_COLUMNS})
SELECT day, scope, '', agent, {FIGURE_COLUMNS} FROM daily_usage WHERE {_OF_PRINCIPAL}
{_ADD}
"""
_DELETE_ERASED: Final = f"DELETE FROM daily_usage WHERE {_OF_PRINCIPAL}"


def add_counts(connection: sqlite3.Connection, cursor: sqlite3.Cursor, keys: DailyKeys, counter: DailyCounter) -> None:
    """Adds the figures of one batch to their rows. `cursor`: of the connection."""
    for day in keys.missing(counter.days):
        keys.load(day, connection.execute(_SELECT_KEYS, (day,)))
    if rows := counter.take(keys):
        _ADD_ROWS.run(cursor, rows)


def erase_principal(connection: sqlite3.Connection, principal: str, scope: str) -> None:
    """Adds a principal's figures to those of erased principals. `scope`: only there; empty for everywhere."""
    connection.execute(_MERGE_ERASED, (principal, scope))
    connection.execute(_DELETE_ERASED, (principal, scope))


def has_days_before(connection: sqlite3.Connection, day: int) -> bool:
    """Whether there are figures of earlier days."""
    return connection.execute("SELECT 1 FROM daily_usage WHERE day < ? LIMIT 1", (day,)).fetchone() is not None


def delete_days_before(connection: sqlite3.Connection, day: int) -> int:
    """Deletes the figures of earlier days. Returns the number of rows."""
    return connection.execute("DELETE FROM daily_usage WHERE day < ?", (day,)).rowcount


def read(connection: sqlite3.Connection, query: DailyUsageQuery) -> list[DailyUsageRow]:
    """The sums of each group. By `total`, because `sum` fails beyond 64 bits: they are exact up to 2**53."""
    conditions, values = ["day BETWEEN ? AND ?"], list[int | str]((query.first_day, query.last_day))
    if query.principal:
        conditions.append("principal = ?")
        values.append(query.principal)
    for column, names in (("scope", query.scopes), ("agent", query.agents)):
        if names:
            conditions.append(f"{column} IN ({', '.join('?' * len(names))})")
            values += sorted(names)
    groups = ", ".join(query.group_by)
    if query.after:
        conditions.append(f"({groups}) > ({', '.join('?' * len(query.after))})")
        values += query.after
    sums = [f"total({name})" for name in DailyFigures._fields]
    by_group = f"GROUP BY {groups} ORDER BY {groups}" if groups else ""
    rows = connection.execute(
        f"SELECT {', '.join([*query.group_by, *sums])} FROM daily_usage WHERE {' AND '.join(conditions)}"
        f" {by_group} LIMIT ?",
        (*values, query.limit),
    )
    width = len(query.group_by)
    return [
        DailyUsageRow(tuple(row[:width]), DailyFigures._make(min(int(value), MAX_USAGE) for value in row[width:]))
        for row in rows
    ]
