"""Large parts in files: durable before their append, and removed only after their last reference."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from hashlib import sha256
from pathlib import Path

import pytest

from dragoman.core.errors import Unavailable
from dragoman.core.task.log import Append, Appended
from dragoman.ports import CompactionResult
from dragoman.stores.sqlite import SqliteStore, open_store
from dragoman.stores.sqlite.blobs import BlobFiles, release_blobs
from dragoman.testing.fixtures import Clock, by_runner, created, file, finished, new_ref, running
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

CONTENT = b"x" * (300 * 1024)
DIGEST = sha256(CONTENT).digest()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def store(tmp_path: Path, clock: Clock) -> AsyncIterator[SqliteStore]:
    store = open_store(tmp_path / "tasks.db", clock=clock, synchronous="normal")
    yield store
    await store.close()


def files(tmp_path: Path) -> list[str]:
    folder = tmp_path / "tasks.db.blobs"
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


async def erase(store: SqliteStore, appended: Appended) -> None:
    """Releases blobs as the erasure of a task does."""
    await store._writer.submit(lambda connection: release_blobs(connection, 1, appended.record.ref.key))


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
    hidden = await store.append(created(new_ref(), claim=7, visible=False))
    await store.append(by_runner(hidden, file("a", CONTENT)))
    await store.append(Append(task=hidden.record.ref, guard=by_runner(hidden).guard, discard=True))
    assert (await store.compact()).files == 1
    assert files(tmp_path) == []


async def test_a_blob_of_an_append_in_progress_is_not_removed(store: SqliteStore, tmp_path: Path) -> None:
    await erase(store, await finished(store, file("a", CONTENT)))
    store._blob_files.hold([DIGEST])
    assert await store.compact() == CompactionResult()
    assert len(files(tmp_path)) == 1
    store._blob_files.release([DIGEST])
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
    store._blob_files.write(sha256(b"orphan").digest(), b"orphan")
    folder = store._blob_files.path(DIGEST).parent
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
    def full(self: BlobFiles, digest: bytes, content: bytes) -> None:
        raise OSError(28, "No space left on device")

    claimed = await running(store)
    monkeypatch.setattr(BlobFiles, "write", full)
    lost = store.append(by_runner(claimed, file("a", CONTENT)))
    after = store.append(by_runner(claimed, file("a", b"small")))
    with pytest.raises(Unavailable, match="the store is full"):
        await lost
    assert (await after).events[0].sequence == 2
    assert await raw_of(store, claimed) == [b"small"]
    assert not store._blob_files._held


async def test_an_unfinished_temporary_file_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(handle: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(OSError, match="Input"):
        BlobFiles(tmp_path / "tasks.db.blobs").write(DIGEST, CONTENT)
    assert files(tmp_path) == []
