"""Backups: one snapshot despite concurrent writes, and no writer waits."""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import aclosing, contextmanager
from hashlib import sha256
from pathlib import Path

import pytest

from dragoman.core.errors import InvalidParams
from dragoman.core.push.delivery import DeliveryOutcome
from dragoman.core.task.maintenance import StorageOptions
from dragoman.ports import BackupProgress
from dragoman.stores.sqlite import SchemaTooNew, open_store
from dragoman.stores.sqlite.cold import backup as copying
from dragoman.stores.sqlite.hot import SqliteTimings
from dragoman.testing.contracts.store_pushes import claim_due, report_of, with_push
from dragoman.testing.fixtures import artifact, by_runner, created, finished, new_ref, running


def blob_path(content: bytes) -> Path:
    """Where the blob of a content is, below the folder of blobs."""
    digest = sha256(content).hexdigest()
    return Path(digest[:2], digest[2:])


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
    place = blob_path(b"big")
    blob = copying.blob_folder(tmp_path / "t.db") / place
    blob.parent.mkdir(parents=True)
    blob.write_bytes(b"big")
    blob.with_name(f"{blob.name}.0123abcd").write_bytes(b"half of one that is being written")
    assert [step async for step in store.backup(tmp_path / "copy")][-1].done
    await store.close()
    assert (tmp_path / "copy" / "blobs" / place).read_bytes() == b"big"
    copying.restore(tmp_path / "copy", tmp_path / "new.db")
    restored = copying.blob_folder(tmp_path / "new.db")
    assert [file.relative_to(restored) for file in restored.rglob("*") if file.is_file()] == [place]
    copy = restored / place
    assert (copy.read_bytes(), copy.stat().st_mode & 0o777, copy.stat().st_nlink) == (b"big", 0o600, 1)


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/etc/hostname")], ids=["pipe", "link"])
async def test_a_manifest_that_is_no_file_is_not_read(tmp_path: Path, make: Callable[[Path], object]) -> None:
    store = open_store(tmp_path / "t.db")
    assert [step async for step in store.backup(tmp_path / "copy")][-1].done
    await store.close()
    (tmp_path / "copy" / copying.BACKUP_MANIFEST).unlink()
    make(tmp_path / "copy" / copying.BACKUP_MANIFEST)
    assert copying.restore(tmp_path / "copy", tmp_path / "new.db").copied_at == 0


@pytest.mark.parametrize("name", ["a" * 300, "a\0b"], ids=["too long", "with a NUL"])
async def test_a_name_that_no_file_can_have_is_refused(tmp_path: Path, name: str) -> None:
    store = open_store(tmp_path / "t.db")
    with pytest.raises(InvalidParams, match=r"^destination: .*can(not)? be created"):
        async for _ in store.backup(tmp_path / name):
            pass
    await store.close()


def link_to_a_file(blob: Path, secret: Path) -> None:
    blob.unlink()
    blob.symlink_to(secret)


def link_to_a_folder(blob: Path, secret: Path) -> None:
    (secret.parent / blob.name).write_bytes(b"big")
    blob.unlink()
    blob.parent.rmdir()
    blob.parent.symlink_to(secret.parent)


def link_to_all_folders(blob: Path, secret: Path) -> None:
    shutil.move(blob.parent.parent, secret.parent / "elsewhere")
    blob.parent.parent.symlink_to(secret.parent / "elsewhere")


def pipe(blob: Path, secret: Path) -> None:
    blob.unlink()
    os.mkfifo(blob)


def other_content(blob: Path, secret: Path) -> None:
    blob.unlink()
    blob.write_bytes(b"bad")


