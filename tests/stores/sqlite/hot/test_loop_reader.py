"""Reads on the loop: the same results as on the reader threads, and only cheap reads."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from dragoman.core.names import Owner
from dragoman.core.task import states
from dragoman.core.task.maintenance import TaskSelection
from dragoman.core.task.projection import MAX_CACHED_ENCODINGS, CachedResponse, cached_encoding, cached_response
from dragoman.stores.sqlite import SqliteStore, open_store, reads
from dragoman.stores.sqlite.hot import loop_reader
from dragoman.stores.sqlite.hot.loop_reader import (
    MAX_CACHE_BYTES,
    MAX_LOOP_BYTES,
    MAX_LOOP_ROWS,
    READS_SKIPPED_WHEN_SLOW,
    SLOW_READ_SECONDS,
    NotOnLoop,
)
from dragoman.testing.fixtures import AGENT, OWNER, artifact, by_runner, finished, follow_up, running, status


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    """A reader whose reads count as quick on any machine, unless a test moves the clock."""
    store = open_store(tmp_path / "tasks.db", synchronous="normal")
    store._loop_reader._clock = lambda: 0.0
    yield store
    await store.close()


async def by_reader(store: SqliteStore, ref: Any, history: int | None = None) -> Any:
    return await store._read(reads.read, ref, history, True)


async def test_a_cached_task_is_returned_until_it_changes(store: SqliteStore) -> None:
    claimed = await running(store)
    seen = []
    for number in range(5):
        await store.append(by_runner(claimed, status(states.WORKING, f"{number}")))
        first, again = [await store.get(OWNER, AGENT, claimed.record.id) for _ in range(2)]
        assert first is again
        assert first == await by_reader(store, claimed.record.ref)
        seen.append(first)
    assert len({one.task for one in seen if one}) == 5


@pytest.mark.parametrize("history", [None, 0, 2])
async def test_each_history_length_is_cached_separately(store: SqliteStore, history: int | None) -> None:
    claimed = await running(store)
    for text in "abc":
        await store.append(follow_up(claimed.record.ref, text))
    for length in (history, 1, history):
        got = await store.read(claimed.record.ref, history=length)
        assert got == await by_reader(store, claimed.record.ref, length)


async def test_a_message_without_an_event_invalidates_the_cache(store: SqliteStore) -> None:
    claimed = await running(store)
    before = await store.get(OWNER, AGENT, claimed.record.id)
    queued = await store.append(follow_up(claimed.record.ref, "more"))
    after = await store.get(OWNER, AGENT, claimed.record.id)
    assert after == await by_reader(store, claimed.record.ref)
    assert queued.record.message_count == 2
    assert before is not None
    assert after is not None
    assert before.task != after.task


async def test_an_erased_task_is_neither_returned_nor_cached(store: SqliteStore) -> None:
    done, other = await finished(store), await finished(store)
    for one in (done, other):
        assert await store.get(OWNER, AGENT, one.record.id) is not None
    await store.erase(TaskSelection(task=done.record.id))
    assert not store._loop_reader._cache
    assert store._loop_reader._cache_bytes == 0
    assert await store.get(OWNER, AGENT, done.record.id) is None
    assert await store.read(done.record.ref) is None
    assert await store.get(OWNER, AGENT, other.record.id) is not None


async def test_a_cached_task_is_not_shown_to_other_owners(store: SqliteStore) -> None:
    done = await finished(store)
    assert await store.get(OWNER, AGENT, done.record.id) is not None
    for owner in (Owner("default", "eve"), Owner("projects/p", OWNER.principal)):
        assert await store.get(owner, AGENT, done.record.id) is None
    assert await store.get(OWNER, "another", done.record.id) is None


@pytest.mark.parametrize("grow", ["messages", "chunks", "bytes"])
async def test_large_tasks_are_read_on_reader_threads(store: SqliteStore, grow: str) -> None:
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
        store._loop_reader.get(OWNER, AGENT, claimed.record.id, None)
    assert await store.get(OWNER, AGENT, claimed.record.id) == await by_reader(store, claimed.record.ref)
    assert not store._loop_reader._cache
    assert store._loop_reader.find(OWNER, AGENT, claimed.record.id).ref == claimed.record.ref


async def test_the_cache_is_bounded(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_reader, "MAX_CACHE_BYTES", 20_000)
    records = [(await finished(store, artifact("a", "x" * 3000))).record for _ in range(10)]
    for head in records:
        assert await store.get(OWNER, AGENT, head.id) is not None
        assert (
            store._loop_reader._cache_bytes
            == sum(len(one.task) for _, one in store._loop_reader._cache.values())
            <= 20_000
        )
    assert 0 < len(store._loop_reader._cache) < 10
    assert MAX_CACHE_BYTES == 4 * 1024 * 1024


async def test_a_read_is_one_snapshot_despite_concurrent_commits(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    claimed = await running(store)
    await store.append(by_runner(claimed, status(states.WORKING, "one")))
    before = await by_reader(store, claimed.record.ref)
    build = reads.task_bytes

    def late(*arguments: Any) -> bytes:
        writer = sqlite3.connect(store._path, isolation_level=None)
        writer.execute("DELETE FROM messages WHERE role = 1")
        writer.close()
        return build(*arguments)

    monkeypatch.setattr(reads, "task_bytes", late)
    assert store._loop_reader.get(OWNER, AGENT, claimed.record.id, None) == before
    monkeypatch.undo()
    after = store._loop_reader.read(claimed.record.ref, 5, artifacts=True)
    assert after is not None
    assert len(after.task) < len(before.task)


def timed(seconds: float) -> Callable[[], float]:
    """A clock that advances by this step with each call."""
    now = 0.0

    def clock() -> float:
        nonlocal now
        now += seconds
        return now

    return clock


async def test_after_a_slow_read_reader_threads_take_over_for_a_while(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = await finished(store)
    monkeypatch.setattr(store._loop_reader, "_clock", timed(2 * SLOW_READ_SECONDS))
    assert store._loop_reader.find(OWNER, AGENT, done.record.id) == done.record
    monkeypatch.setattr(store._loop_reader, "_clock", timed(SLOW_READ_SECONDS / 2))
    for _ in range(READS_SKIPPED_WHEN_SLOW):
        with pytest.raises(NotOnLoop):
            store._loop_reader.find(OWNER, AGENT, done.record.id)
    assert store._loop_reader.find(OWNER, AGENT, done.record.id) == done.record


async def test_a_locked_file_does_not_block_the_loop(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    done = await finished(store)

    class Locked:
        def execute(self, *_: object) -> None:
            raise sqlite3.OperationalError("database is locked")

        def close(self) -> None:
            """No cursor is open."""

    assert store._loop_reader._connection.execute("PRAGMA busy_timeout").fetchone() == (0,)
    store._loop_reader._connection.close()
    monkeypatch.setattr(store._loop_reader, "_connection", Locked())
    assert await store.get(OWNER, AGENT, done.record.id) is not None


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
