"""Checkpoints keep the write-ahead log short."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dragoman.stores.sqlite import SqliteStore, open_store
from dragoman.stores.sqlite.hot import SqliteTimings
from dragoman.testing.fixtures import (
    Clock,
    created,
    new_ref,
    running,
)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = open_store(tmp_path / "tasks.db", clock=Clock())
    yield store
    await store.close()


async def test_the_write_ahead_log_stays_bounded(store: SqliteStore, tmp_path: Path) -> None:
    for _ in range(30):
        await asyncio.gather(*(store.append(created(new_ref(), text="x" * 2000)) for _ in range(50)))
    wal = tmp_path / "tasks.db-wal"
    assert wal.stat().st_size < 64 * 1024 * 1024


async def test_the_write_ahead_log_restarts_in_its_file(tmp_path: Path) -> None:
    timings = SqliteTimings(checkpoint_interval=16, target_wal_pages=200)
    store = open_store(tmp_path / "tasks.db", timings=timings)
    wal = tmp_path / "tasks.db-wal"

    def look() -> tuple[int, int]:
        """How often the log was restarted (from its header), and its size."""
        return int.from_bytes(wal.read_bytes()[12:16], "big"), wal.stat().st_size

    await running(store)
    first = look()
    found = [first]
    while found[-1][0] < first[0] + 3:  # the pytest timeout ends an endless wait
        for _ in range(50):  # a busy writer: the concurrent checkpoint never catches up
            await store.append(created(new_ref()))
        found.append(look())
    assert [size for _, size in found] == sorted(size for _, size in found)
    await store.close()
