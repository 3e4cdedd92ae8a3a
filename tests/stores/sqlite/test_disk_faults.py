"""A failing disk: callers get an error, nothing acknowledged is lost, and the store recovers."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing, closing
from pathlib import Path
from typing import Any, cast

import pytest

from dragoman.core.errors import Unavailable
from dragoman.core.task.cursors import TaskQuery, TaskSearch
from dragoman.core.task.log import Append, Appended, TaskRef
from dragoman.core.task.maintenance import StorageOptions, TaskSelection
from dragoman.ids import now_ms
from dragoman.ports import Store
from dragoman.stores.sqlite import SqliteStore, open_store
from dragoman.stores.sqlite.cold.backup import restore
from dragoman.stores.sqlite.hot import DEFAULT_TIMINGS, SqliteTimings
from dragoman.stores.sqlite.schema import connect, migrate
from dragoman.testing.fixtures import AGENT, OWNER, by_runner, chunk, created, finished, new_ref, running

pytestmark = pytest.mark.long


def database_error(text: str, code: int) -> sqlite3.OperationalError:
    """An error as SQLite raises it."""
    error = sqlite3.OperationalError(text)
    error.sqlite_errorcode = code
    return error


FSYNC = database_error("disk I/O error", sqlite3.SQLITE_IOERR_FSYNC)
FULL = database_error("database or disk is full", sqlite3.SQLITE_FULL)


class FaultyConnection:
    """A connection whose statements fail a given number of times, before they reach the database."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._faults: list[tuple[str, sqlite3.Error, int]] = []

    def fail(self, start: str, error: sqlite3.Error, times: int = 1_000_000) -> None:
        """The next `times` statements with this beginning raise `error`."""
        self._faults.append((start, error, times))

    def heal(self) -> None:
        self._faults.clear()

    def cursor(self) -> FaultyConnection:
        return self

    def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
        for number, (start, error, times) in enumerate(self._faults):
            if sql.lstrip().startswith(start) and times:
                self._faults[number] = (start, error, times - 1)
                raise error
        return self._connection.execute(sql, *values)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


class Disk:
    """A store on a connection that can fail."""

    def __init__(self, path: Path, timings: SqliteTimings = DEFAULT_TIMINGS) -> None:
        self.path = path
        connection = connect(path)
        migrate(connection)
        self.faults = FaultyConnection(connection)
        self.store = SqliteStore(path, cast(sqlite3.Connection, self.faults), now_ms, StorageOptions(), timings)

    async def append(self, *changes: Append) -> list[Appended | BaseException]:
        return await asyncio.gather(*map(self.store.append, changes), return_exceptions=True)

    async def reopened(self) -> set[bytes]:
        """The keys of all tasks after the store was closed and opened again."""
        await self.store.close()
        return await stored_keys(self.path)


async def stored_keys(path: Path) -> set[bytes]:
    """Opens a store, checks the log of each task, and returns all task keys."""
    store = open_store(path)
    try:
        with closing(sqlite3.connect(path)) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
            keys = {key for (key,) in connection.execute("SELECT task FROM tasks")}
        for key in keys:
            await assert_complete(store, new_ref().owner, key)
        return keys
    finally:
        await store.close()


async def assert_complete(store: Store, owner: Any, key: bytes) -> None:
    """Whether the task's log reaches its last event without a gap."""
    ref = TaskRef(owner, key)
    versions = await store.last_sequences([ref])
    assert [event.sequence for event in await store.events(ref, 0, 10_000)] == list(range(1, versions[key] + 1))


@pytest.fixture
async def disk(tmp_path: Path) -> AsyncIterator[Disk]:
    disk = Disk(tmp_path / "tasks.db")
    yield disk
    disk.faults.heal()
    await disk.store.close()


def several(number: int = 20) -> list[Append]:
    return [created(new_ref()) for _ in range(number)]


def keys_of(changes: Sequence[Append]) -> set[bytes]:
    return {change.task.key for change in changes}


@pytest.mark.parametrize(
    ("statement", "error"),
    [("COMMIT", FSYNC), ("BEGIN", FSYNC), ("INSERT INTO log", FULL), ("INSERT INTO tasks", FULL)],
)
async def test_a_failing_disk_is_reported_to_every_caller_and_recovers(
    disk: Disk, statement: str, error: sqlite3.Error
) -> None:
    before, during, after = several(), several(), several()
    await disk.append(*before)
    disk.faults.fail(statement, error)
    failures = await disk.append(*during)
    assert {type(failure) for failure in failures} == {Unavailable}
    assert {failure.__cause__ for failure in failures if isinstance(failure, Unavailable)} == {error}
    disk.faults.heal()
    assert all(isinstance(result, Appended) for result in await disk.append(*after))
    assert await disk.reopened() == keys_of(before) | keys_of(after)


