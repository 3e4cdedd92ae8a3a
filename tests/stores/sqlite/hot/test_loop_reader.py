"""Reads on the loop: the same results as on the reader threads, and only cheap reads."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import cast

import pytest

from dragoman.core.names import Owner
from dragoman.core.task import states
from dragoman.core.task.contents import unlimited_budget
from dragoman.core.task.log import TaskRecord, TaskRef
from dragoman.core.task.maintenance import TaskSelection
from dragoman.core.task.projection import MAX_CACHED_ENCODINGS, CachedResponse, cached_encoding, cached_response
from dragoman.ports import TaskSnapshot
from dragoman.stores.sqlite import SqliteStore, reads
from dragoman.stores.sqlite.hot.loop_reader import (
    MAX_CACHE_BYTES,
    MAX_LOOP_BYTES,
    MAX_LOOP_ROWS,
    READS_SKIPPED_WHEN_SLOW,
    SLOW_READ_SECONDS,
    LoopReader,
    NotOnLoop,
)
from dragoman.stores.sqlite.schema import connect
from dragoman.testing.fixtures import AGENT, OWNER, artifact, by_runner, finished, follow_up, running, status

MARKER = b"\0 in no task \0"


class ManualClock:
    """Advances by `step` seconds with each call."""

    def __init__(self) -> None:
        self.step = self.now = 0.0

    def __call__(self) -> float:
        self.now += self.step
        return self.now


class Opened:
    """A reader of its own on the store's file, whose reads count as quick unless a test moves the clock."""

    def __init__(self, path: Path, max_cache_bytes: int = MAX_CACHE_BYTES) -> None:
        self.clock = ManualClock()
        self.connection = connect(path, readonly=True)
        self.reader = LoopReader(self.connection, MARKER, self.clock, max_cache_bytes)
        self._other = connect(path, readonly=True)

    def get(self, record: TaskRecord, history: int | None = None) -> TaskSnapshot:
        return self.reader.get(OWNER, AGENT, record.id, history)

    def by_thread(self, ref: TaskRef, history: int | None = None) -> TaskSnapshot | None:
        """What the reader threads return."""
        return reads.read(self._other, ref, history, True, unlimited_budget())

    def close(self) -> None:
        self.reader.close()
        self._other.close()


@pytest.fixture
def opened(store: SqliteStore, tmp_path: Path) -> Iterator[Opened]:
    opened = Opened(tmp_path / "tasks.db")
    yield opened
    opened.close()


async def test_a_cached_task_is_returned_until_it_changes(store: SqliteStore, opened: Opened) -> None:
    claimed = await running(store)
    seen = []
    for number in range(5):
        await store.append(by_runner(claimed, status(states.WORKING, f"{number}")))
        first, again = [opened.get(claimed.record) for _ in range(2)]
        assert first is again
        assert first == opened.by_thread(claimed.record.ref)
        seen.append(first)
    assert len({one.task for one in seen}) == 5


@pytest.mark.parametrize("history", [None, 0, 2])
async def test_each_history_length_is_cached_separately(
    store: SqliteStore, opened: Opened, history: int | None
) -> None:
    claimed = await running(store)
    for text in "abc":
        await store.append(follow_up(claimed.record.ref, text))
    for length in (history, 1, history):
        got = opened.reader.read(claimed.record.ref, length, artifacts=True)
        assert got == opened.by_thread(claimed.record.ref, length)


async def test_a_message_without_an_event_invalidates_the_cache(store: SqliteStore, opened: Opened) -> None:
    claimed = await running(store)
    before = opened.get(claimed.record)
    queued = await store.append(follow_up(claimed.record.ref, "more"))
    after = opened.get(claimed.record)
    assert after == opened.by_thread(claimed.record.ref)
    assert queued.record.message_count == 2
    assert before.task != after.task


async def test_an_erased_task_is_neither_returned_nor_cached(store: SqliteStore) -> None:
    done, other = await finished(store), await finished(store)
    for one in (done, other):
        assert await store.get(OWNER, AGENT, one.record.id) is not None
    await store.erasures.erase(TaskSelection(task=done.record.id))
    assert store.loop_reader.cached_bytes == 0
    assert await store.get(OWNER, AGENT, done.record.id) is None
    assert await store.read(done.record.ref) is None
    assert await store.get(OWNER, AGENT, other.record.id) is not None


async def test_a_cached_task_is_not_shown_to_other_owners(store: SqliteStore, opened: Opened) -> None:
    done = await finished(store)
    opened.get(done.record)
    for owner in (Owner("default", "eve"), Owner("projects/p", OWNER.principal)):
        with pytest.raises(NotOnLoop):
            opened.reader.get(owner, AGENT, done.record.id, None)
        assert await store.get(owner, AGENT, done.record.id) is None
    with pytest.raises(NotOnLoop):
        opened.reader.get(OWNER, "another", done.record.id, None)
    assert await store.get(OWNER, "another", done.record.id) is None


