"""The contract behind a pooler in transaction mode, where every transaction gets another connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest
from tests.pooler import Pooler, pooler
from tests.postgres import Server

from dragoman.extensions.postgres.store import PostgresStore, open_store
from dragoman.testing.contracts.store_pushes import StorePushes
from dragoman.testing.contracts.store_reads import StoreReads
from dragoman.testing.contracts.store_sessions import StoreSessions
from dragoman.testing.contracts.store_tables import StoreApiKeys
from dragoman.testing.contracts.store_usage import StoreAdmission
from dragoman.testing.contracts.store_writes import StoreWrites
from dragoman.testing.fixtures import Clock

pytestmark = pytest.mark.longest


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def behind(postgres: Server, postgres_url: str) -> AsyncIterator[tuple[Pooler, str]]:
    """A pooler, and the URL of a database through it."""
    async with pooler(postgres.port) as (stands, port):
        yield stands, postgres_url.replace(f":{postgres.port}/", f":{port}/")


@pytest.fixture
async def store(behind: tuple[Pooler, str], clock: Clock) -> AsyncIterator[PostgresStore]:
    store = await open_store(behind[1], clock=clock, pooled=True)
    yield store
    await store.close()


async def test_the_pooler_gives_each_transaction_another_connection(behind: tuple[Pooler, str]) -> None:
    connection = await asyncpg.connect(behind[1], statement_cache_size=0)
    pids = []
    for _ in range(3):
        async with connection.transaction():
            pids.append(await connection.fetchval("SELECT pg_backend_pid()"))
            assert await connection.fetchval("SELECT pg_backend_pid()") == pids[-1]
    assert len(set(pids)) == 3
    await connection.close()


async def test_connections_have_no_state_between_transactions(behind: tuple[Pooler, str], store: PostgresStore) -> None:
    session = await store.open_session(10)
    await asyncio.to_thread(store.renew_session, session, 10)
    left = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"
    changed = "source = 'session' AND setting <> reset_val AND name NOT LIKE 'transaction%'"
    settings = f"SELECT count(*) FROM pg_settings WHERE {changed}"
    for sql in (left, settings, "SELECT count(*) FROM pg_prepared_statements"):
        counts = [await store._database.read(_value, sql) for _ in range(6)]
        assert set(counts) == {0}, sql


async def _value(connection: asyncpg.Connection, sql: str) -> object:
    return await connection.fetchval(sql)


class TestWrites(StoreWrites):
    pass


class TestReads(StoreReads):
    pass


class TestSessions(StoreSessions):
    pass


class TestPushes(StorePushes):
    pass


class TestAdmission(StoreAdmission):
    pass


class TestApiKeys(StoreApiKeys):
    pass