async def test_searches_continue_on_a_full_disk_without_the_newest_tasks(disk: Disk) -> None:
    first, second = created(new_ref()), created(new_ref())
    await disk.append(first)
    assert (await disk.store.search(TaskSearch())).total == 1
    await disk.append(second)
    disk.faults.fail("COMMIT", FULL)
    assert (await disk.store.search(TaskSearch())).total == 1
    assert (await disk.store.page(TaskQuery(OWNER, AGENT))).total == 2, "lists of callers need no commit"
    with pytest.raises(Unavailable):  # an erasure must not miss a task
        await disk.store.erasures.measure(TaskSelection(principal=OWNER.principal))
    disk.faults.heal()
    assert (await disk.store.search(TaskSearch())).total == 2


@pytest.mark.parametrize("times", [1, 2, 7])
async def test_occasional_commit_failures_lose_no_acknowledged_write(disk: Disk, times: int) -> None:
    changes = several()
    disk.faults.fail("COMMIT", FSYNC, times)
    results = await disk.append(*changes)
    written = {change.task.key for change, one in zip(changes, results, strict=True) if isinstance(one, Appended)}
    assert len(written) >= len(changes) - times
    assert await disk.reopened() == written


async def test_a_rollback_that_fails_does_not_stop_the_store(disk: Disk) -> None:
    disk.faults.fail("COMMIT", FSYNC, 1)
    disk.faults.fail("ROLLBACK", FSYNC, 1)
    changes = several(3)
    for change in changes:
        (result,) = await disk.append(change)  # written at the second attempt
        assert isinstance(result, Appended)
    assert await disk.reopened() == keys_of(changes)


async def test_a_failed_renewal_is_raised_and_stops_no_writer(disk: Disk) -> None:
    session = await disk.store.open_session(10)
    disk.faults.fail("COMMIT", FSYNC, 1)
    disk.faults.fail("ROLLBACK", FSYNC, 1)
    with pytest.raises(Unavailable, match="does not respond"):
        await asyncio.to_thread(disk.store.renew_session, session, 10)
    await asyncio.to_thread(disk.store.renew_session, session, 10)
    async with asyncio.timeout(60):
        assert isinstance((await disk.append(*several(1)))[0], Appended)


async def test_a_run_continues_after_the_last_successful_commit(disk: Disk) -> None:
    claimed = await running(disk.store)
    disk.faults.fail("COMMIT", FSYNC)
    (failure,) = await disk.append(by_runner(claimed, chunk("out", "lost ")))
    assert isinstance(failure, Unavailable)
    disk.faults.heal()
    (result,) = await disk.append(by_runner(claimed, chunk("out", "kept")))
    assert isinstance(result, Appended)
    assert [event.sequence for event in result.events] == [2]


