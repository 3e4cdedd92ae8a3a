"""The complete contract on a PostgreSQL store migrated by a newer release, before and during its use."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial

import asyncpg
import pytest
from tests.postgres import Server, execute, new_name
from tests.stores import next_schema
from tests.stores.store_suite import *  # noqa: F403

from dragoman.extensions.postgres import schema
from dragoman.extensions.postgres.errors import InvalidDatabase, PostgresSchemaTooNew
from dragoman.extensions.postgres.store import PostgresStore, open_store
from dragoman.testing.fixtures import Clock, created, new_ref

pytestmark = pytest.mark.longest

_TABLES = """
SELECT relname FROM pg_class
WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition
"""

KNOWN = max(number for number, _ in schema._steps())


async def migrate_to_next(url: str, monkeypatch: pytest.MonkeyPatch, *, since: int = KNOWN) -> None:
    """Migrates as the first start of the next release does."""
    await (await open_store(url)).close()
    rows = await execute(url, _TABLES)
    steps = next_schema.with_next_migration(schema._steps(), [row["relname"] for row in rows], since=since)
    with monkeypatch.context() as patch:
        patch.setattr(schema, "_steps", lambda: iter(steps))
        await (await open_store(url)).close()


@pytest.fixture
async def store(postgres: Server, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[PostgresStore]:
    """On a copy of one migrated database: hundreds of tests would migrate twice each."""
    template = await postgres.filled("next_schema", partial(migrate_to_next, monkeypatch=monkeypatch))
    async with postgres.database(new_name(), template) as url:
        store = await open_store(url, clock=clock)
        yield store
        await store.close()


async def test_the_contract_runs_on_the_schema_of_the_next_release(store: PostgresStore) -> None:
    async def value(connection: asyncpg.Connection) -> object:
        return await connection.fetchval("SELECT value FROM meta WHERE name = 'schema'")

    assert await store._database.read(value) == str(KNOWN + 1)


async def test_a_compatible_newer_schema_is_left_unchanged(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    await migrate_to_next(postgres_url, monkeypatch)
    for _ in range(2):
        await (await open_store(postgres_url)).close()
    rows = await execute(postgres_url, "SELECT name, value FROM meta WHERE name IN ('schema', 'oldest') ORDER BY name")
    assert [tuple(row)[:2] for row in rows] == [("oldest", str(KNOWN)), ("schema", str(KNOWN + 1))]


async def test_a_migration_waits_briefly_for_table_locks_and_then_fails(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "MIGRATION_LOCK_TIMEOUT", "50ms")
    monkeypatch.setattr(schema, "MIGRATION_RETRY_INTERVAL", 0.05)
    store = await open_store(postgres_url)
    dump = await asyncpg.connect(postgres_url)
    async with dump.transaction():
        await dump.execute("LOCK TABLE tasks IN ACCESS SHARE MODE")  # as pg_dump does
        migrating_ahead = asyncio.create_task(migrate_to_next(postgres_url, monkeypatch))
        while not migrating_ahead.done():
            await store.append(created(new_ref()))
        with pytest.raises(InvalidDatabase, match="another session holds a lock on a table, perhaps a dump"):
            await migrating_ahead
    await dump.close()
    await migrate_to_next(postgres_url, monkeypatch)
    await store.append(created(new_ref()))  # by a server that was started before
    await store.close()


async def test_an_incompatible_newer_schema_is_rejected_with_the_needed_release(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await migrate_to_next(postgres_url, monkeypatch, since=KNOWN + 1)
    with pytest.raises(
        PostgresSchemaTooNew, match=f"has schema {KNOWN + 1}; .* up to {KNOWN}: start one that knows {KNOWN + 1}"
    ):
        await open_store(postgres_url)
