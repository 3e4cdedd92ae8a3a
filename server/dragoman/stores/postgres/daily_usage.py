"""Daily usage (`core.daily_usage`): rows of figures by day, scope, principal, agent and slot.

Each process adds to the rows of its own slot, so processes do not wait for each other; the sum of the slots counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from asyncpg import Connection

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
from dragoman.stores.postgres.rows import insert_statement, text_array

_ADD: Final = f"ON CONFLICT ({KEY_COLUMNS}, slot) DO UPDATE SET {added_columns('daily_usage.', 'least')}"
ADD_DAILY_USAGE: Final = insert_statement(
    "daily_usage", "ittti" + "i" * len(DailyFigures._fields), f"{KEY_COLUMNS}, slot, {FIGURE_COLUMNS}", _ADD
)
_SELECT_KEYS: Final = f"SELECT DISTINCT {KEY_COLUMNS} FROM daily_usage WHERE day = $1"
_SUMS: Final = ", ".join(
    f"least(coalesce(sum({name}), 0), {MAX_USAGE})::bigint AS {name}" for name in DailyFigures._fields
)
_MERGE: Final = """
WITH moved AS (DELETE FROM daily_usage WHERE {condition} RETURNING *)
INSERT INTO daily_usage ({key}, slot, {figures})
SELECT {merged_key}, 0, {sums} FROM moved GROUP BY {groups}
"""
_ERASE_PRINCIPAL: Final = _MERGE.format(
    condition="principal IN ($1, '') AND (scope = $2 OR $2 = '')",
    key=KEY_COLUMNS,
    merged_key="day, scope, '', agent",
    figures=FIGURE_COLUMNS,
    sums=_SUMS,
    groups="day, scope, agent",
)
_MERGE_SLOTS: Final = _MERGE.format(
    condition="""(day, scope, principal, agent) IN (
        SELECT day, scope, principal, agent FROM daily_usage WHERE day < $1
        GROUP BY day, scope, principal, agent HAVING count(*) > 1 ORDER BY 1, 2, 3, 4 LIMIT $2)""",
    key=KEY_COLUMNS,
    merged_key=KEY_COLUMNS,
    figures=FIGURE_COLUMNS,
    sums=_SUMS,
    groups=KEY_COLUMNS,
)
MERGE_STEP_KEYS: Final = 1000
"""Keys whose slots one commit merges."""


async def counter_rows(connection: Connection, keys: DailyKeys, counter: DailyCounter) -> list[tuple[int | str, ...]]:
    """The rows of one batch, for ADD_DAILY_USAGE without the slot."""
    for day in keys.missing(counter.days):
        keys.load(day, map(tuple, await connection.fetch(_SELECT_KEYS, day)))
    return counter.take(keys)


async def erase_principal(connection: Connection, principal: str, scope: str) -> None:
    """Adds a principal's figures to those of erased principals. `scope`: only there; empty for everywhere.

    Only in an exclusive transaction: no batch may add to these rows meanwhile.
    """
    await connection.execute(_ERASE_PRINCIPAL, principal, scope)


async def delete_days_before(connection: Connection, day: int) -> int:
    """Deletes the figures of earlier days. Returns the number of rows."""
    status = await connection.execute("DELETE FROM daily_usage WHERE day < $1", day)
    return int(status.rpartition(" ")[2])


async def merge_slots_before(connection: Connection, day: int) -> bool:
    """Merges the slots of some earlier rows, which no process adds to any more. False when none is left."""
    status: str = await connection.execute(_MERGE_SLOTS, day, MERGE_STEP_KEYS)
    return status != "INSERT 0 0"


async def read(connection: Connection, query: DailyUsageQuery) -> list[DailyUsageRow]:
    """The sums of each group."""
    values: list[Any] = [query.first_day, query.last_day, query.limit]
    conditions = ["day BETWEEN $1 AND $2"]

    def argument(value: Any) -> str:
        values.append(value)
        return f"${len(values)}"

    if query.principal:
        conditions.append(f"principal = {argument(query.principal)}")
    for column, names in (("scope", query.scopes), ("agent", query.agents)):
        if names:
            conditions.append(f"{column} = ANY ({argument(text_array(sorted(names)))}::text[])")
    groups = ", ".join(query.group_by)
    if query.after:
        conditions.append(f"({groups}) > ({', '.join(map(argument, query.after))})")
    by_group = f"GROUP BY {groups} ORDER BY {groups}" if groups else ""
    rows: Sequence[Any] = await connection.fetch(
        f"SELECT {', '.join([*query.group_by, _SUMS])} FROM daily_usage WHERE {' AND '.join(conditions)}"
        f" {by_group} LIMIT $3",
        *values,
    )
    width = len(query.group_by)
    return [DailyUsageRow(tuple(row)[:width], DailyFigures._make(tuple(row)[width:])) for row in rows]