async def test_a_checkpoint_that_fails_stops_no_writer(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    disk = Disk(tmp_path / "tasks.db", SqliteTimings(checkpoint_interval=1, max_wal_bytes=1))
    disk.faults.fail("PRAGMA wal_checkpoint", FULL)
    async with asyncio.timeout(60):
        for _ in range(3):
            (result,) = await disk.append(*several(1))
            assert isinstance(result, Appended)
    assert len(await disk.reopened()) == 3  # closing checkpoints too
    assert "a checkpoint failed; a later one tries again: database or disk is full" in caplog.text


async def test_a_full_database_is_reported_and_recovers(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    store = open_store(path)
    connection = store.writer.connection
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {pages + 10}")
    changes = [created(new_ref(), text="x" * 3000) for _ in range(40)]
    results = [await asyncio.gather(store.append(change), return_exceptions=True) for change in changes]
    failed = [number for number, (result,) in enumerate(results) if isinstance(result, Unavailable)]
    assert failed
    assert "full" in str(results[failed[0]][0]) or "room" in str(results[failed[0]][0])
    connection.execute("PRAGMA max_page_count = 100000")
    more = created(new_ref())
    await store.append(more)
    await store.close()
    written = {change.task.key for number, change in enumerate(changes) if number not in failed}
    assert await stored_keys(path) == written | {more.task.key}


FULL_DISK = """
import asyncio, resource, sys
from pathlib import Path
from dragoman.stores.sqlite import open_store
from dragoman.core.errors import Unavailable
from dragoman.testing.fixtures import created, new_ref

async def main():
    store = open_store(Path(sys.argv[1]))
    failed = 0
    resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, resource.RLIM_INFINITY))
    while failed < 5:
        change = created(new_ref(), text="x" * 5000)
        try:
            await store.append(change)
            print(change.task.key.hex(), flush=True)
        except Unavailable:
            failed += 1
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    change = created(new_ref())
    await store.append(change)
    print(change.task.key.hex(), "again", flush=True)
    sys.stdout.flush()
    import os
    os._exit(0)

asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform == "win32", reason="the system has no limit for the size of files")
async def test_writes_that_the_system_rejects_are_reported_and_work_later(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    words = [sys.executable, "-c", FULL_DISK, str(path)]
    output = (await asyncio.to_thread(subprocess.run, words, capture_output=True, text=True, check=True)).stdout
    assert output.splitlines()[-1].endswith("again")
    assert await stored_keys(path) == {bytes.fromhex(line.split()[0]) for line in output.splitlines()}


async def test_a_torn_tail_of_the_log_loses_only_incomplete_commits(tmp_path: Path) -> None:
    store = open_store(tmp_path / "tasks.db")
    wal = tmp_path / "tasks.db-wal"
    acknowledged: list[tuple[int, bytes]] = []
    for _ in range(12):
        change = created(new_ref())
        await store.append(change)
        acknowledged.append((wal.stat().st_size, change.task.key))
    torn = [size - cut for size, _ in acknowledged for cut in (0, 1, 1000, 4096)]
    for number, size in enumerate(torn):
        for tail in (b"", b"\xff" * 5000):  # truncated, or overwritten with other bytes
            copy = tmp_path / f"torn-{number}-{len(tail)}"
            copy.mkdir()
            shutil.copy(tmp_path / "tasks.db", copy / "tasks.db")
            (copy / "tasks.db-wal").write_bytes(wal.read_bytes()[:size] + tail)
            assert await stored_keys(copy / "tasks.db") == {key for end, key in acknowledged if end <= size}
    await store.close()


# Files that are removed or replaced under a running store -----------------------------------------------------------


def _remove(path: Path) -> None:
    path.unlink()


def _rename(path: Path) -> None:
    path.rename(path.with_name("elsewhere.db"))


def _replace(path: Path) -> None:
    other = path.with_name("other.db")
    with sqlite3.connect(other) as connection:
        connection.execute("CREATE TABLE t (n)")
    connection.close()
    other.replace(path)


def _remove_log(path: Path) -> None:
    path.with_name(f"{path.name}-wal").unlink()


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (_remove, "tasks.db was removed or renamed"),
        (_rename, "tasks.db was removed or renamed"),
        (_replace, "tasks.db is another file than the one in use"),
        (_remove_log, "tasks.db-wal was removed or renamed"),
    ],
)
async def test_writes_are_rejected_when_a_file_of_the_database_is_gone_and_a_backup_saves_all(
    tmp_path: Path, change: Callable[[Path], None], problem: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "tasks.db"
    store = open_store(path)
    session = await store.open_session(60.0)
    known = [(await finished(store)).record.ref for _ in range(3)]
    await asyncio.to_thread(store.renew_session, session, 60.0)
    change(path)
    known.append((await finished(store)).record.ref)  # until the next renewal
    for _ in range(2):
        with pytest.raises(Unavailable, match="removed or replaced"):
            await asyncio.to_thread(store.renew_session, session, 60.0)
    with pytest.raises(Unavailable, match="removed or replaced"):
        await store.append(created(new_ref()))
    assert [record.message.partition(":")[0].rpartition("/")[2] for record in caplog.records] == [problem]
    for task in known:
        assert await store.read(task) is not None
    for number in range(2):
        async with aclosing(store.backup(tmp_path / f"copy{number}")) as steps:
            async for _ in steps:
                pass
    await store.close()
    restore(tmp_path / "copy1", tmp_path / "restored.db")
    restored = open_store(tmp_path / "restored.db")
    for task in known:
        assert await restored.read(task) is not None
    await restored.close()


async def test_writes_are_accepted_again_when_the_file_is_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "tasks.db"
    store = open_store(path)
    session = await store.open_session(60.0)
    _rename(path)
    with pytest.raises(Unavailable):
        await asyncio.to_thread(store.renew_session, session, 60.0)
    (tmp_path / "elsewhere.db").rename(path)
    assert await asyncio.to_thread(store.renew_session, session, 60.0) > 0
    task = (await finished(store)).record.ref
    await store.close()
    assert caplog.records[-1].message.endswith("is back: writes are accepted again")
    reopened = open_store(path)
    assert await reopened.read(task) is not None
    await reopened.close()


READ_AND_CLOSE = """
import sqlite3, sys
with sqlite3.connect(sys.argv[1]) as connection:
    connection.execute("SELECT count(*) FROM tasks").fetchone()
connection.close()
"""


async def test_another_program_that_reads_the_store_leaves_its_log_alone(tmp_path: Path) -> None:
    store = open_store(tmp_path / "t.db")
    await store.append(created(new_ref()))
    log = tmp_path / "t.db-wal"
    before = log.stat().st_ino
    reader = await asyncio.create_subprocess_exec(sys.executable, "-c", READ_AND_CLOSE, str(tmp_path / "t.db"))
    assert await reader.wait() == 0
    assert log.exists()
    assert log.stat().st_ino == before
    await store.close()


NO_DESCRIPTORS = """
import asyncio, os, resource, sys
from pathlib import Path
from dragoman.stores.sqlite import open_store
from dragoman.core.errors import Unavailable

async def main():
    store = open_store(Path(sys.argv[1]))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        await store.sessions()
    except Unavailable as error:
        print(error)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    print(await store.sessions(), flush=True)
    os._exit(0)

asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform == "win32", reason="the system has no limit for open files")
async def test_reads_work_again_after_their_connection_could_not_be_opened(tmp_path: Path) -> None:
    words = [sys.executable, "-c", NO_DESCRIPTORS, str(tmp_path / "tasks.db")]
    output = (await asyncio.to_thread(subprocess.run, words, capture_output=True, text=True, check=True)).stdout
    assert output.splitlines() == ["the store cannot be opened; what it has acknowledged is safe", "{}"]
