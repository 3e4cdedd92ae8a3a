"""Daily usage of several processes: each adds to the rows of its slot, and old hours are merged."""

from __future__ import annotations

from typing import Final

import pytest
from tests.extensions.postgres.two_stores import Stores, all_of, reasons

from dragoman.core.daily_usage import (
    KEPT_HOURS,
    DailyFigures,
    DailyUsageQuery,
    DailyUsageRow,
    HourlyUsageQuery,
    HourlyUsageRow,
    TimesRow,
    hour_of,
)
from dragoman.core.task.maintenance import TaskSelection
from dragoman.extensions.postgres.store import PostgresStore
from dragoman.testing.fixtures import AGENT, Clock, created, new_ref

pytestmark = pytest.mark.long

HOUR: Final = 3600
EVERYTHING: Final = DailyUsageQuery(0, 10**6, ("principal",))


async def row_count(store: PostgresStore) -> int:
    """The number of stored rows: of one key and hour, a row for each slot; and of one day."""
    sql = "SELECT (SELECT count(*) FROM hourly_usage) + (SELECT count(*) FROM daily_usage)"
    found: int = await store._database.read(lambda connection: connection.fetchval(sql))
    return found


async def test_slots_are_summed_and_merged_when_no_process_adds_to_them(stores: Stores, clock: Clock) -> None:
    first, second = stores
    first._writer.counter_slot, second._writer.counter_slot = 3, 4
    assert set(reasons(await all_of(stores, [created(new_ref(), claim=7) for _ in range(60)]))) == {""}
    sums = [DailyUsageRow(("anonymous",), DailyFigures(begun=60, turns=60))]
    assert await first.daily_usage(EVERYTHING) == sums
    hour = hour_of(clock())
    usage = await second.hourly_usage(HourlyUsageQuery(0))
    assert usage.hours == [HourlyUsageRow(AGENT, hour, sums[0].figures)]
    assert usage.times == [TimesRow(AGENT, -1, 60, 0)]
    clock.forward((KEPT_HOURS - 1) * HOUR)
    await first.compact()
    assert await row_count(first) == 4  # of each slot: figures, and times in the queue
    clock.forward(HOUR)
    await first.compact()
    assert await row_count(first) == 1
    assert await second.daily_usage(EVERYTHING) == sums


async def test_erasing_a_principal_covers_the_rows_of_all_slots(stores: Stores) -> None:
    stores[0]._writer.counter_slot, stores[1]._writer.counter_slot = 0, 4
    await all_of(stores, [created(new_ref()) for _ in range(10)])
    await stores[1].erasures.erase(TaskSelection(principal="anonymous"))
    assert await stores[0].daily_usage(EVERYTHING) == [DailyUsageRow(("",), DailyFigures(begun=10))]
    assert await row_count(stores[0]) == 1
