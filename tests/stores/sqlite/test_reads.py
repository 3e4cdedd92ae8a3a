"""Reads touch only what they return: rows, bytes and VM steps, counted by SQLite."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pytest

from dragoman.core.task import states
from dragoman.core.task.blob_references import LARGE_PART_BYTES
from dragoman.core.task.contents import ResponseBudget, unlimited_budget
from dragoman.core.task.cursors import TaskQuery
from dragoman.core.task.log import Appended
from dragoman.ports import Store
from dragoman.stores.sqlite import SqliteStore, reads
from dragoman.stores.sqlite.hot import figures
from dragoman.testing.fixtures import (
    AGENT,
    OWNER,
    Clock,
    by_runner,
    cancel,
    chunk,
    created,
    follow_up,
    new_ref,
    running,
    status,
)
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

pytestmark = pytest.mark.long

MANY = 10_000


@dataclass
class Cost:
    """The cost of a read: rows that SQLite returned, their bytes, and steps of its virtual machine."""

    rows: int = 0
    bytes: int = 0
    steps: int = 0


def cost(store: SqliteStore, look: Callable[[sqlite3.Connection], object]) -> Cost:
    """Runs a read on a counting connection."""
    connection, found = sqlite3.connect(store.path), Cost()

    def row(_: sqlite3.Cursor, values: tuple[Any, ...]) -> tuple[Any, ...]:
        found.rows += 1
        found.bytes += sum(len(value) for value in values if isinstance(value, bytes | str))
        return values

    def step() -> int:
        found.steps += 1
        return 0

    connection.row_factory = row
    look(connection)  # the first read also reads the schema
    found.rows = found.bytes = 0
    connection.set_progress_handler(step, 1)
    look(connection)
    connection.close()
    return found


async def in_turns(store: Store, count: int, make: Callable[[int], object]) -> None:
    """This many appends, some hundreds at a time."""
    for at in range(0, count, 500):
        await asyncio.gather(*(store.append(make(number)) for number in range(at, min(at + 500, count))))  # type: ignore[arg-type]  # Append


async def talked(store: Store, messages: int) -> Appended:
    claimed = await running(store)
    await in_turns(store, messages - 1, lambda number: follow_up(claimed.record.ref, f"{number:5}"))
    return claimed


async def streamed(store: Store, events: int) -> Appended:
    claimed = await running(store)
    await in_turns(store, events - 1, lambda number: by_runner(claimed, chunk("out", f"{number:5}")))
    return claimed


@pytest.mark.parametrize("history", [0, 1, 7])
async def test_a_short_history_reads_only_its_messages(store: SqliteStore, history: int) -> None:
    few, many = await talked(store, 10), await talked(store, MANY)
    small, large = (
        cost(store, partial(reads.read, ref=t.record.ref, history=history, artifacts=True, budget=unlimited_budget()))
        for t in (few, many)
    )
    assert large.rows == small.rows == 2 + history  # the owner, the task, the messages
    assert large.bytes <= small.bytes + 10
    assert large.steps <= small.steps * 1.1


async def test_a_task_without_its_artifacts_reads_none_of_them(store: SqliteStore) -> None:
    task = await streamed(store, 1000)
    found = cost(store, lambda connection: reads.read(connection, task.record.ref, 0, False, unlimited_budget()))
    assert found.rows == 2
    assert found.bytes < 1000


@pytest.mark.parametrize("before_the_end", [1, 3])
async def test_the_last_events_cost_the_same_in_a_long_log(store: SqliteStore, before_the_end: int) -> None:
    few, many = await streamed(store, 10), await streamed(store, MANY)
    small = cost(store, lambda c: reads.events(c, few.record.ref, 10 - before_the_end, 256))
    large = cost(store, lambda c: reads.events(c, many.record.ref, MANY - before_the_end, 256))
    assert large.rows == small.rows == 2 + before_the_end  # the owner, where to start, the events
    assert large.bytes <= small.bytes + 10 * before_the_end
    assert large.steps <= small.steps * 1.1


async def test_events_are_read_up_to_the_limit_and_no_further(store: SqliteStore) -> None:
    many = await streamed(store, MANY)
    first, middle = (
        cost(store, partial(reads.events, task=many.record.ref, after=after, limit=100)) for after in (0, MANY // 2)
    )
    assert first.rows == middle.rows == 2 + 100
    assert middle.steps <= first.steps * 1.1


async def test_the_oldest_event_is_one_index_lookup(store: SqliteStore) -> None:
    few, many = await streamed(store, 10), await streamed(store, MANY)
    small, large = (cost(store, partial(reads.oldest_sequence, task=t.record.ref)) for t in (few, many))
    assert large == small


async def finish(store: SqliteStore, tasks: int, **details: str) -> None:
    async def one() -> None:
        claimed = await store.append(created(new_ref(), claim=1, **details))  # type: ignore[arg-type]  # only texts
        await store.append(by_runner(claimed, chunk("out", "x" * 100), status(states.COMPLETED), end=True))

    for _ in range(0, tasks, 250):
        await asyncio.gather(*(one() for _ in range(250)))
    await store.writer.submit(figures.list_tasks)


@pytest.mark.parametrize("filters", [{}, {"state": states.COMPLETED}], ids=["all", "by state"])
async def test_a_page_costs_the_same_at_any_position(store: SqliteStore, filters: dict[str, int]) -> None:
    query = TaskQuery(OWNER, AGENT, page_size=20, history=0, **filters)  # type: ignore[arg-type]  # only numbers
    await finish(store, 250)
    fewest = cost(store, lambda connection: reads.page(connection, query, unlimited_budget()))
    await finish(store, 2750)
    first = cost(store, lambda connection: reads.page(connection, query, unlimited_budget()))
    page = await store.page(query)
    for _ in range(100):
        page = await store.page(TaskQuery(OWNER, AGENT, page_size=20, history=0, after=page.last_key, **filters))  # type: ignore[arg-type]
    assert page.last_key is not None
    far = TaskQuery(OWNER, AGENT, page_size=20, history=0, after=page.last_key, **filters)  # type: ignore[arg-type]
    last = cost(store, lambda connection: reads.page(connection, far, unlimited_budget()))
    assert fewest.rows == first.rows == last.rows == 2 + 21  # the owner, the total, the page and whether there is more
    assert first.bytes <= fewest.bytes * 1.1
    assert last.bytes <= fewest.bytes * 1.1
    assert max(first.steps, last.steps) <= fewest.steps * 1.3  # a cursor adds comparisons


@pytest.mark.parametrize("filters", [{}, {"context": "mine"}, {"updated_since": 1}], ids=["all", "context", "times"])
async def test_a_page_has_listed_and_new_tasks_in_their_order_without_a_commit(
    store: SqliteStore, clock: Clock, filters: dict[str, Any]
) -> None:
    old = [await store.append(created(new_ref(), context="mine")) for _ in range(2)]
    await store.writer.submit(figures.list_tasks)
    clock.now += 1
    new = await store.append(created(new_ref(), context="mine"))
    clock.now += 1
    await store.append(cancel(old[0].record.ref))
    commits = store.commit_counters.changes.count
    query = TaskQuery(OWNER, AGENT, page_size=2, **filters)
    first = await store.page(query)
    assert first.last_key is not None
    second = await store.page(replace(query, after=first.last_key))
    found = [pb.Task.FromString(task).id for task in (*first.tasks, *second.tasks)]
    assert found == [old[0].record.id, new.record.id, old[1].record.id]
    assert (first.total, second.total) == (3, 3)
    assert store.commit_counters.changes.count == commits


async def test_a_page_of_one_conversation_reads_no_other_rows(store: SqliteStore) -> None:
    await finish(store, 250, context="mine")
    query = TaskQuery(OWNER, AGENT, context="mine", page_size=20, history=0)
    alone = cost(store, lambda connection: reads.page(connection, query, unlimited_budget()))
    await finish(store, 2000, context="other")
    among = cost(store, lambda connection: reads.page(connection, query, unlimited_budget()))
    assert among.rows == alone.rows
    assert among.steps <= alone.steps * 1.1


@pytest.mark.parametrize("statement", ["ROWS", "ROW_SIZES", "SMALL_ROWS", "SUM_SIZES"])
def test_rows_of_an_artifact_are_read_one_by_one_and_their_contents_only_if_asked_for(
    store: SqliteStore, statement: str
) -> None:
    """The end of a range would be found by comparing keys, for which SQLite reads each row as a whole."""
    connection = sqlite3.connect(store.path)
    sql = getattr(reads, statement)
    codes = {row[1] for row in connection.execute(f"EXPLAIN {sql}", (1,) * sql.count("?"))}
    assert "SeekGE" in codes
    assert not codes & {"IdxGE", "IdxGT", "IdxLE", "IdxLT", "SorterOpen"}
    connection.close()


async def test_a_text_that_becomes_a_link_is_not_read(store: SqliteStore) -> None:
    claimed = await running(store)
    await in_turns(store, 200, lambda number: by_runner(claimed, chunk("out", "x" * 10_000)))
    budget = ResponseBudget(0, lambda name, filename, media_type: "link")
    found = cost(store, lambda connection: reads.read(connection, claimed.record.ref, None, True, budget))
    assert found.bytes < LARGE_PART_BYTES + 30_000  # read before the text is known to be large
    assert found.rows < 40


async def test_one_large_row_is_not_read_to_find_that_it_is_large(store: SqliteStore) -> None:
    claimed = await running(store)
    await store.append(by_runner(claimed, chunk("out", "x" * (LARGE_PART_BYTES + 1))))
    budget = ResponseBudget(0, lambda name, filename, media_type: "link")
    found = cost(store, lambda connection: reads.read(connection, claimed.record.ref, None, True, budget))
    assert found.bytes < 2000
