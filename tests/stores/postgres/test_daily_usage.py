"""Daily usage of several processes: each adds to the rows of its slot, and old slots are merged."""

from __future__ import annotations

from typing import Final

from tests.stores.postgres.two_stores import Stores, all_of, reasons

from dragoman.core.daily_usage import DailyFigures, DailyUsageQuery, DailyUsageRow
from dragoman.core.task.maintenance import TaskSelection
from dragoman.stores.postgres import PostgresStore
from dragoman.testing.fixtures import Clock, created, new_ref

DAY: Final = 86_400
EVERYTHING: Final = DailyUsageQuery(0, 10**6, ("principal",))


async def row_count(store: PostgresStore) -> int:
    """The number of stored rows: of one key, a row for each slot."""
    found: int = await store._database.read(lambda connection: connection.fetchval("SELECT count(*) FROM daily_usage"))
    return found


async def test_slots_are_summed_and_merged_when_no_process_adds_to_them(stores: Stores, clock: Clock) -> None:
    first, second = stores
    first._writer.counter_slot, second._writer.counter_slot = 3, 4
    assert set(reasons(await all_of(stores, [created(new_ref(), claim=7) for _ in range(60)]))) == {""}
    sums = [DailyUsageRow(("anonymous",), DailyFigures(begun=60, turns=60))]
    assert await first.daily_usage(EVERYTHING) == sums
    await first.compact()  # another process may still add to the rows of today and of yesterday
    clock.forward(DAY)
    await first.compact()
    assert await row_count(first) == 2
    clock.forward(DAY)
    await first.compact()
    assert await row_count(first) == 1
    assert await second.daily_usage(EVERYTHING) == sums


async def test_erasing_a_principal_covers_the_rows_of_all_slots(stores: Stores) -> None:
    stores[0]._writer.counter_slot, stores[1]._writer.counter_slot = 0, 4
    await all_of(stores, [created(new_ref()) for _ in range(10)])
    await stores[1].erase(TaskSelection(principal="anonymous"))
    assert await stores[0].daily_usage(EVERYTHING) == [DailyUsageRow(("",), DailyFigures(begun=10))]
    assert await row_count(stores[0]) == 1
