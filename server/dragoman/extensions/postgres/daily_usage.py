"""Daily usage (`core.daily_usage`): rows of figures by hour or day, scope, principal, agent and slot.

Each process adds to the rows of its own slot, so processes do not wait for each other; the sum of the slots counts.
After KEPT_HOURS the rows of an hour are merged into one of its day, in slot 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from asyncpg import Connection

from dragoman.core.daily_usage import (
    DAY_HOURS,
    DAY_KEY,
    FIGURE_COLUMNS,
    HOUR_COLUMNS,
    HOUR_KEY,
    TIME_COLUMNS,
    DailyCounter,
    DailyFigures,
    DailyKeys,
    DailyUsageQuery,
    DailyUsageRow,
    HourlyUsage,
    HourlyUsageQuery,
    HourlyUsageRow,
    TimesRow,
    added_columns,
)
from dragoman.core.limits.quotas import MAX_USAGE
from dragoman.extensions.postgres.rows import insert_statement, text_array

ADD_DAILY_USAGE: Final = insert_statement(
    "hourly_usage",
    "ittti" + "i" * (HOUR_COLUMNS.count(",") + 1),
    f"hour, scope, principal, agent, slot, {HOUR_COLUMNS}",
    f"ON CONFLICT ({HOUR_KEY}, slot) DO UPDATE SET {added_columns('hourly_usage.', 'least', TIME_COLUMNS)}",
)
_BY_DAY: Final = f"""(
    SELECT {DAY_KEY}, {FIGURE_COLUMNS} FROM daily_usage
    UNION ALL SELECT hour / {DAY_HOURS}, scope, principal, agent, {FIGURE_COLUMNS} FROM hourly_usage WHERE bucket = 0
) u"""
_SELECT_NAMES: Final = f"SELECT DISTINCT scope, principal, agent FROM {_BY_DAY} WHERE day = $1"
_SUMS: Final = ", ".join(
    f"least(coalesce(sum({name}), 0), {MAX_USAGE})::bigint AS {name}" for name in DailyFigures._fields
)
_ERASE_PRINCIPAL: Final = """
WITH moved AS (DELETE FROM {table} WHERE principal IN ($1, '') AND (scope = $2 OR $2 = ''){figures_only} RETURNING *)
INSERT INTO {table} ({time}, scope, principal, agent, slot, {figures}{more})
SELECT {time}, scope, '', agent, 0, {sums}{zeros} FROM moved GROUP BY {time}, scope, agent
"""
_HOURLY: Final = {"figures_only": " AND bucket = 0", "more": ", bucket, times, time_us", "zeros": ", 0, 0, 0"}
_MERGE_HOURS: Final = f"""
WITH moved AS (
    DELETE FROM hourly_usage WHERE ({HOUR_KEY}) IN (
        SELECT DISTINCT {HOUR_KEY} FROM hourly_usage WHERE hour < $1 ORDER BY {HOUR_KEY} LIMIT $2)
    RETURNING *)
INSERT INTO daily_usage ({DAY_KEY}, slot, {FIGURE_COLUMNS})
SELECT hour / {DAY_HOURS} AS day, scope, principal, agent, 0, {_SUMS} FROM moved WHERE bucket = 0 GROUP BY 1, 2, 3, 4
ON CONFLICT ({DAY_KEY}, slot) DO UPDATE SET {added_columns("daily_usage.", "least")}
"""
MERGE_STEP_KEYS: Final = 1000
"""Rows of hours that one commit merges, each of all slots."""


async def counter_rows(connection: Connection, keys: DailyKeys, counter: DailyCounter) -> list[tuple[int | str, ...]]:
    """The rows of one batch, for ADD_DAILY_USAGE without the slot."""
    for day in keys.missing(counter.days):
        keys.load(day, map(tuple, await connection.fetch(_SELECT_NAMES, day)))
    return counter.rows(keys)


async def erase_principal(connection: Connection, principal: str, scope: str) -> None:
    """Adds a principal's figures to those of erased principals. `scope`: only there; empty for everywhere.

    Only in an exclusive transaction: no batch may add to these rows meanwhile.
    """
    for table, time, more in (
        ("daily_usage", "day", dict.fromkeys(_HOURLY, "")), ("hourly_usage", "hour", _HOURLY)
    ):  # fmt: skip
        sql = _ERASE_PRINCIPAL.format(table=table, time=time, figures=FIGURE_COLUMNS, sums=_SUMS, **more)
        await connection.execute(sql, principal, scope)


async def merge_hours_before(connection: Connection, hour: int) -> bool:
    """Merges some rows of earlier hours, which no process adds to any more, into their days. False if none is left."""
    await connection.execute(_MERGE_HOURS, hour, MERGE_STEP_KEYS)
    return bool(await connection.fetchval("SELECT EXISTS (SELECT 1 FROM hourly_usage WHERE hour < $1)", hour))


async def delete_days_before(connection: Connection, day: int) -> int:
    """Deletes the figures of earlier days. Returns the number of rows."""
    status = await connection.execute("DELETE FROM daily_usage WHERE day < $1", day)
    return int(status.rpartition(" ")[2])


async def read(connection: Connection, query: DailyUsageQuery) -> list[DailyUsageRow]:
    """The sums of each group."""
    values: list[Any] = [query.first_day, query.last_day, query.limit]
    conditions = ["day BETWEEN $1 AND $2", *_conditions(query, values)]
    if query.principal:
        conditions.append(f"principal = {_argument(values, query.principal)}")
    groups = ", ".join(query.group_by)
    if query.after:
        marks = [_argument(values, value) for value in query.after]
        conditions.append(f"({groups}) > ({', '.join(marks)})")
    by_group = f"GROUP BY {groups} ORDER BY {groups}" if groups else ""
    rows: Sequence[Any] = await connection.fetch(
        f"SELECT {', '.join([*query.group_by, _SUMS])} FROM {_BY_DAY} WHERE {' AND '.join(conditions)}"
        f" {by_group} LIMIT $3",
        *values,
    )
    width = len(query.group_by)
    return [DailyUsageRow(tuple(row)[:width], DailyFigures._make(tuple(row)[width:])) for row in rows]


async def read_hours(connection: Connection, query: HourlyUsageQuery) -> HourlyUsage:
    values: list[Any] = [query.first_hour]
    where = " AND ".join(["hour >= $1", *_conditions(query, values)])
    rows = await connection.fetch(
        f"SELECT agent, hour, {_SUMS} FROM hourly_usage WHERE {where} AND bucket = 0"
        " GROUP BY agent, hour ORDER BY agent, hour",
        *values,
    )
    hours = [HourlyUsageRow(row[0], row[1], DailyFigures._make(tuple(row)[2:])) for row in rows]
    sums = "sum(times)::bigint, sum(time_us)::bigint"
    rows = await connection.fetch(
        f"SELECT agent, bucket, {sums} FROM hourly_usage WHERE {where} AND bucket <> 0 GROUP BY 1, 2 ORDER BY 1, 2",
        *values,
    )
    return HourlyUsage(hours, [TimesRow(*row) for row in rows])


def _conditions(query: DailyUsageQuery | HourlyUsageQuery, values: list[Any]) -> list[str]:
    """The conditions on scope and agent. Adds their arguments to `values`."""
    return [
        f"{column} = ANY ({_argument(values, text_array(sorted(names)))}::text[])"
        for column, names in (("scope", query.scopes), ("agent", query.agents))
        if names
    ]


def _argument(values: list[Any], value: Any) -> str:
    values.append(value)
    return f"${len(values)}"
