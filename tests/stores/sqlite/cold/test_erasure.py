"""Erasure in SQLite: rows and bytes of the file, the indexes used, and the priority of appends."""

from __future__ import annotations

import asyncio
import sqlite3
from functools import partial
from pathlib import Path
from typing import Any

from dragoman.core.names import Owner
from dragoman.core.task import states
from dragoman.core.task.log import TaskRecord
from dragoman.core.task.maintenance import TaskSelection, task_ids_digest
from dragoman.stores.shared.erasure import ERASURE_STEP_ROWS, QUEUE_START, QueuedTask, delete_task_content
from dragoman.stores.sqlite import SqliteStore, open_store
from dragoman.stores.sqlite.hot import figures
from dragoman.stores.sqlite.queries import run_query
from dragoman.testing.fixtures import (
    OWNER,
    SESSION,
    Clock,
    artifact,
    by_runner,
    chunk,
    created,
    finished,
    follow_up,
    new_ref,
    running,
)

DAY = 86_400_000


def query(path: Path, sql: str, *values: object) -> list[tuple[Any, ...]]:
    connection = sqlite3.connect(path)
    try:
        return connection.execute(sql, values).fetchall()
    finally:
        connection.close()


def rows_by_table(path: Path) -> dict[str, int]:
    tables = [name for (name,) in query(path, "SELECT name FROM sqlite_master WHERE type = 'table'")]
    return {name: query(path, f'SELECT count(*) FROM "{name}"')[0][0] for name in tables}


async def test_the_log_of_an_erased_task_is_missing_rather_than_truncated(store: SqliteStore, path: Path) -> None:
    head = (await finished(store)).record
    connection = sqlite3.connect(path)
    with connection:  # what the first commit of an erasure leaves to the next ones
        connection.execute("DELETE FROM tasks WHERE task = ?", (head.ref.key,))
    connection.close()
    assert query(path, "SELECT count(*) FROM log") != [(0,)]
    assert await store.events(head.ref, head.last_sequence) == await store.events(head.ref, 0) == []
    assert await store.oldest_sequence(head.ref) == 0


async def test_no_table_has_rows_of_an_erased_principal(store: SqliteStore, path: Path) -> None:
    await finished(store)
    await store.writer.submit(figures.list_tasks)
    before = rows_by_table(path)
    alice = Owner("default", "alice@example.com")
    for _ in range(3):
        claimed = await store.append(created(new_ref(alice), claim=SESSION, context="hers"))
        await store.append(by_runner(claimed, artifact("a", "x"), chunk("b", "y")))
    await store.erasures.erase(TaskSelection(principal="alice@example.com"))
    after = rows_by_table(path)
    assert (after.pop("receipts"), before.pop("receipts")) == (1, 0)
    assert after.pop("sqlite_sequence") >= before.pop("sqlite_sequence")
    # Of figures and of times in the queue; with the erasure, of figures without a name.
    assert (after.pop("hourly_usage"), before.pop("hourly_usage")) == (3, 2)
    usage = query(path, "SELECT principal, begun FROM hourly_usage WHERE bucket = 0 ORDER BY principal")
    assert usage == [("", 3), ("anonymous", 1)]
    assert after == before


async def test_erased_bytes_are_removed_from_the_file(path: Path) -> None:
    store = open_store(path)
    claimed = await running(store)
    for _ in range(50):
        await store.append(by_runner(claimed, artifact("a", "a very private sentence " * 40, append=True)))
    await store.append(created(new_ref(), text="harmless"))
    await store.close()
    assert b"very private" in path.read_bytes()
    store = open_store(path)
    await store.erasures.erase(TaskSelection(task=claimed.record.id))
    await store.close()
    assert b"very private" not in path.read_bytes()
    assert b"harmless" in path.read_bytes()
    assert not path.with_name("tasks.db-wal").exists()


async def test_a_task_that_changed_after_its_selection_is_kept(store: SqliteStore, path: Path, clock: Clock) -> None:
    asking = (await finished(store, state=states.INPUT_REQUIRED)).record
    clock.now += DAY
    selection = TaskSelection(older_than=DAY, state=states.INPUT_REQUIRED)
    stale = [head async for heads in store.erasures.select(selection) for head in heads]
    assert [head.ref for head in stale] == [asking.ref]
    await store.append(created(new_ref()))
    await store.append(by_runner(await _answered(store, asking), artifact("a", "x")))
    number, taken = await store.erasures._delete_task_records(0, selection, stale, clock.now, "purge")
    assert (number, taken) == (0, [])
    assert await store.read(asking.ref) is not None


async def _answered(store: SqliteStore, asking: TaskRecord) -> Any:
    return await store.append(follow_up(asking.ref, "blue", claim=SESSION))


