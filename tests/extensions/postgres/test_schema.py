"""The schema of a database: created once, migrated completely or not at all."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.postgres import execute

from dragoman.extensions.postgres import schema
from dragoman.extensions.postgres.errors import InvalidDatabase, PostgresSchemaTooNew
from dragoman.extensions.postgres.store import open_store
from dragoman.testing.fixtures import created, finished, new_ref

pytestmark = pytest.mark.long


async def refused(url: str, **options: Any) -> str:
    """The error of opening a database: one line."""
    with pytest.raises(InvalidDatabase) as caught:
        await open_store(url, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


async def test_a_store_of_a_newer_version_is_rejected(postgres_url: str) -> None:
    await (await open_store(postgres_url)).close()
    await execute(postgres_url, "UPDATE meta SET value = '99' WHERE name IN ('schema', 'oldest')")
    with pytest.raises(PostgresSchemaTooNew, match="the store has schema 99; this version of Dragoman knows up to "):
        await open_store(postgres_url)


async def test_servers_that_start_together_make_one_schema(postgres_url: str) -> None:
    stores = await asyncio.gather(*(open_store(postgres_url) for _ in range(5)))
    assert len({store.epoch for store in stores}) == 1
    assert len({store.secret("x") for store in stores}) == 1
    for store in stores:
        await store.append(created(new_ref()))
        await store.close()


async def test_a_migration_that_fails_leaves_the_schema_as_it_was(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await (await open_store(postgres_url)).close()
    known = list(schema._steps())
    after = max(number for number, _ in known)
    steps = [*known, (after + 1, "CREATE TABLE half (a int)"), (after + 2, "SELECT no_such_function()")]
    monkeypatch.setattr(schema, "_steps", lambda: iter(steps))
    assert "no_such_function" in await refused(postgres_url)
    assert await execute(postgres_url, "SELECT 1 FROM pg_class WHERE relname = 'half'") == []
    monkeypatch.undo()
    await (await open_store(postgres_url)).close()


async def test_a_reopened_store_has_its_tasks_its_epoch_and_its_secrets(postgres_url: str) -> None:
    first = await open_store(postgres_url)
    task = await finished(first)
    await first.close()
    second = await open_store(postgres_url)
    assert (second.epoch, second.secret("a")) == (first.epoch, first.secret("a"))
    assert await second.read(task.record.ref) is not None
    await second.close()


async def test_tables_are_not_created_without_make(postgres_url: str) -> None:
    assert "this database has no store" in await refused(postgres_url, make=False)
    assert await execute(postgres_url, "SELECT 1 FROM pg_class WHERE relname = 'meta'") == []