@pytest.mark.parametrize("change", [link_to_a_file, link_to_a_folder, link_to_all_folders, pipe, other_content])
async def test_a_backup_with_other_things_than_blobs_is_not_restored(
    tmp_path: Path, change: Callable[[Path, Path], None]
) -> None:
    """Otherwise a backup could name a file of this host, and the restored server would serve it."""
    store = open_store(tmp_path / "t.db")
    blob = copying.blob_folder(tmp_path / "t.db") / blob_path(b"big")
    blob.parent.mkdir(parents=True)
    blob.write_bytes(b"big")
    assert [step async for step in store.backup(tmp_path / "copy")][-1].done
    await store.close()
    (tmp_path / "host").mkdir()
    secret = tmp_path / "host" / "secret"
    secret.write_bytes(b"big")
    change(tmp_path / "copy" / "blobs" / blob_path(b"big"), secret)
    with pytest.raises(InvalidParams, match=r"SRC: .* (symbolic link|content of its name)"):
        copying.restore(tmp_path / "copy", tmp_path / "new.db")
    assert list(tmp_path.glob("new.db*")) == []


async def test_the_database_of_a_backup_is_a_file_of_it(tmp_path: Path) -> None:
    await open_store(tmp_path / "t.db").close()
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "tasks.db").symlink_to(tmp_path / "t.db")
    with pytest.raises(InvalidParams, match=r"it has no tasks\.db that is a file"):
        copying.restore(tmp_path / "copy", tmp_path / "new.db")


@pytest.mark.parametrize(
    "code",
    [
        "CREATE TRIGGER t AFTER INSERT ON tasks BEGIN DELETE FROM audit; END",
        "CREATE VIEW v AS SELECT value FROM meta",
    ],
)
async def test_a_backup_with_code_is_not_restored(tmp_path: Path, code: str) -> None:
    store = open_store(tmp_path / "t.db")
    [step async for step in store.backup(tmp_path / "copy")]
    await store.close()
    with sqlite3.connect(tmp_path / "copy" / "tasks.db") as database:
        database.execute(code)
    database.close()
    with pytest.raises(InvalidParams, match=r"SRC: .* has code of somebody else: the trigger or view [tv]$"):
        copying.restore(tmp_path / "copy", tmp_path / "new.db")
    assert list(tmp_path.glob("new.db*")) == []


async def test_a_restored_store_has_another_secret_and_reads_its_large_parts(tmp_path: Path) -> None:
    """Every backup has the secret of its store: a copy must not sign in the name of the original."""
    store = open_store(tmp_path / "t.db", sizes=StorageOptions(inline_bytes=10_000_000))
    await store.key_values.compare_and_set("signing keys", "theirs", expected="")
    await store.key_values.compare_and_set("pauses", "kept", expected="")
    done = await finished(store, artifact("a", "x" * 2_000_000))
    before = await store.read(done.record.ref)
    assert [file for file in copying.blob_folder(tmp_path / "t.db").rglob("*") if file.is_file()]
    [step async for step in store.backup(tmp_path / "copy")]
    secret = store.secret("links")
    await store.close()
    copying.restore(tmp_path / "copy", tmp_path / "new.db", forgotten=["signing keys"])
    for _ in range(2):  # also after a restart, and a restore of a restored one
        store = open_store(tmp_path / "new.db", sizes=StorageOptions(inline_bytes=10_000_000))
        assert store.secret("links") != secret
        assert await store.key_values.get("signing keys") == ""
        assert await store.key_values.get("pauses") == "kept"
        assert await store.read(done.record.ref) == before
        await store.close()


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


@pytest.mark.parametrize("destination", ["no/such", "{tmp}/there", "{tmp}/no/such/folder"])
async def test_an_invalid_destination_is_rejected(tmp_path: Path, destination: str) -> None:
    (tmp_path / "there").mkdir()
    store = open_store(tmp_path / "t.db")
    with pytest.raises(InvalidParams, match="destination: "):
        [step async for step in store.backup(Path(destination.format(tmp=tmp_path)))]
    await store.close()


async def test_a_backup_with_a_name_is_beside_the_store_and_its_user_s_only(tmp_path: Path) -> None:
    store = open_store(tmp_path / "t.db")
    assert [step async for step in store.backup(Path("nightly"))][-1].done
    await store.close()
    folder = tmp_path / "t.db.backups" / "nightly"
    modes = {path.name: path.stat().st_mode & 0o777 for path in (folder.parent, folder, *folder.iterdir())}
    assert modes == {"t.db.backups": 0o700, "nightly": 0o700, "tasks.db": 0o600, "backup.json": 0o600}


