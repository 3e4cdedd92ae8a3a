"""The store contract on PostgreSQL, and tests of round trips, rows and indexes."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from tests.postgres import execute
from tests.stores.store_suite import *  # noqa: F403
from tests.stores.store_suite import StoreBatches

from dragoman.core.errors import Unavailable
from dragoman.core.names import Owner, make_task_key
from dragoman.core.task import states
from dragoman.core.task.cursors import TaskQuery
from dragoman.core.task.log import IdempotencyKey, NewTask
from dragoman.core.task.maintenance import TaskSelection
from dragoman.stores.postgres import PostgresStore, blobs, errors, open_store
from dragoman.testing.contracts.store_size import StoreSize
from dragoman.testing.fixtures import (
    AGENT,
    OWNER,
    Clock,
    artifact,
    by_runner,
    chunk,
    created,
    file,
    finished,
    follow_up,
    new_ref,
    running,
)


@pytest.fixture
async def store(postgres_url: str, clock: Clock) -> AsyncIterator[PostgresStore]:
    store = await open_store(postgres_url, clock=clock)
    yield store
    await store.close()


class TestSize(StoreSize):
    pass


# Batches --------------------------------------------------------------------------------------------------------------


class TestBatches(StoreBatches):
    null_errors = (asyncpg.NotNullViolationError,)


def counted(store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the batches that a store commits from now on."""
    sizes: list[int] = []
    together = store._writer._commit_together

    async def count(batch: Any) -> Any:
        sizes.append(len(batch))
        return await together(batch)

    monkeypatch.setattr(store._writer, "_commit_together", count)
    return sizes


async def test_an_unencodable_text_fails_alone(store: PostgresStore) -> None:
    good = [created(new_ref()) for _ in range(9)]
    bad = created(new_ref(), context="half of a pair: \ud800")
    results = await asyncio.gather(*map(store.append, [*good[:4], bad, *good[4:]]), return_exceptions=True)
    assert [number for number, result in enumerate(results) if isinstance(result, BaseException)] == [4]
    assert isinstance(results[4], BaseException)
    assert not isinstance(results[4], Unavailable)
    assert not errors.is_unreachable(results[4])  # a reachable server is not retried


