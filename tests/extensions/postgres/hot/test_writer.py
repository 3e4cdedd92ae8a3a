"""Group commit: batches, their round trips, and items that the database rejects."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from tests.stores.store_suite import StoreBatches

from dragoman.core.errors import Unavailable
from dragoman.core.task import states
from dragoman.core.task.log import Append, AppendRejected, IdempotencyKey, Ready
from dragoman.core.task.maintenance import TaskSelection
from dragoman.extensions.postgres import claims
from dragoman.extensions.postgres.store import PostgresStore, open_store
from dragoman.stores.shared.errors import StoreFault
from dragoman.testing.fixtures import (
    AGENT,
    Clock,
    by_runner,
    chunk,
    created,
    follow_up,
    new_ref,
    status,
)

pytestmark = pytest.mark.long


class TestBatches(StoreBatches):
    null_errors = (StoreFault,)


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
    assert not isinstance(results[4], Unavailable)  # a reachable server is not retried


async def test_waiting_changes_are_committed_together(store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = counted(store, monkeypatch)
    await asyncio.gather(*(store.append(created(new_ref())) for _ in range(200)))
    assert sum(sizes) == 200
    assert len(sizes) < 5


async def sent_statements(store: PostgresStore) -> list[str]:
    """The statements that the connection for appends sends from now on."""
    sent: list[str] = []
    async with store._database._connection(store._database._append_pool) as connection:
        connection.add_query_logger(lambda record: sent.append(record.query))
    return sent


async def test_a_batch_of_any_size_takes_a_few_round_trips(store: PostgresStore) -> None:
    """Counts sent statements: for a new task with a key, and for three hundred of them."""
    sent = await sent_statements(store)
    counts = []
    for many in (1, 300):
        sent.clear()
        keys = [IdempotencyKey(AGENT, f"{many}.{number}", b"d") for number in range(many)]
        await asyncio.gather(*(store.append(replace(created(new_ref()), idempotency_key=key)) for key in keys))

        counts.append(len(sent))
    # Begin, records, keys; rows, keys; commit. The first time the owner is written and read, and the day's keys of
    # daily usage are read, too.
    assert counts == [9, 6]


MAX_ROUND_TRIPS = 1
"""Of a commit of a send. It only goes down."""


async def test_each_commit_of_a_send_takes_one_round_trip(store: PostgresStore) -> None:
    """The first ones of a process learn the owner's number, and the day's keys of daily usage."""
    sent = await sent_statements(store)
    first = await store.append(created(new_ref(), claim=7))
    sent.clear()
    await store.append(by_runner(first, status(states.COMPLETED), end=True))
    assert len(sent) <= MAX_ROUND_TRIPS
    sent.clear()
    batch = [await store.append(created(new_ref(), claim=7)) for _ in range(3)]
    assert len(sent) <= 3 * MAX_ROUND_TRIPS
    sent.clear()
    await asyncio.gather(*(store.append(by_runner(one, chunk("out", "x"))) for one in batch))
    assert len(sent) <= MAX_ROUND_TRIPS


async def test_a_turn_of_a_waiting_task_takes_four_round_trips(
    store: PostgresStore, postgres_url: str, clock: Clock
) -> None:
    """Of a process that only runs turns: waiting tasks, claims, inputs, and ends, each for all of them together."""
    worker = await open_store(postgres_url, clock=clock)
    refs = [(await store.append(created(new_ref()))).record.ref for _ in range(4)]
    await worker.messages(refs[0])  # looks a type up
    await worker.append(Append(task=refs.pop(), guard=Ready(), claim_session=7))  # learns the day's keys of daily usage
    sent = await sent_statements(worker)
    async with worker._database._connection(worker._database._pool) as connection:
        connection.add_query_logger(lambda record: sent.append(record.query))
    ready = await worker.ready_tasks([AGENT], 10)
    assert (len(sent), {record.ref for record in ready}) == (1, set(refs))
    changes = [Append(task=ref, guard=Ready(), claim_session=7) for ref in refs]
    claimed = await asyncio.gather(*map(worker.append, changes))
    assert len(sent) == 2
    await asyncio.gather(*map(worker.messages, refs))
    assert len(sent) == 3
    await asyncio.gather(*(worker.append(by_runner(one, status(states.COMPLETED), end=True)) for one in claimed))
    assert len(sent) == 4
    await worker.close()


async def test_tasks_that_two_processes_found_are_claimed_by_one(
    store: PostgresStore, postgres_url: str, clock: Clock
) -> None:
    other = await open_store(postgres_url, clock=clock)
    refs = [(await store.append(created(new_ref()))).record.ref for _ in range(6)]
    for process in (store, other):
        assert len(await process.ready_tasks([AGENT], 10)) == 6
    await other.append(follow_up(refs[0], "more"))
    attempts = [
        process.append(Append(task=ref, guard=Ready(), claim_session=session))
        for ref in refs
        for session, process in ((7, store), (8, other))
    ]
    results = await asyncio.gather(*attempts, return_exceptions=True)
    for pair in zip(results[::2], results[1::2], strict=True):
        assert sorted(type(result).__name__ for result in pair) == ["AppendRejected", "Appended"]
    await other.close()


async def test_a_read_of_waiting_tasks_does_not_replace_what_is_known_of_a_later_claim(store: PostgresStore) -> None:
    await store.append(created(new_ref(), claim=7))
    ref = (await store.append(created(new_ref()))).record.ref
    waiting = await store._database.read(claims.ready_tasks, [AGENT], 10, "")
    claimed = await store.append(Append(task=ref, guard=Ready(), claim_session=7))
    store._writer.known.note_waiting(waiting)
    sent = await sent_statements(store)
    await store.append(by_runner(claimed, chunk("out", "x")))
    assert len(sent) <= MAX_ROUND_TRIPS


async def test_a_task_that_another_process_changed_is_read_again(
    store: PostgresStore, postgres_url: str, clock: Clock
) -> None:
    other = await open_store(postgres_url, clock=clock)
    claimed = await store.append(created(new_ref(), claim=7))
    chunks = [await store.append(by_runner(claimed, chunk("out", "1")))]
    await other.append(follow_up(claimed.record.ref, "more"))
    chunks.append(await store.append(by_runner(claimed, chunk("out", "2"))))
    assert [event.sequence for one in chunks for event in one.events] == [2, 4]
    await other.append(Append(task=claimed.record.ref, guard=by_runner(claimed).guard, retry=True))  # adds no event
    with pytest.raises(AppendRejected):
        await store.append(by_runner(claimed, chunk("out", "3")))
    await other.close()


async def test_a_task_that_exists_is_not_created_again_among_others(store: PostgresStore) -> None:
    """A new task is planned without a read; that its key is taken shows in the database."""
    first = await store.append(created(new_ref(), claim=7))
    await store.append(by_runner(first, status(states.COMPLETED), end=True))
    changes = [created(new_ref()), created(first.record.ref), created(new_ref())]
    results = await asyncio.gather(*map(store.append, changes), return_exceptions=True)
    assert [type(result).__name__ for result in results] == ["Appended", "AppendRejected", "Appended"]
    assert store._writer.commits.failed_batches == 0


async def test_a_task_of_an_erased_owner_gets_a_new_owner(
    store: PostgresStore, postgres_url: str, clock: Clock
) -> None:
    other = await open_store(postgres_url, clock=clock)
    first = await store.append(created(new_ref(), claim=7))
    await store.append(by_runner(first, status(states.COMPLETED), end=True))
    owner = first.record.ref.owner
    await other.erasures.erase(TaskSelection(principal=owner.principal))
    second = await store.append(created(new_ref()))
    assert await other.read(second.record.ref) is not None
    await other.close()


async def test_a_jump_of_the_stores_clock_is_noticed(store: PostgresStore, clock: Clock) -> None:
    """The time of a known batch is estimated; the database has the last word."""
    store._database._clock = None
    first = await store.append(created(new_ref()))
    sent = await sent_statements(store)
    store._writer.known.follow(first.record.updated + 60_000)
    late = await store.append(created(new_ref()))
    assert len(sent) > MAX_ROUND_TRIPS
    assert late.record.updated < first.record.updated + 30_000
