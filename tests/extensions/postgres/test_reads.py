"""Reads of callers use indexes, and all servers read the same."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from tests.extensions.postgres.two_stores import Stores
from tests.postgres import execute

from dragoman.core.names import Owner
from dragoman.core.task import states
from dragoman.core.task.cursors import TaskQuery
from dragoman.core.task.log import (
    Append,
    Exists,
    IdempotencyKey,
    IncomingMessage,
)
from dragoman.extensions.postgres.store import PostgresStore
from dragoman.testing.fixtures import (
    AGENT,
    OWNER,
    artifact,
    by_runner,
    chunk,
    created,
    finished,
    follow_up,
    message,
    new_ref,
    running,
)

pytestmark = pytest.mark.long


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
    large = {"idempotency"} | {f"{name}_19700101" for name in ("tasks", "log", "messages", "artifacts", "chunks")}
    assert {name: after[name] - before[name] for name in large} == dict.fromkeys(large, 0)


async def test_two_servers_read_the_same_task(stores: Stores) -> None:
    ref = (await stores[0].append(created(new_ref()))).record.ref
    await stores[1].append(Append(task=ref, guard=Exists(), message=IncomingMessage(message("hi"), sender="guest")))
    assert await stores[0].read(ref) == await stores[1].read(ref)