@contextmanager
def written_by_another_process(path: Path) -> Iterator[None]:
    handle = os.open(path, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    try:
        yield
    finally:
        os.close(handle)


async def test_a_second_backup_to_the_same_folder_is_rejected_and_one_that_was_killed_replaced(tmp_path: Path) -> None:
    store = open_store(tmp_path / "t.db")
    left = tmp_path / "copy.partial" / "blobs" / "left"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"of a backup that was killed")
    with written_by_another_process(tmp_path / "copy.partial"):
        with pytest.raises(InvalidParams, match=r"copy\.partial is being written by another process"):
            [step async for step in store.backup(tmp_path / "copy")]
        assert left.exists()
    assert [step async for step in store.backup(tmp_path / "copy")][-1].done
    await store.close()
    assert sorted(path.name for path in (tmp_path / "copy").iterdir()) == ["backup.json", "tasks.db"]
    assert not (tmp_path / "copy.partial").exists()


async def test_what_a_killed_restore_left_is_replaced(tmp_path: Path) -> None:
    store = open_store(tmp_path / "t.db")
    task = (await finished(store)).record
    [step async for step in store.backup(tmp_path / "copy")]
    await store.close()
    partial, blobs = tmp_path / "new.db.partial", tmp_path / "new.db.partial.blobs"
    partial.write_bytes(b"half")
    (tmp_path / "new.db.partial-journal").write_bytes(b"half")
    blobs.mkdir()
    (blobs / "left").write_bytes(b"half")
    with written_by_another_process(partial):
        with pytest.raises(InvalidParams, match=r"new\.db\.partial is being written by another process"):
            copying.restore(tmp_path / "copy", tmp_path / "new.db")
        assert (blobs / "left").exists()
    copying.restore(tmp_path / "copy", tmp_path / "new.db")
    assert [path.name for path in tmp_path.glob("new*")] == ["new.db"]
    restored = open_store(tmp_path / "new.db")
    assert await restored.locate(task.id)
    await restored.close()


@pytest.mark.parametrize("named", [False, True])
async def test_a_restore_that_was_killed_between_its_renames_is_done_again(tmp_path: Path, named: bool) -> None:
    """First the blobs get their name, then the database: by a second link, whose first is removed last."""
    store = open_store(tmp_path / "t.db")
    task = (await finished(store, artifact("large", "x" * 2_000_000))).record
    [step async for step in store.backup(tmp_path / "copy")]
    await store.close()
    new, partial, folder = (tmp_path / name for name in ("new.db", "new.db.partial", "new.db.blobs"))
    copying.restore(tmp_path / "copy", new)
    (folder / copying.RESTORING).touch()
    if named:
        partial.hardlink_to(new)
        kept = new.rename(tmp_path / "moved.db").read_bytes()
    else:
        new.rename(partial)
    assert copying.restore(tmp_path / "copy", new).missing_blobs == 0
    assert {path.name for path in tmp_path.glob("new*")} == {"new.db", folder.name}
    assert not (folder / copying.RESTORING).exists()
    assert not named or (tmp_path / "moved.db").read_bytes() == kept, "another name of the same file"
    restored = open_store(new)
    assert await restored.locate(task.id)
    await restored.close()
    new.unlink()
    with pytest.raises(
        InvalidParams, match=r"--store: .*new\.db.*already exists"
    ):  # blobs of a store, not of a restore
        copying.restore(tmp_path / "copy", new)


async def test_a_copy_without_its_blobs_is_restored_and_they_are_counted(tmp_path: Path) -> None:
    store = open_store(tmp_path / "t.db")
    await finished(store, artifact("large", "x" * 2_000_000))
    [step async for step in store.backup(tmp_path / "copy")]
    await store.close()
    assert copying.restore(tmp_path / "copy", tmp_path / "whole.db").missing_blobs == 0
    shutil.rmtree(tmp_path / "copy" / "blobs")
    assert copying.restore(tmp_path / "copy", tmp_path / "new.db").missing_blobs == 1


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
