"""The write coalescer: batches of an idle, a busy and a full loop. A commit: its results, and failures of one write."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from dragoman.core.errors import Unavailable
from dragoman.core.task import states
from dragoman.core.task.log import Append, Appended, AppendRejected
from dragoman.stores.sqlite import SqliteStore, open_store
from dragoman.stores.sqlite.hot import SqliteTimings
from dragoman.stores.sqlite.hot.writer import (
    IDLE_ITERATIONS,
    SqliteCommitter,
    SqliteQueuedWrite,
    WriteCoalescer,
    WriteJob,
)
from dragoman.stores.sqlite.schema import connect, migrate
from dragoman.testing.fixtures import (
    Clock,
    by_runner,
    chunk,
    created,
    new_ref,
    running,
    status,
)

ALWAYS_IDLE = SqliteTimings(idle_iteration=1000.0)
"""On any machine each iteration of the loop counts as idle."""

NEVER_IDLE = SqliteTimings(idle_iteration=0.0, max_hold=1000.0)

MIB = 1024 * 1024


async def run_loop_turns(number: int) -> None:
    """Runs this many loop iterations."""
    for _ in range(number):
        await asyncio.sleep(0)


async def test_changes_of_one_loop_iteration_are_handed_over_together() -> None:
    handed: list[list[int]] = []
    gathered = WriteCoalescer(handed.append, ALWAYS_IDLE)
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
    gathered = WriteCoalescer(handed.append, SqliteTimings(idle_iteration=0.0, max_hold=0.005), lambda: now)
    for number in range(4):
        gathered.add(number)
        await run_loop_turns(3)
    assert handed == []
    now += 0.005
    await run_loop_turns(1)
    assert handed == [[0, 1, 2, 3]]


async def test_a_full_batch_is_handed_over_at_once() -> None:
    handed: list[list[int]] = []
    gathered = WriteCoalescer(handed.append, replace(NEVER_IDLE, max_batch=3))
    for number in range(3):
        gathered.add(number)
    await run_loop_turns(1)
    assert handed == [[0, 1, 2]]


async def test_a_lone_change_waits_for_no_idle_iteration() -> None:
    handed: list[list[int]] = []
    gathered = WriteCoalescer(handed.append, NEVER_IDLE, is_alone=lambda: len(handed) == 1)
    gathered.add(1)
    await run_loop_turns(IDLE_ITERATIONS + 1)
    assert handed == []
    gathered.flush()
    gathered.add(2)
    await run_loop_turns(1)
    assert handed == [[1], [2]]


async def test_flushed_changes_are_handed_over_once() -> None:
    handed: list[list[int]] = []
    gathered = WriteCoalescer(handed.append, ALWAYS_IDLE)
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


# Commits -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    connection = connect(tmp_path / "tasks.db")
    migrate(connection)
    yield connection
    connection.close()


def commit(committer: SqliteCommitter, *jobs: WriteJob) -> list[object]:
    """The result or error of each."""
    loop = asyncio.get_running_loop()
    committer.commit([SqliteQueuedWrite(job, loop.create_future()) for job in jobs])
    results, committer.results = committer.results, []
    return [result.error or result.result for result in results]


def stored(connection: sqlite3.Connection) -> set[bytes]:
    assert not connection.in_transaction
    return {key for (key,) in connection.execute("SELECT task FROM tasks")}


async def test_a_batch_is_one_transaction(connection: sqlite3.Connection) -> None:
    committer = SqliteCommitter(connection, Clock())
    sent: list[str] = []
    connection.set_trace_callback(sent.append)
    results = commit(committer, *(created(new_ref()) for _ in range(20)))
    assert all(isinstance(result, Appended) for result in results)
    assert (sent.count("BEGIN IMMEDIATE"), sent.count("COMMIT")) == (1, 1)
    assert (committer.counters.changes.sum, committer.counters.failed_batches) == (20, 0)


async def test_a_rejected_change_is_rejected_alone(connection: sqlite3.Connection) -> None:
    committer, first = SqliteCommitter(connection, Clock()), created(new_ref())
    other = created(new_ref())
    results = commit(committer, first, first, other)
    assert [type(result) for result in results] == [Appended, AppendRejected, Appended]
    assert stored(connection) == {first.task.key, other.task.key}


async def test_a_write_that_fails_is_retried_alone(connection: sqlite3.Connection) -> None:
    committer = SqliteCommitter(connection, Clock())
    changes: list[Append] = [created(new_ref()) for _ in range(3)]

    def fail(connection: sqlite3.Connection) -> None:
        connection.execute("DELETE FROM tasks")
        raise ValueError("a job that fails")

    results = commit(committer, *changes[:2], fail, changes[2])
    assert [type(result) for result in results] == [Appended, Appended, ValueError, Appended]
    assert stored(connection) == {change.task.key for change in changes}
    assert committer.counters.failed_batches == 2  # the batch, and the job alone


async def test_a_batch_waits_once_for_a_file_that_another_program_has_locked(
    connection: sqlite3.Connection, tmp_path: Path
) -> None:
    """As often as there are writes, a caller would wait for all before it."""
    connection.execute("PRAGMA busy_timeout = 0")
    committer = SqliteCommitter(connection, Clock())
    begun: list[str] = []
    connection.set_trace_callback(lambda text: begun.append(text) if text.startswith("BEGIN") else None)
    with closing(sqlite3.connect(tmp_path / "tasks.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        results = commit(committer, *(created(new_ref()) for _ in range(5)))
    assert [type(result) for result in results] == [Unavailable] * 5
    assert len(begun) == 1
    assert [type(result) for result in commit(committer, created(new_ref()))] == [Appended]


async def test_a_job_that_fails_is_rolled_back(connection: sqlite3.Connection) -> None:
    committer, change = SqliteCommitter(connection, Clock()), created(new_ref())
    commit(committer, change)

    def fail(connection: sqlite3.Connection) -> None:
        connection.execute("DELETE FROM tasks")
        raise ValueError("a job that fails")

    with pytest.raises(ValueError, match="a job"):
        committer.commit_job(fail)
    assert stored(connection) == {change.task.key}


def begun_tasks(connection: sqlite3.Connection) -> int:
    """The begun tasks in the stored figures."""
    found: int = connection.execute("SELECT coalesce(sum(begun), 0) FROM hourly_usage").fetchone()[0]
    return found


async def test_begun_tasks_are_counted_with_the_next_commit(connection: sqlite3.Connection) -> None:
    committer = SqliteCommitter(connection, Clock())
    commit(committer, created(new_ref()), created(new_ref()))
    assert (begun_tasks(connection), committer.has_deferred_figures) == (0, True)
    commit(committer, created(new_ref()))
    assert (begun_tasks(connection), committer.has_deferred_figures) == (3, False)


async def test_results_are_counted_in_their_own_commit(connection: sqlite3.Connection) -> None:
    committer = SqliteCommitter(connection, Clock())
    (task,) = commit(committer, created(new_ref(), claim=7))
    assert isinstance(task, Appended)
    commit(committer, by_runner(task, status(states.COMPLETED), end=True))
    assert (begun_tasks(connection), committer.has_deferred_figures) == (1, False)
    assert connection.execute("SELECT sum(completed), sum(turns) FROM hourly_usage").fetchone() == (1, 1)


async def test_any_job_writes_what_was_begun_before_it(connection: sqlite3.Connection) -> None:
    committer = SqliteCommitter(connection, Clock())
    commit(committer, created(new_ref()))
    assert commit(committer, begun_tasks) == [1]
    results = commit(committer, created(new_ref()), begun_tasks, created(new_ref()), begun_tasks)
    assert (results[1], results[3]) == (2, 3)
    commit(committer, created(new_ref()))
    committer.commit_job(lambda _: None)
    assert (begun_tasks(connection), committer.has_deferred_figures) == (4, False)


async def test_a_failed_commit_loses_and_repeats_no_figures(connection: sqlite3.Connection) -> None:
    committer = SqliteCommitter(connection, Clock())

    def fail(connection: sqlite3.Connection) -> None:
        raise ValueError("a job that fails")

    commit(committer, created(new_ref()))
    commit(committer, created(new_ref()), fail)
    with pytest.raises(ValueError, match="a job"):
        committer.commit_job(fail)
    committer.commit_job(lambda _: None)
    assert begun_tasks(connection) == 2


async def test_a_store_that_is_closed_has_counted_everything(tmp_path: Path) -> None:
    store = open_store(tmp_path / "tasks.db")
    await store.append(created(new_ref()))
    await store.close()
    connection = connect(tmp_path / "tasks.db", readonly=True)
    assert begun_tasks(connection) == 1
    connection.close()


# Checkpoints: a short write-ahead log, whatever is written and read -----------------------------------------------


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


async def test_large_commits_fill_the_log_before_there_are_many_of_them(tmp_path: Path) -> None:
    timings = SqliteTimings(checkpoint_interval=1_000_000, target_wal_pages=256, max_wal_bytes=8 * MIB)
    store = open_store(tmp_path / "tasks.db", timings=timings)
    wal = tmp_path / "tasks.db-wal"
    claimed, sizes = await running(store), []
    for _ in range(40):
        await store.append(by_runner(claimed, chunk("out", "x" * MIB)))
        sizes.append(wal.stat().st_size)
    assert max(sizes) < 24 * MIB  # of the 40 that are written; one checkpoint may run beside a few commits
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
