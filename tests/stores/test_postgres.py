"""The store contract on PostgreSQL, and what is PostgreSQL's own."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from dragoman.stores.postgres import PostgresStore, open_store
from dragoman.testing.store_admission import StoreAdmission
from dragoman.testing.store_apikeys import StoreApiKeys
from dragoman.testing.store_pushes import StorePushes
from dragoman.testing.store_reads import StoreReads
from dragoman.testing.store_sessions import StoreSessions
from dragoman.testing.store_sharing import StoreSharing
from dragoman.testing.store_size import StoreSize
from dragoman.testing.store_upkeep import StoreUpkeep
from dragoman.testing.store_writes import Clock, StoreWrites


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def store(postgres_url: str, clock: Clock) -> AsyncIterator[PostgresStore]:
    store = await open_store(postgres_url, clock=clock)
    yield store
    await store.close()


class TestWrites(StoreWrites):
    pass


class TestSessions(StoreSessions):
    pass


class TestReads(StoreReads):
    pass


class TestUpkeep(StoreUpkeep):
    pass


class TestSharing(StoreSharing):
    pass


class TestApiKeys(StoreApiKeys):
    pass


class TestPushes(StorePushes):
    pass


class TestAdmission(StoreAdmission):
    pass


class TestSize(StoreSize):
    pass
