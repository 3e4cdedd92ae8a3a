"""Checkpoints: a short write-ahead log, whatever is written and read."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

from dragoman.stores.sqlite import SqliteStore, open_store
from dragoman.stores.sqlite.hot import SqliteTimings
from dragoman.stores.sqlite.schema import connect
from dragoman.testing.fixtures import by_runner, chunk, created, new_ref, running

MIB = 1024 * 1024


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


async def test_large_commits_fill_the_log_before_there_are_many_of_them(tmp_path: Path) -> None:
    timings = SqliteTimings(checkpoint_interval=1_000_000, target_wal_pages=256, max_wal_bytes=8 * MIB)
    store = open_store(tmp_path / "tasks.db", timings=timings)
    wal = tmp_path / "tasks.db-wal"
    claimed, sizes = await running(store), []
    for _ in range(40):
        await store.append(by_runner(claimed, chunk("out", "x" * MIB)))
        sizes.append(wal.stat().st_size)
    assert max(sizes) < 16 * MIB
    await store.close()


async def test_a_reader_that_holds_the_log_does_not_hold_up_every_commit(tmp_path: Path) -> None:
    timings = SqliteTimings(checkpoint_interval=1_000_000, target_wal_pages=1024, max_wal_bytes=MIB)
    store = open_store(tmp_path / "tasks.db", timings=timings)
    wal = tmp_path / "tasks.db-wal"
    claimed = await running(store)
    reader = connect(tmp_path / "tasks.db", readonly=True)
    reader.execute("BEGIN")
    reader.execute("SELECT * FROM tasks").fetchone()
    waits: list[str] = []
    checkpoint = store._checkpointer._checkpoint

    def counted(writer: sqlite3.Connection, mode: str, *, wait_ms: int) -> None:
        waits.extend([mode] * bool(wait_ms))
        checkpoint(writer, mode, wait_ms=wait_ms)

    store._checkpointer._checkpoint = counted  # type: ignore[method-assign]
    for _ in range(8):
        await store.append(by_runner(claimed, chunk("out", "x" * MIB)))
    assert 1 <= len(waits) <= 6  # after each 4 MiB more, and not after each commit
    assert wal.stat().st_size > 8 * MIB
    reader.close()
    for _ in range(8):
        await store.append(by_runner(claimed, chunk("out", "x" * MIB)))
    assert wal.stat().st_size < 16 * MIB
    await store.close()
