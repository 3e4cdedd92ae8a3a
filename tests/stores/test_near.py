"""Reads on the loop itself: the same answers as the readers give, and only what is cheap."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from dragoman.core import states
from dragoman.core.erasing import Selection
from dragoman.core.names import Owner
from dragoman.core.shared import FORMS, Shared, form, shared
from dragoman.stores.sqlite import SqliteStore, near, open_store, reads
from dragoman.stores.sqlite.near import AWAY, BYTES, KEPT, ROWS, SLOW, Away
from dragoman.testing.changes import AGENT, OWNER, artifact, by_runner, finished, follow_up, running, status


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    """One whose looks are quick, however long the machine takes over them, unless a test says otherwise."""
    store = open_store(tmp_path / "tasks.db", synchronous="normal")
    store._near._clock = lambda: 0.0
    yield store
    await store.close()


async def by_reader(store: SqliteStore, ref: Any, history: int | None = None) -> Any:
    return await store._read(reads.read, ref, history, True)


async def test_what_is_kept_is_given_again_until_the_task_changes(store: SqliteStore) -> None:
    claimed = await running(store)
    seen = []
    for number in range(5):
        await store.append(by_runner(claimed, status(states.WORKING, f"{number}")))
        first, again = [await store.get(OWNER, AGENT, claimed.head.id) for _ in range(2)]
        assert first is again
        assert first == await by_reader(store, claimed.head.ref)
        seen.append(first)
    assert len({one.task for one in seen if one}) == 5


@pytest.mark.parametrize("history", [None, 0, 2])
async def test_each_length_of_history_is_an_answer_of_its_own(store: SqliteStore, history: int | None) -> None:
    claimed = await running(store)
    for text in "abc":
        await store.append(follow_up(claimed.head.ref, text))
    for asked in (history, 1, history):
        got = await store.read(claimed.head.ref, history=asked)
        assert got == await by_reader(store, claimed.head.ref, asked)


async def test_a_message_that_no_event_tells_of_is_seen(store: SqliteStore) -> None:
    claimed = await running(store)
    before = await store.get(OWNER, AGENT, claimed.head.id)
    queued = await store.append(follow_up(claimed.head.ref, "more"))
    after = await store.get(OWNER, AGENT, claimed.head.id)
    assert after == await by_reader(store, claimed.head.ref)
    assert queued.head.messages == 2
    assert before is not None
    assert after is not None
    assert before.task != after.task


async def test_what_was_erased_is_neither_shown_nor_kept(store: SqliteStore) -> None:
    done, other = await finished(store), await finished(store)
    for one in (done, other):
        assert await store.get(OWNER, AGENT, one.head.id) is not None
    await store.erase(Selection(task=done.head.id))
    assert not store._near._kept
    assert store._near._bytes == 0
    assert await store.get(OWNER, AGENT, done.head.id) is None
    assert await store.read(done.head.ref) is None
    assert await store.get(OWNER, AGENT, other.head.id) is not None


async def test_what_is_kept_is_shown_to_nobody_else(store: SqliteStore) -> None:
    done = await finished(store)
    assert await store.get(OWNER, AGENT, done.head.id) is not None
    for owner in (Owner("default", "eve"), Owner("projects/p", OWNER.principal)):
        assert await store.get(owner, AGENT, done.head.id) is None
    assert await store.get(OWNER, "another", done.head.id) is None


@pytest.mark.parametrize("grow", ["messages", "chunks", "bytes"])
async def test_what_is_much_is_read_by_the_readers(store: SqliteStore, grow: str) -> None:
    claimed = await running(store)
    match grow:
        case "messages":
            for number in range(ROWS):
                await store.append(follow_up(claimed.head.ref, f"{number}"))
        case "chunks":
            for number in range(ROWS + 1):
                await store.append(by_runner(claimed, artifact(f"{number}", "x")))
        case _:
            await store.append(by_runner(claimed, artifact("a", "x" * (BYTES + 1))))
    with pytest.raises(Away):
        store._near.get(OWNER, AGENT, claimed.head.id, None)
    assert await store.get(OWNER, AGENT, claimed.head.id) == await by_reader(store, claimed.head.ref)
    assert not store._near._kept
    assert store._near.find(OWNER, AGENT, claimed.head.id).ref == claimed.head.ref


async def test_memory_has_an_end(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(near, "KEPT", 20_000)
    made = [(await finished(store, artifact("a", "x" * 3000))).head for _ in range(10)]
    for head in made:
        assert await store.get(OWNER, AGENT, head.id) is not None
        assert store._near._bytes == sum(len(one.task) for _, one in store._near._kept.values()) <= 20_000
    assert 0 < len(store._near._kept) < 10
    assert KEPT == 4 * 1024 * 1024


async def test_a_look_is_one_snapshot_whatever_is_committed_meanwhile(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    claimed = await running(store)
    await store.append(by_runner(claimed, status(states.WORKING, "one")))
    before = await by_reader(store, claimed.head.ref)
    build = reads.task_bytes

    def late(*arguments: Any) -> bytes:
        writer = sqlite3.connect(store._path, isolation_level=None)
        writer.execute("DELETE FROM messages WHERE role = 1")
        writer.close()
        return build(*arguments)

    monkeypatch.setattr(reads, "task_bytes", late)
    assert store._near.get(OWNER, AGENT, claimed.head.id, None) == before
    monkeypatch.undo()
    after = store._near.read(claimed.head.ref, 5, artifacts=True)
    assert after is not None
    assert len(after.task) < len(before.task)


def timed(seconds: float) -> Callable[[], float]:
    """A clock that shows so much more each time."""
    now = 0.0

    def clock() -> float:
        nonlocal now
        now += seconds
        return now

    return clock


async def test_after_a_slow_look_the_readers_look_for_a_while(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = await finished(store)
    monkeypatch.setattr(store._near, "_clock", timed(2 * SLOW))
    assert store._near.find(OWNER, AGENT, done.head.id) == done.head
    monkeypatch.setattr(store._near, "_clock", timed(SLOW / 2))
    for _ in range(AWAY):
        with pytest.raises(Away):
            store._near.find(OWNER, AGENT, done.head.id)
    assert store._near.find(OWNER, AGENT, done.head.id) == done.head


async def test_who_holds_the_file_does_not_hold_the_loop(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    done = await finished(store)

    class Locked:
        def execute(self, *_: object) -> None:
            raise sqlite3.OperationalError("database is locked")

        def close(self) -> None:
            """Nothing is held."""

    assert store._near._connection.execute("PRAGMA busy_timeout").fetchone() == (0,)
    store._near._connection.close()
    monkeypatch.setattr(store._near, "_connection", Locked())
    assert await store.get(OWNER, AGENT, done.head.id) is not None


def test_a_form_is_made_once_and_few_are_kept() -> None:
    answer, made = shared(b"answer", "1.0"), []

    def make(number: int) -> Callable[[], bytes]:
        def one() -> bytes:
            made.append(number)
            return b"form %d" % number

        return one

    for number in (*range(FORMS + 1), *range(FORMS + 1)):
        assert form(answer, number, make(number)) == b"form %d" % number
    assert made == [*range(FORMS + 1), FORMS]
    assert form(b"plain", 0, make(9)) == b"form 9"
    assert isinstance(answer, Shared)
    assert answer == b"answer"