async def test_waiting_changes_are_committed_together(store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = counted(store, monkeypatch)
    await asyncio.gather(*(store.append(created(new_ref())) for _ in range(200)))
    assert sum(sizes) == 200
    assert len(sizes) < 5


async def test_a_batch_of_any_size_takes_a_few_round_trips(store: PostgresStore) -> None:
    """Counts sent statements: for a new task with a key, and for three hundred of them."""
    sent: list[str] = []
    async with store._database._append_pool.acquire() as connection:
        connection.add_query_logger(lambda record: sent.append(record.query))
    counts = []
    for many in (1, 300):
        sent.clear()
        keys = [IdempotencyKey(AGENT, f"{many}.{number}", b"d") for number in range(many)]
        await asyncio.gather(*(store.append(replace(created(new_ref()), idempotency_key=key)) for key in keys))

        counts.append(len(sent))
    # Begin, records, keys; rows, keys; commit. The first time the owner is written and read, too.
    assert counts == [8, 6]


# Rows ----------------------------------------------------------------------------------------------------------------


async def test_texts_with_nul_characters_are_stored(store: PostgresStore) -> None:
    """PostgreSQL allows no U+0000 in a text; callers may put it into an id."""
    for text in ("a\0b", "a\1b", "\0", "\1\1", "a\0\1\2b"):
        owner = Owner(f"scope {text}", f"principal {text}")
        ref = new_ref(owner)
        new = NewTask(AGENT, text, f"context {text}", alias=True, joinable=True)
        key = IdempotencyKey(AGENT, f"key {text}", b"d")
        appended = await store.append(replace(created(ref, claim=7), create=new, idempotency_key=key))
        await store.append(by_runner(appended, artifact(f"artifact {text}", "x"), chunk(f"artifact {text}", "y")))
        found = await store.find(owner, AGENT, text)
        assert found is not None
        assert (found.ref, found.id, found.context, found.principal) == (ref, text, new.context, owner.principal)
        snapshot = await store.read(ref)
        assert snapshot is not None
        assert f"artifact {text}".encode() in snapshot.task
        page = await store.page(TaskQuery(owner, AGENT, context=new.context))
        assert (page.total, len(page.tasks)) == (1, 1)
        assert await store.context_owner(owner, new.context) == owner
        assert [head.ref for head in await store.locate(text)] == [ref]


async def test_the_log_can_be_partitioned_by_time(store: PostgresStore, postgres_url: str) -> None:
    """Executes the SQL of docs/how-to/postgresql.md."""
    page = (Path(__file__).parents[3] / "docs" / "how-to" / "postgresql.md").read_text("utf-8")
    (sql,) = re.findall(r"```sql [^\n]*\n(.+?)```", page, re.DOTALL)
    connection = await asyncpg.connect(postgres_url)
    await connection.execute(sql)
    await connection.close()
    instants = (
        datetime(2026, 12, 31, 23, 59),
        datetime(2027, 1, 1),
        datetime(2027, 12, 31, 23, 59),
        datetime(2028, 1, 1),
    )
    for instant in instants:
        ref = new_ref()._replace(key=make_task_key(int(instant.replace(tzinfo=UTC).timestamp()) * 10**9, bytes(8)))
        claimed = await store.append(created(ref, claim=7))
        await store.append(by_runner(claimed, *[chunk("out", str(n)) for n in range(5)]))
        assert [event.sequence for event in await store.events(ref, 0)] == list(range(1, 7))
    for table in ("log_rest", "log_2027"):
        (row,) = await execute(postgres_url, f"SELECT count(DISTINCT task) FROM {table}")
        assert row[0] == 2


async def test_no_request_scans_a_table_of_tasks(store: PostgresStore, postgres_url: str) -> None:
    """All requests of callers use an index, also right after the tables grew, and after ANALYZE."""
    for _ in range(3):
        await asyncio.gather(*(finished(store, artifact("a", "x")) for _ in range(300)))
    waiting = [created(new_ref(Owner("default", f"caller {number % 7}"))) for number in range(200)]
    await asyncio.gather(*map(store.append, waiting))
    await execute(postgres_url, "ANALYZE")

    async def walked() -> dict[str, int]:
        sql = "SELECT relname, seq_scan FROM pg_stat_user_tables WHERE relname <> 'meta'"
        await execute(postgres_url, "SELECT pg_stat_force_next_flush()")
        return dict(await execute(postgres_url, sql))

    async with store._database._pool.acquire() as connection:
        await connection.execute("SELECT pg_stat_force_next_flush()")
    before = await walked()
    claimed = await running(store)
    ref = claimed.record.ref
    await asyncio.gather(*(store.append(by_runner(claimed, chunk("out", "x"))) for _ in range(100)))
    await store.append(replace(follow_up(ref, "more"), idempotency_key=IdempotencyKey(AGENT, "k", b"d")))
    await store.read(ref, history=1)
    await store.events(ref, 50)
    await store.messages(ref)
    await store.find(OWNER, AGENT, claimed.record.id)
    await store.page(TaskQuery(OWNER, AGENT, page_size=10))
    await store.page(TaskQuery(OWNER, AGENT, state=states.COMPLETED, page_size=10))
    await store.append(created(new_ref(), context="a talk"))
    await store.page(TaskQuery(OWNER, AGENT, context="a talk", page_size=10))
    assert len(await store.ready_tasks([AGENT], 10)) == 10
    assert [head.ref for head in await store.orphaned_tasks(8, 10)] == [ref]
    await store.close()  # so that all connections report their statistics
    after = await walked()
    large = {"tasks", "log_rest", "messages", "artifacts", "chunks", "idempotency"}
    assert {name: after[name] - before[name] for name in large} == dict.fromkeys(large, 0)


async def test_unreferenced_large_parts_are_removed_after_a_grace_period(
    store: PostgresStore, postgres_url: str, clock: Clock
) -> None:
    content, other = b"x" * 300_000, b"y" * 300_000
    first = await finished(store, file("a", content), file("b", other))
    second = await finished(store, file("a", content))

    async def kept() -> int:
        (row,) = await execute(postgres_url, "SELECT count(*) FROM blobs")
        return int(row[0])

    clock.now += blobs.UNUSED_BLOB_GRACE_MS + 1
    assert (await store.compact()).files == 0
    await store.erase(TaskSelection(task=first.record.id))
    assert (await store.compact()).files == 1
    assert await kept() == 1
    assert (await store.compact()).files == 0
    await store.erase(TaskSelection(task=second.record.id))
    assert (await store.compact()).files == 1
    late = await running(store)
    with pytest.raises(Exception, match="fenced"):
        await store.append(replace(by_runner(late, file("a", content)), guard=by_runner(first).guard))
    assert await kept() == 1
    assert (await store.compact()).files == 0  # it was just written: its append might be in progress
    clock.now += blobs.UNUSED_BLOB_GRACE_MS + 1
    assert (await store.compact()).files == 1
