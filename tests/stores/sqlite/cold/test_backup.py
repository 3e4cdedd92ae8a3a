"""Backups: one snapshot despite concurrent writes, and no writer waits."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from contextlib import aclosing
from pathlib import Path

import pytest

from dragoman.core.errors import InvalidParams
from dragoman.core.push.delivery import DeliveryOutcome
from dragoman.ports import BackupProgress
from dragoman.stores.sqlite import SchemaTooNew, open_store
from dragoman.stores.sqlite.cold import backup as copying
from dragoman.stores.sqlite.hot import SqliteTimings
from dragoman.testing.contracts.store_pushes import claim_due, report_of, with_push
from dragoman.testing.fixtures import artifact, by_runner, created, finished, new_ref, running


def count(path: Path, table: str = "tasks") -> int:
    connection = sqlite3.connect(path)
    try:
        number: int = connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
        return number
    finally:
        connection.close()


async def test_a_backup_is_a_snapshot_of_its_start_while_writers_continue(tmp_path: Path) -> None:
    store = open_store(tmp_path / "t.db", timings=SqliteTimings(backup_pages=4))
    for _ in range(20):
        await finished(store, artifact("a", "x" * 20_000))
    written = 0
    async with aclosing(store.backup(tmp_path / "copy")) as steps:
        seen: list[BackupProgress] = []
        async for step in steps:
            seen.append(step)
            if written < 50:
                await store.append(created(new_ref()))
                written += 1
    assert [step.done for step in seen[-2:]] == [False, True]
    assert written == 50
    assert count(tmp_path / "copy" / "tasks.db") == 20
    assert count(tmp_path / "t.db") == 70
    await store.close()


async def test_writers_do_not_wait_for_a_backup_even_with_a_long_log(tmp_path: Path) -> None:
    timings = SqliteTimings(checkpoint_interval=8, max_wal_bytes=1)
    store = open_store(tmp_path / "t.db", timings=timings)
    claimed = await running(store)
    begun, go_on = threading.Event(), threading.Event()

    def tell(_: BackupProgress) -> None:
        begun.set()
        go_on.wait()

    copy = asyncio.create_task(
        asyncio.to_thread(copying.write_backup, tmp_path / "t.db", tmp_path / "copy", tell, lambda: 1, None, 1)
    )
    await asyncio.to_thread(begun.wait)
    # SQLite's own busy timeout would be ten seconds, for each of the five truncations of the log.
    async with asyncio.timeout(40):
        for _ in range(40):
            await store.append(by_runner(claimed, artifact("a", "more", append=True)))
    go_on.set()
    await copy
    await store.close()
    assert count(tmp_path / "copy" / "tasks.db", "chunks") == 0


async def test_an_abandoned_backup_leaves_no_files(tmp_path: Path) -> None:
    store = open_store(tmp_path / "t.db", timings=SqliteTimings(backup_pages=1))
    for _ in range(50):
        await finished(store, artifact("a", "x" * 9000))
    async with aclosing(store.backup(tmp_path / "copy")) as steps:
        await anext(steps)
    assert not list(tmp_path.glob("copy*"))
    await store.close()


async def test_a_backup_includes_blobs(tmp_path: Path) -> None:
    store = open_store(tmp_path / "t.db")
    blob = copying.blob_folder(tmp_path / "t.db") / "ab" / "abcdef"
    blob.parent.mkdir(parents=True)
    blob.write_bytes(b"big")
    assert [step async for step in store.backup(tmp_path / "copy")][-1].done
    await store.close()
    assert (tmp_path / "copy" / "blobs" / "ab" / "abcdef").read_bytes() == b"big"
    copying.restore(tmp_path / "copy", tmp_path / "new.db")
    assert (copying.blob_folder(tmp_path / "new.db") / "ab" / "abcdef").read_bytes() == b"big"


async def test_a_restored_store_has_its_tasks_and_another_epoch(tmp_path: Path) -> None:
    store = open_store(tmp_path / "t.db", clock=lambda: 1_700_000_000_000)
    done, left = await finished(store, artifact("a", "x")), await running(store)
    before = await store.read(done.record.ref)
    [step async for step in store.backup(tmp_path / "copy")]
    await store.close()
    restored = copying.restore(tmp_path / "copy", tmp_path / "new.db")
    assert (restored.tasks, restored.running, restored.copied_at) == (2, 1, 1_700_000_000_000)
    assert restored.epoch != restored.previous_epoch
    store = open_store(tmp_path / "new.db")
    assert await store.read(done.record.ref) == before
    assert [head.ref for head in await store.orphaned_tasks(await store.open_session(10), 9)] == [left.record.ref]
    await store.close()


async def test_deliveries_of_a_restored_store_continue_from_the_backup(tmp_path: Path) -> None:
    store = open_store(tmp_path / "t.db")
    change = with_push(created(new_ref()))
    await store.append(change)
    (push,) = await claim_due(store, await store.open_session(10.0))
    [step async for step in store.backup(tmp_path / "copy")]
    await store.pushes.apply_reports([report_of(push, DeliveryOutcome.DELIVERED, 1)])
    await store.close()
    assert copying.restore(tmp_path / "copy", tmp_path / "new.db").pushes == 1
    store = open_store(tmp_path / "new.db")
    (again,) = await claim_due(store, await store.open_session(10.0, exclusive=True))
    assert (again.last_delivered, again.lag, again.config.token) == (0, 1, "t")
    await store.close()


@pytest.mark.parametrize("destination", ["relative", "{tmp}/there", "{tmp}/no/such/folder"])
async def test_an_invalid_destination_is_rejected(tmp_path: Path, destination: str) -> None:
    (tmp_path / "there").mkdir()
    store = open_store(tmp_path / "t.db")
    with pytest.raises(InvalidParams, match="destination: "):
        [step async for step in store.backup(Path(destination.format(tmp=tmp_path)))]
    await store.close()


async def test_a_second_backup_to_the_same_folder_is_rejected(tmp_path: Path) -> None:
    store = open_store(tmp_path / "t.db")
    (tmp_path / "copy.partial").mkdir()
    with pytest.raises(InvalidParams, match="another backup is writing it, or one was killed"):
        [step async for step in store.backup(tmp_path / "copy")]
    await store.close()


async def test_an_invalid_or_too_new_backup_is_not_restored(tmp_path: Path) -> None:
    await open_store(tmp_path / "tasks.db").close()
    with pytest.raises(InvalidParams, match="is not a backup"):
        copying.restore(tmp_path / "absent", tmp_path / "new.db")
    (tmp_path / "garbage").write_bytes(b"garbage " * 1000)
    with pytest.raises(sqlite3.DatabaseError):
        copying.restore(tmp_path / "garbage", tmp_path / "new.db")
    connection = sqlite3.connect(tmp_path / "tasks.db")
    connection.execute("PRAGMA user_version = 99")
    connection.execute("UPDATE meta SET value = '99' WHERE name = 'oldest'")
    connection.commit()
    connection.close()
    with pytest.raises(SchemaTooNew):
        copying.restore(tmp_path, tmp_path / "new.db")
    assert not list(tmp_path.glob("new*"))
