"""Large parts in files: durable before their append, and removed only after their last reference."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import sqlite3
from contextlib import closing
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

from dragoman.core.errors import Unavailable
from dragoman.core.task import states
from dragoman.core.task.log import Append, Appended, IncomingMessage
from dragoman.ports import CompactionResult
from dragoman.stores.sqlite import SqliteStore, StorageOptions, open_store
from dragoman.stores.sqlite.cold.blobs import BlobFiles, SqliteBlobOffloader, fsync
from dragoman.stores.sqlite.cold.task_tables import delete_rows_beside_task
from dragoman.stores.sqlite.schema import connect
from dragoman.testing.fixtures import Clock, by_runner, created, file, finished, new_ref, running, status
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

CONTENT = b"x" * (300 * 1024)
DIGEST = sha256(CONTENT).digest()


def files(tmp_path: Path) -> list[str]:
    folder = tmp_path / "tasks.db.blobs"
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


async def erase(store: SqliteStore, appended: Appended) -> None:
    """Releases blobs as the erasure of a task does."""
    await store.writer.submit(lambda connection: delete_rows_beside_task(connection, 1, appended.record.ref.key))


async def raw_of(store: SqliteStore, appended: Appended) -> list[bytes]:
    snapshot = await store.read(appended.record.ref)
    assert snapshot is not None
    return [part.raw for artifact in pb.Task.FromString(snapshot.task).artifacts for part in artifact.parts]


async def test_equal_bytes_share_one_file_until_the_last_task_is_erased(store: SqliteStore, tmp_path: Path) -> None:
    tasks = [await finished(store, file("a", CONTENT), file("b", CONTENT)) for _ in range(3)]
    assert len(files(tmp_path)) == 1
    for task in tasks[:2]:
        await erase(store, task)
        await erase(store, task)
        assert await store.compact() == CompactionResult()
    assert await raw_of(store, tasks[2]) == [CONTENT, CONTENT]
    await erase(store, tasks[2])
    assert await store.compact() == CompactionResult(files=1)
    assert files(tmp_path) == []
    assert await raw_of(store, await finished(store, file("a", CONTENT))) == [CONTENT]


async def test_a_discarded_task_deletes_its_blobs(store: SqliteStore, tmp_path: Path) -> None:
    message = pb.Message(message_id="m", role=pb.ROLE_USER, parts=[pb.Part(raw=CONTENT)]).SerializeToString()
    change = replace(created(new_ref(), claim=7, visible=False), message=IncomingMessage(message))
    hidden = await store.append(change)
    assert len(files(tmp_path)) == 1
    await store.append(Append(task=hidden.record.ref, guard=by_runner(hidden).guard, discard=True))
    assert (await store.compact()).files == 1
    assert files(tmp_path) == []


async def test_a_blob_of_an_append_in_progress_is_not_removed(store: SqliteStore, tmp_path: Path) -> None:
    await erase(store, await finished(store, file("a", CONTENT)))
    store.blob_files.hold([DIGEST])
    assert await store.compact() == CompactionResult()
    assert len(files(tmp_path)) == 1
    store.blob_files.release([DIGEST])
    assert await store.compact() == CompactionResult(files=1)


async def test_a_blob_removed_while_it_is_written_again_is_kept(store: SqliteStore) -> None:
    for _ in range(20):
        task = await finished(store, file("a", CONTENT))
        again = asyncio.gather(
            erase(store, task), store.compact(), finished(store, file("a", CONTENT)), store.compact()
        )
        _, _, kept, _ = await again
        assert await raw_of(store, kept) == [CONTENT]
        await erase(store, kept)


async def test_a_start_removes_blobs_without_an_append(tmp_path: Path) -> None:
    store = open_store(tmp_path / "tasks.db")
    kept = await finished(store, file("a", CONTENT))
    store.blob_files.write(sha256(b"orphan").digest(), b"orphan")
    folder = store.blob_files.path(DIGEST).parent
    (folder / "draft.0123").write_bytes(b"half a file")
    assert await store.compact() == CompactionResult()  # younger than this process: its append may be in progress
    await store.close()
    for path in (tmp_path / "tasks.db.blobs").rglob("*"):
        os.utime(path, (1, 1))
    store = open_store(tmp_path / "tasks.db")
    assert await store.compact() == CompactionResult(files=1)
    assert files(tmp_path) == [f"{folder.name}/{DIGEST.hex()[2:]}"]
    assert await raw_of(store, kept) == [CONTENT]
    await store.close()


async def test_bytes_that_cannot_be_written_fail_their_append_alone(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    claimed = await running(store)
    monkeypatch.setattr(os, "fsync", full)
    lost = store.append(by_runner(claimed, file("a", CONTENT)))
    after = store.append(by_runner(claimed, file("a", b"small")))
    with pytest.raises(Unavailable, match="the store is full"):
        await lost
    assert (await after).events[0].sequence == 2
    assert await raw_of(store, claimed) == [b"small"]
    assert store.blob_files.remove(DIGEST)  # no longer held for the append


async def test_an_unfinished_temporary_file_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(handle: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(OSError, match="Input"):
        BlobFiles(tmp_path / "tasks.db.blobs").write(DIGEST, CONTENT)
    assert files(tmp_path) == []


async def test_rows_have_a_reference_and_a_file_has_the_bytes(store: SqliteStore, tmp_path: Path) -> None:
    await finished(store, file("a", CONTENT))
    name = DIGEST.hex()
    assert files(tmp_path) == [f"{name[:2]}/{name[2:]}"]
    assert (tmp_path / "tasks.db.blobs" / name[:2] / name[2:]).read_bytes() == CONTENT
    with sqlite3.connect(tmp_path / "tasks.db") as connection:
        rows = connection.execute("SELECT data FROM chunks UNION ALL SELECT data FROM log").fetchall()
    connection.close()
    assert sum(len(row[0]) for row in rows) < 2000


async def test_small_parts_and_texts_stay_in_their_rows(store: SqliteStore, tmp_path: Path) -> None:
    await finished(store, file("a", CONTENT[: 256 * 1024]), status(states.WORKING, "x" * 400_000))
    assert files(tmp_path) == []


async def test_a_blob_is_on_disk_before_its_reference(store: SqliteStore, tmp_path: Path) -> None:
    there: list[list[str]] = []

    def watched(change: Append) -> asyncio.Future[Appended]:
        there.append(files(tmp_path) if change.blobs else [])
        return store.writer.submit(change)

    offloader = SqliteBlobOffloader(store.blob_files, store.blobs, b"no part has this", watched)
    claimed = await offloader.append(created(new_ref(), claim=1))
    await offloader.append(by_runner(claimed, file("a", CONTENT)))
    await offloader.close()
    assert [len(found) for found in there] == [0, 1]


async def test_a_missing_file_is_logged_and_linked(store: SqliteStore, caplog: pytest.LogCaptureFixture) -> None:
    done = await finished(store, file("a", CONTENT))
    store.blob_files.path(DIGEST).unlink()
    snapshot = await store.read(done.record.ref)
    assert snapshot is not None
    part = pb.Task.FromString(snapshot.task).artifacts[0].parts[0]
    assert part.url.startswith(f"/blobs/{DIGEST.hex()}?")
    assert "cannot be read" in caplog.text


async def test_links_are_valid_after_a_restart(tmp_path: Path, clock: Clock) -> None:
    links = []
    for _ in range(2):
        store = open_store(tmp_path / "tasks.db", clock=clock, sizes=StorageOptions(inline_bytes=0))
        done = await finished(store, file("a", CONTENT))
        snapshot = await store.read(done.record.ref)
        assert snapshot is not None
        links.append(pb.Task.FromString(snapshot.task).artifacts[0].parts[0].url)
        await store.close()
    assert links[0] == links[1]


async def test_appended_events_have_the_bytes_or_the_link(tmp_path: Path) -> None:
    store = open_store(tmp_path / "tasks.db", sizes=StorageOptions(inline_bytes=400 * 1024), clock=Clock())
    claimed = await running(store)
    put = await store.append(by_runner(claimed, file("a", CONTENT), file("b", CONTENT * 2)))
    kinds = [
        pb.StreamResponse.FromString(event.data).artifact_update.artifact.parts[0].WhichOneof("content")
        for event in put.events
    ]
    assert kinds == ["raw", "url"]
    assert [event.data for event in await store.events(claimed.record.ref, 1)] == [event.data for event in put.events]
    await store.close()


async def test_events_are_read_in_portions_of_one_response(tmp_path: Path) -> None:
    store = open_store(tmp_path / "tasks.db", sizes=StorageOptions(inline_bytes=600 * 1024))
    claimed = await running(store)
    for number in range(6):
        await store.append(by_runner(claimed, file("a", bytes([number]) + CONTENT, append=True)))
    at, portions = 0, []
    while found := await store.events(claimed.record.ref, at):
        portions.append(len(found))
        assert [event.sequence for event in found] == list(range(at + 1, at + 1 + len(found)))
        at = found[-1].sequence
    assert at == 7
    assert max(portions) <= 4
    await store.close()


async def test_closing_waits_for_parts_in_progress(tmp_path: Path) -> None:
    store = open_store(tmp_path / "tasks.db")
    claimed = await running(store)
    put = store.append(by_runner(claimed, file("a", CONTENT)))
    await store.close()
    assert (await put).record.last_sequence == 2


async def test_a_canceled_caller_does_not_stop_its_large_write(store: SqliteStore) -> None:
    claimed = await running(store)
    store.append(by_runner(claimed, file("a", CONTENT))).cancel()
    await store.append(by_runner(claimed, status(states.WORKING)))
    assert await raw_of(store, claimed) == [CONTENT]


def test_a_file_is_written_through_the_cache_of_the_disk_where_fsync_leaves_it_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on macOS, which has a command of its own for that, though not on every file system."""
    calls: list[str] = []
    rejected: list[int] = []

    def control(_: int, command: int) -> None:
        if command in rejected or command != 51:
            raise OSError(errno.ENOTSUP, "rejected")
        calls.append("F_FULLFSYNC")

    monkeypatch.setattr(fcntl, "fcntl", control)
    monkeypatch.setattr(os, "fsync", lambda _: calls.append("fsync"))
    monkeypatch.setattr(fcntl, "F_FULLFSYNC", 51, raising=False)
    fsync(tmp_path)
    rejected.append(51)
    fsync(tmp_path)
    monkeypatch.delattr(fcntl, "F_FULLFSYNC")
    fsync(tmp_path)
    assert calls == ["F_FULLFSYNC", "fsync", "fsync"]


def test_the_database_is_written_through_the_cache_of_the_disk_too(tmp_path: Path) -> None:
    with closing(connect(tmp_path / "tasks.db")) as connection:
        assert connection.execute("PRAGMA fullfsync").fetchone() == (1,)