@pytest.mark.parametrize("grow", ["messages", "chunks", "bytes"])
async def test_large_tasks_are_read_on_reader_threads(store: SqliteStore, opened: Opened, grow: str) -> None:
    claimed = await running(store)
    match grow:
        case "messages":
            for number in range(MAX_LOOP_ROWS):
                await store.append(follow_up(claimed.record.ref, f"{number}"))
        case "chunks":
            for number in range(MAX_LOOP_ROWS + 1):
                await store.append(by_runner(claimed, artifact(f"{number}", "x")))
        case _:
            await store.append(by_runner(claimed, artifact("a", "x" * (MAX_LOOP_BYTES + 1))))
    with pytest.raises(NotOnLoop):
        opened.get(claimed.record)
    assert await store.get(OWNER, AGENT, claimed.record.id) == opened.by_thread(claimed.record.ref)
    assert opened.reader.cached_bytes == 0
    assert opened.reader.find(OWNER, AGENT, claimed.record.id).ref == claimed.record.ref


async def test_the_cache_is_bounded(store: SqliteStore, tmp_path: Path) -> None:
    opened = Opened(tmp_path / "tasks.db", max_cache_bytes=20_000)
    records = [(await finished(store, artifact("a", "x" * 3000))).record for _ in range(10)]
    first = opened.get(records[0])
    for record in records:
        assert len(opened.get(record).task) <= opened.reader.cached_bytes <= 20_000
    last = opened.get(records[-1])
    assert opened.get(records[-1]) is last
    assert opened.get(records[0]) is not first
    opened.close()
    assert opened.reader.cached_bytes == 0


async def test_a_read_is_one_snapshot_despite_concurrent_commits(
    store: SqliteStore, opened: Opened, tmp_path: Path
) -> None:
    claimed = await running(store)
    await store.append(by_runner(claimed, status(states.WORKING, "one")))
    before = opened.by_thread(claimed.record.ref)
    assert before is not None

    def delete_messages(sql: str) -> None:
        if "FROM messages" in sql:
            writer = sqlite3.connect(tmp_path / "tasks.db", isolation_level=None)
            writer.execute("DELETE FROM messages WHERE role = 1")
            writer.close()

    opened.connection.set_trace_callback(delete_messages)
    assert opened.get(claimed.record) == before
    opened.connection.set_trace_callback(None)
    after = opened.reader.read(claimed.record.ref, 5, artifacts=True)
    assert after is not None
    assert len(after.task) < len(before.task)


async def test_after_a_slow_read_reader_threads_take_over_for_a_while(store: SqliteStore, opened: Opened) -> None:
    done = await finished(store)
    opened.clock.step = 2 * SLOW_READ_SECONDS
    assert opened.reader.find(OWNER, AGENT, done.record.id) == done.record
    opened.clock.step = SLOW_READ_SECONDS / 2
    for _ in range(READS_SKIPPED_WHEN_SLOW):
        with pytest.raises(NotOnLoop):
            opened.reader.find(OWNER, AGENT, done.record.id)
    assert opened.reader.find(OWNER, AGENT, done.record.id) == done.record


async def test_a_locked_file_does_not_block_the_loop(store: SqliteStore, opened: Opened) -> None:
    done = await finished(store)
    assert opened.connection.execute("PRAGMA busy_timeout").fetchone() == (0,)
    with closing(sqlite3.connect(":memory:")) as memory:
        locked = LoopReader(cast(sqlite3.Connection, LockedConnection(memory)), MARKER)
        with pytest.raises(NotOnLoop):
            locked.find(OWNER, AGENT, done.record.id)


class LockedConnection:
    """Raises for each read what SQLite raises for a locked file."""

    def __init__(self, memory: sqlite3.Connection) -> None:
        self.cursor = memory.cursor

    def execute(self, sql: str, *_: object) -> None:
        if "SELECT" in sql:
            raise sqlite3.OperationalError("database is locked")


def test_an_encoding_is_computed_once_and_few_are_cached() -> None:
    answer, encoded = cached_response(b"answer", "1.0"), []

    def encoder(number: int) -> Callable[[], bytes]:
        def encode() -> bytes:
            encoded.append(number)
            return b"form %d" % number

        return encode

    for number in (*range(MAX_CACHED_ENCODINGS + 1), *range(MAX_CACHED_ENCODINGS + 1)):
        assert cached_encoding(answer, number, encoder(number)) == b"form %d" % number
    assert encoded == [*range(MAX_CACHED_ENCODINGS + 1), MAX_CACHED_ENCODINGS]
    assert cached_encoding(b"plain", 0, encoder(9)) == b"form 9"
    assert isinstance(answer, CachedResponse)
    assert answer == b"answer"
