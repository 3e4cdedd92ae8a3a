"""Stores on one new database: one of them, or two as of two processes."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.extensions.postgres.two_stores import STATEMENT_TIMEOUT, Stores

from dragoman.extensions.postgres.store import PostgresStore, open_store
from dragoman.testing.fixtures import Clock


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def store(postgres_url: str, clock: Clock) -> AsyncIterator[PostgresStore]:
    store = await open_store(postgres_url, clock=clock, statement_timeout=STATEMENT_TIMEOUT)
    yield store
    await store.close()


@pytest.fixture
async def stores(postgres_url: str, clock: Clock) -> AsyncIterator[Stores]:
    first, second = [await open_store(postgres_url, clock=clock, statement_timeout=STATEMENT_TIMEOUT) for _ in range(2)]
    yield first, second
    await first.close()
    await second.close()