async def test_an_erasure_interrupted_by_a_crash_is_completed_afterwards(path: Path, clock: Clock) -> None:
    store = open_store(path, clock=clock)
    records = [(await finished(store, artifact("a", "x"))).record for _ in range(5)]
    await store.erasures._delete_task_records(0, TaskSelection(context="context"), records, clock.now, "purge")
    await store.close()
    assert rows_by_table(path)["log"] == 10
    store = open_store(path, clock=clock)
    assert await store.read(records[0].ref) is None  # erased since the first commit
    (receipt,) = await store.erasures.resume()
    await store.close()
    assert receipt.digest == task_ids_digest(sorted(head.id for head in records))
    assert (receipt.counts.tasks, receipt.counts.events, receipt.counts.artifacts) == (5, 15, 5)
    rows = rows_by_table(path)
    assert {rows[name] for name in ("tasks", "log", "messages", "artifacts", "chunks", "erasure_queue")} == {0}


async def test_an_erasure_step_is_limited_in_rows_and_bytes(store: SqliteStore, path: Path, clock: Clock) -> None:
    claimed = await running(store)
    for _ in range(4):
        await store.append(by_runner(claimed, *[artifact("a", "x", append=True) for _ in range(500)]))
    selection = TaskSelection(task=claimed.record.id)
    number, _ = await store.erasures._delete_task_records(0, selection, [claimed.record], clock.now, "purge")
    place: QueuedTask | None = QUEUE_START
    left = rows_by_table(path)["chunks"]
    while place is not None:
        place = await store.writer.submit(partial(_sweep, number=number, after=place))
        now = rows_by_table(path)["chunks"]
        assert left - now <= ERASURE_STEP_ROWS
        left = now
    assert left == 0


def _sweep(connection: sqlite3.Connection, number: int, after: QueuedTask) -> QueuedTask | None:
    return run_query(connection, delete_task_content(number, after))


async def test_background_writes_wait_for_pending_appends(store: SqliteStore) -> None:
    done: list[str] = []

    def work(name: str) -> Any:
        return lambda connection: done.append(name)

    writer = store.writer
    await asyncio.gather(
        writer.submit(work("background 1"), low_priority=True),
        writer.submit(work("background 2"), low_priority=True),
        *(writer.submit(work("urgent")) for _ in range(10)),
    )
    assert done[-1] == "background 2"
    assert sorted(done) == ["background 1", "background 2", *["urgent"] * 10]


async def test_background_writes_are_committed_before_the_store_closes(path: Path) -> None:
    store = open_store(path)
    done: list[int] = []

    def job(number: int) -> Any:
        return lambda connection: done.append(number)

    futures = [store.writer.submit(job(number), low_priority=True) for number in range(3)]
    await store.close()
    await asyncio.gather(*futures)
    assert done == [0, 1, 2]


# Tables of other modules -------------------------------------------------------------------------------------------


async def test_rows_of_a_task_a_context_and_a_principal_are_erased_from_other_tables(
    store: SqliteStore, path: Path
) -> None:
    heads = [(await store.append(created(new_ref(), context=context))).record for context in ("a", "a", "b")]
    keys = [record.ref.key for record in heads]

    def fill(connection: sqlite3.Connection) -> None:
        contexts = [("a",), ("b",), ("without a task",)]
        connection.executemany("INSERT INTO context_state VALUES (1, 'echo', ?, 1, x'')", contexts)
        connection.executemany("INSERT INTO usage VALUES (1, ?, '', 1, 1)", [(key,) for key in keys])
        connection.execute(
            "INSERT INTO idempotency (owner, agent, key, digest, first, created) VALUES (1, 'echo', 'k', x'', 0, 0)"
        )

    def contexts() -> list[str]:
        return [row[0] for row in query(path, "SELECT context FROM context_state ORDER BY 1")]

    await store.writer.submit(fill)
    await store.erasures.erase(TaskSelection(task=heads[0].id))
    assert query(path, "SELECT task FROM usage ORDER BY 1") == [(key,) for key in keys[1:]]
    assert contexts() == ["a", "b", "without a task"]  # the context has another task
    await store.erasures.erase(TaskSelection(task=heads[1].id))
    assert contexts() == ["b", "without a task"]
    await store.erasures.erase(TaskSelection(context="without a task"))
    assert contexts() == ["b"]
    assert query(path, "SELECT key FROM idempotency") == [("k",)]
    await store.erasures.erase(TaskSelection(principal=OWNER.principal))
    assert (contexts(), query(path, "SELECT key FROM idempotency UNION SELECT owner FROM owners")) == ([], [])


async def test_the_cancel_request_of_an_erased_task_is_deleted(store: SqliteStore, path: Path) -> None:
    for record in [(await running(store)).record for _ in range(2)]:
        await store.cancel_requests.request(record.ref, b"my name is Ada")
    await store.erasures.erase(TaskSelection(task=record.id))
    assert query(path, "SELECT metadata FROM cancel_requests") == [(b"my name is Ada",)]
