"""The write coalescer: batches of an idle, a busy and a full loop."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

from dragoman.stores.sqlite import open_store
from dragoman.stores.sqlite.hot import SqliteTimings
from dragoman.stores.sqlite.hot.writer import IDLE_ITERATIONS, WriteCoalescer
from dragoman.testing.fixtures import (
    created,
    new_ref,
)

ALWAYS_IDLE = SqliteTimings(idle_iteration=1000.0)
"""On any machine each iteration of the loop counts as idle."""

NEVER_IDLE = SqliteTimings(idle_iteration=0.0, max_hold=1000.0)


async def run_loop_turns(number: int) -> None:
    """Runs this many loop iterations."""
    for _ in range(number):
        await asyncio.sleep(0)


async def test_changes_of_one_loop_iteration_are_handed_over_together() -> None:
    handed: list[list[int]] = []
    gathered = WriteCoalescer(handed.append, 100, ALWAYS_IDLE)
    for number in range(3):
        gathered.add(number)
    assert handed == []
    await run_loop_turns(IDLE_ITERATIONS + 1)
    assert handed == [[0, 1, 2]]
    gathered.add(3)
    await run_loop_turns(IDLE_ITERATIONS + 1)
    assert handed == [[0, 1, 2], [3]]


async def test_a_busy_loop_gathers_changes_for_a_limited_time() -> None:
    now = 100.0
    handed: list[list[int]] = []
    gathered = WriteCoalescer(handed.append, 100, SqliteTimings(idle_iteration=0.0, max_hold=0.005), lambda: now)
    for number in range(4):
        gathered.add(number)
        await run_loop_turns(3)
    assert handed == []
    now += 0.005
    await run_loop_turns(1)
    assert handed == [[0, 1, 2, 3]]


async def test_a_full_batch_is_handed_over_at_once() -> None:
    handed: list[list[int]] = []
    gathered = WriteCoalescer(handed.append, 3, NEVER_IDLE)
    for number in range(3):
        gathered.add(number)
    await run_loop_turns(1)
    assert handed == [[0, 1, 2]]


async def test_flushed_changes_are_handed_over_once() -> None:
    handed: list[list[int]] = []
    gathered = WriteCoalescer(handed.append, 100, ALWAYS_IDLE)
    gathered.flush()
    gathered.add(1)
    gathered.flush()
    gathered.add(2)
    await run_loop_turns(IDLE_ITERATIONS + 1)
    assert handed == [[1], [2]]


def rows_of(path: Path, table: str) -> int:
    with sqlite3.connect(path) as connection:
        count: int = connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
    connection.close()
    return count


async def test_appends_before_the_close_are_committed(tmp_path: Path) -> None:
    store = open_store(tmp_path / "tasks.db", timings=NEVER_IDLE)
    changes = [store.append(created(new_ref())) for _ in range(3)]
    await store.close()
    assert len(await asyncio.gather(*changes)) == rows_of(tmp_path / "tasks.db", "tasks") == 3
