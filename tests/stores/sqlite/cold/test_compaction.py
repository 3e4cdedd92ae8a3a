"""Compaction in SQLite: the contract, the limits of a step, and that no append waits for it."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.core.task import states
from dragoman.core.task.log import Appended
from dragoman.core.task.maintenance import MAX_MERGED_ROW_BYTES, group_rows
from dragoman.ports import CompactionResult
from dragoman.stores.shared import compaction
from dragoman.stores.sqlite import SqliteStore, StorageOptions, open_store
from dragoman.stores.sqlite.hot import SqliteTimings
from dragoman.stores.sqlite.queries import run_query
from dragoman.testing.contracts.store_size import StoreSize
from dragoman.testing.fixtures import (
    SESSION,
    Clock,
    artifact,
    by_runner,
    chunk,
    created,
    follow_up,
    new_ref,
    running,
    status,
)

pytestmark = pytest.mark.long


class TestSize(StoreSize):
    pass


async def grown(store: SqliteStore, rows: int, text: str = "x") -> Appended:
    """A running task whose artifact has this many rows."""
    claimed = await running(store)
    appended = await asyncio.gather(*(store.append(by_runner(claimed, chunk("out", text))) for _ in range(rows)))
    return appended[-1]


def count(store: SqliteStore, table: str) -> int:
    with sqlite3.connect(store.path) as connection:
        found: int = connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
    connection.close()
    return found


# Merging -----------------------------------------------------------------------------------------------------------


def test_neighbors_of_one_kind_are_grouped_up_to_a_size() -> None:
    small, large = 10, MAX_MERGED_ROW_BYTES
    rows = [(1, 1, small), (2, 1, small), (5, 0, small), (6, 1, large), (7, 1, small), (9, 1, MAX_MERGED_ROW_BYTES - 9)]
    assert [(run.first, run.last, run.rows) for run in group_rows(rows)] == [
        (1, 2, 2), (5, 5, 1), (6, 6, 1), (7, 7, 1), (9, 9, 1),
    ]  # fmt: skip


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, MAX_MERGED_ROW_BYTES + 1))))
def test_groups_cover_every_row_once_and_in_order(shapes: list[tuple[int, int]]) -> None:
    rows = [(number, kind, size) for number, (kind, size) in enumerate(shapes)]
    at = 0
    for run in group_rows(rows):
        held = rows[at : at + run.rows]
        assert (run.first, run.last) == (held[0][0], held[-1][0])
        assert {kind for _, kind, _ in held} == {run.kind}
        assert run.bytes == sum(size for _, _, size in held)
        assert run.rows == 1 or run.bytes <= MAX_MERGED_ROW_BYTES
        at += run.rows
    assert at == len(rows)


async def test_ten_thousand_chunks_become_a_few_rows(store: SqliteStore) -> None:
    await grown(store, 10_000)
    tidied = await store.compact()
    assert tidied.rows == 10_000 - count(store, "chunks")
    assert count(store, "chunks") < 3
    assert count(store, "artifact_growth") == 0


async def test_few_rows_are_not_compacted_until_the_task_ends(store: SqliteStore) -> None:
    claimed = await grown(store, 200)
    assert await store.compact() == CompactionResult()
    await store.append(by_runner(claimed, status(states.COMPLETED), end=True))
    assert (await store.compact()).rows > 100


async def test_each_byte_is_rewritten_a_few_times_at_most(store: SqliteStore) -> None:
    rewritten = 0

    def trace(sql: str) -> None:
        nonlocal rewritten
        rewritten += len(sql) if sql.startswith("INSERT INTO chunks") else 0

    text = "x" * 100
    claimed = await running(store)
    for _ in range(20):
        await asyncio.gather(*(store.append(by_runner(claimed, chunk("out", text))) for _ in range(500)))
        store.writer.connection.set_trace_callback(trace)
        await store.compact()
        store.writer.connection.set_trace_callback(None)
    assert rewritten < 4 * 2 * 100 * 10_000  # hex: two characters for each byte


async def test_a_retention_of_zero_never_truncates(tmp_path: Path, clock: Clock) -> None:
    store = open_store(
        tmp_path / "never.db",
        clock=clock,
        sizes=StorageOptions(compact_after_rows=0, truncate_log_after=0),
        synchronous="normal",
    )
    claimed = await grown(store, 1000)
    await store.append(by_runner(claimed, status(states.COMPLETED), end=True))
    clock.now += 10**10
    assert await store.compact() == CompactionResult()
    await store.close()


async def test_an_erased_task_is_removed_from_the_compaction_queue(store: SqliteStore, clock: Clock) -> None:
    claimed = await grown(store, 300)
    await store.append(by_runner(claimed, status(states.COMPLETED), end=True))

    def erase(connection: sqlite3.Connection) -> None:
        for table in ("tasks", "log", "messages", "artifacts", "chunks"):
            connection.execute(f"DELETE FROM {table}")

    await store.writer.submit(erase)
    clock.now += 10**9
    assert await store.compact() == CompactionResult()
    assert count(store, "artifact_growth") == count(store, "long_logs") == 0


@pytest.mark.parametrize("together", [1, 7, 100])
async def test_a_truncated_log_keeps_its_last_events(store: SqliteStore, clock: Clock, together: int) -> None:
    claimed = await running(store)
    for _ in range(600 // together):
        await store.append(by_runner(claimed, *[chunk("out", "x") for _ in range(together)]))
    done = await store.append(by_runner(claimed, status(states.COMPLETED), end=True))
    clock.now += 10**9
    await store.compact()
    kept = done.record.last_sequence - await store.oldest_sequence(done.record.ref) + 1
    assert compaction.MIN_KEPT_EVENTS <= kept < compaction.MIN_KEPT_EVENTS + together


async def test_compaction_results_are_logged(store: SqliteStore, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "dragoman.store")
    await grown(store, 300)
    await store.compact()
    await store.compact()
    assert [record.message for record in caplog.records] == ["compacted the store: 299 rows merged"]


# Steps ---------------------------------------------------------------------------------------------------------------


async def test_a_compaction_step_is_limited_in_rows_and_bytes(store: SqliteStore) -> None:
    claimed = await running(store)
    for name, size in (("many", 1), ("larger", 5000)):
        changes = (by_runner(claimed, chunk(name, "x" * size)) for _ in range(2000))
        await asyncio.gather(*map(store.append, changes))
    for number in range(300):
        store.append(by_runner(claimed, artifact(f"single {number}", "x"), artifact(f"single {number}", append=True)))
    await store.append(by_runner(claimed, status(states.WORKING)))
    before = count(store, "chunks")
    connection = store.writer.connection
    place = await store.writer.submit(lambda connection: run_query(connection, compaction.find_grown_task(1)))
    steps = saved = 0
    while place is not None:
        changed = connection.total_changes
        place, less = await store.writer.submit(partial(_compact, store, place))
        assert connection.total_changes - changed <= 2 * compaction.COMPACTION_STEP_ROWS + 10
        steps, saved = steps + 1, saved + less
    assert steps > 10
    assert saved == before - count(store, "chunks")


def _compact(
    store: SqliteStore, place: compaction.CompactionCursor, connection: sqlite3.Connection
) -> tuple[compaction.CompactionCursor | None, int]:
    return run_query(connection, store._compactor.compact_step(place))


async def test_appends_do_not_wait_for_low_priority_writes(store: SqliteStore) -> None:
    order: list[str] = []
    held = threading.Event()
    blocked = store.writer.submit(lambda connection: held.wait(60))
    low = [store.writer.submit(lambda connection: order.append("low"), low_priority=True) for _ in range(3)]
    appends = [store.writer.submit(lambda connection: order.append("append")) for _ in range(5)]
    held.set()
    await asyncio.gather(blocked, *low, *appends)
    assert order == ["append"] * 5 + ["low"] * 3


async def test_low_priority_writes_run_under_continuous_load(tmp_path: Path) -> None:
    store = open_store(tmp_path / "t.db", timings=SqliteTimings(low_priority_interval=4, max_batch=1))
    order: list[str] = []
    held = threading.Event()
    blocked = store.writer.submit(lambda connection: held.wait(60))
    store.writer.flush()
    low = store.writer.submit(lambda connection: order.append("low"), low_priority=True)
    appends = []
    for _ in range(30):
        appends.append(store.writer.submit(lambda connection: order.append("append")))
        store.writer.flush()
    held.set()
    await asyncio.gather(blocked, low, *appends)
    assert 0 < order.index("low") < 10
    await store.close()


async def compact_often(folder: Path, steps: list[object], ends: bool) -> None:
    clock = Clock()
    stores = [
        open_store(folder / name, clock=clock, synchronous="normal", sizes=sizes)
        for name, sizes in (
            ("folded.db", StorageOptions(compact_after_rows=1, truncate_log_after=1)),
            ("whole.db", StorageOptions(0, 0)),
        )
    ]
    claims = [
        await store.append(created(ref, claim=SESSION)) for store, ref in zip(stores, [new_ref()] * 2, strict=True)
    ]
    ref, last = claims[0].record.ref, claims[0]
    for number, step in enumerate(steps):
        for store, claimed in zip(stores, claims, strict=True):
            if isinstance(step, list):
                last = await store.append(by_runner(claimed, *step))
            else:
                last = await store.append(follow_up(ref, f"u{number}"))
        await stores[0].compact()
        await same(stores, last)
    if ends:
        for store, claimed in zip(stores, claims, strict=True):
            last = await store.append(by_runner(claimed, status(states.FAILED), end=True))
        clock.now += 10_000
        await stores[0].compact()
        await same(stores, last)
    for store in stores:
        await store.close()


async def same(stores: list[SqliteStore], last: Appended) -> None:
    """Both stores respond alike, and the compacted one has the end of the log, or all of it for a running task."""
    ref = last.record.ref
    answers = [await store.read(ref) for store in stores]
    assert answers[0] == answers[1]
    for history in (0, 1):
        assert await stores[0].read(ref, history=history) == await stores[1].read(ref, history=history)
    oldest = await stores[0].oldest_sequence(ref)
    assert oldest == 1 or (last.record.state in states.TERMINAL and oldest <= last.record.last_sequence)
    events = [await store.events(ref, oldest - 1, 10_000) for store in stores]
    assert events[0] == events[1]
