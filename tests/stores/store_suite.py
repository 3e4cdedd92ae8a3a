"""The complete store contract, and batches of any store. Test modules import it and provide a fixture `store`."""

from __future__ import annotations

import asyncio
from typing import ClassVar

import pytest

from dragoman.ports import Store
from dragoman.testing.contracts.store_contents import StoreContents
from dragoman.testing.contracts.store_daily_usage import StoreDailyUsage
from dragoman.testing.contracts.store_erasure import StoreErasure
from dragoman.testing.contracts.store_pushes import StorePushes
from dragoman.testing.contracts.store_reads import StoreReads
from dragoman.testing.contracts.store_search import StoreSearches
from dragoman.testing.contracts.store_sessions import StoreSessions, StoreSharing
from dragoman.testing.contracts.store_steps import StoreSteps
from dragoman.testing.contracts.store_tables import (
    StoreApiKeys,
    StoreAudit,
    StoreKeyValues,
    StoreUpstreams,
    StoreWorkers,
)
from dragoman.testing.contracts.store_usage import StoreAdmission, StoreUsage
from dragoman.testing.contracts.store_writes import StoreCancels, StoreWrites
from dragoman.testing.fixtures import Clock, created, new_ref

__all__ = [
    "TestAdmission",
    "TestApiKeys",
    "TestAudit",
    "TestCancels",
    "TestContents",
    "TestDailyUsage",
    "TestErasure",
    "TestKeyValues",
    "TestPushes",
    "TestReads",
    "TestSearches",
    "TestSessions",
    "TestSharing",
    "TestSteps",
    "TestUpstreams",
    "TestUsage",
    "TestWorkers",
    "TestWrites",
    "clock",
]


@pytest.fixture
def clock() -> Clock:
    return Clock()


class TestWrites(StoreWrites):
    pass


class TestContents(StoreContents):
    pass


class TestSessions(StoreSessions):
    pass


class TestReads(StoreReads):
    pass


class TestSearches(StoreSearches):
    pass


class TestErasure(StoreErasure):
    pass


class TestSharing(StoreSharing):
    pass


class TestApiKeys(StoreApiKeys):
    pass


class TestKeyValues(StoreKeyValues):
    pass


class TestCancels(StoreCancels):
    pass


class TestAudit(StoreAudit):
    pass


class TestWorkers(StoreWorkers):
    pass


class TestUpstreams(StoreUpstreams):
    pass


class TestPushes(StorePushes):
    pass


class TestAdmission(StoreAdmission):
    pass


class TestUsage(StoreUsage):
    pass


class TestDailyUsage(StoreDailyUsage):
    pass


class TestSteps(StoreSteps):
    pass


class StoreBatches:
    """Batches of a store in this repository, with errors of its database."""

    null_errors: ClassVar[tuple[type[Exception], ...]]
    """What the database raises for a missing value."""

    async def test_an_item_that_the_database_rejects_fails_alone(self, store: Store) -> None:
        good = [created(new_ref()) for _ in range(49)]
        bad = created(new_ref(), agent=None)  # type: ignore[arg-type]  # NOT NULL: no guard foresees it
        changes = [*good[:20], bad, *good[20:]]
        results = await asyncio.gather(*map(store.append, changes), return_exceptions=True)
        failed = [number for number, result in enumerate(results) if isinstance(result, BaseException)]
        assert failed == [20]
        assert isinstance(results[20], self.null_errors)
        assert (await store.stats()).tasks == {(good[0].create.agent, 1): 49}  # type: ignore[union-attr]

    async def test_a_canceled_caller_does_not_stop_its_write(self, store: Store) -> None:
        change = created(new_ref())
        store.append(change).cancel()
        await store.append(created(new_ref()))  # committed after it
        assert await store.read(change.task) is not None

    async def test_close_commits_pending_writes_and_rejects_later_ones(self, store: Store) -> None:
        last = store.append(created(new_ref()))
        await store.close()
        await store.close()
        assert (await last).record.last_sequence == 1
        with pytest.raises(RuntimeError, match="closed"):
            await store.append(created(new_ref()))
