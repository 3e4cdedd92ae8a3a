"""Group commit: batches, their round trips, and items that the database rejects."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from tests.stores.store_suite import StoreBatches

from dragoman.core.errors import Unavailable
from dragoman.core.task.log import IdempotencyKey
from dragoman.extensions.postgres.store import PostgresStore
from dragoman.stores.shared.errors import StoreFault
from dragoman.testing.fixtures import (
    AGENT,
    created,
    new_ref,
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
    # Begin, records, keys; rows, keys; commit. The first time the owner is written and read, and the day's keys of
    # daily usage are read, too.
    assert counts == [9, 6]
