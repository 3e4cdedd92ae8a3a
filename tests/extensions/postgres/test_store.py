"""The store contract on PostgreSQL, and the servers that can be used as a store."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from tests.postgres import Server, execute, needed
from tests.stores.store_suite import *  # noqa: F403

from dragoman.extensions.postgres import store as opening
from dragoman.extensions.postgres.errors import InvalidDatabase
from dragoman.extensions.postgres.store import PostgresStore, open_store

pytestmark = pytest.mark.long


async def test_the_query_for_partitions_in_the_manual_lists_them(store: PostgresStore, postgres_url: str) -> None:
    page = (Path(__file__).parents[3] / "docs" / "how-to" / "postgresql.md").read_text("utf-8")
    (sql,) = re.findall(r"```sql [^\n]*\n(.+?)```", page, re.DOTALL)
    (row,) = await execute(postgres_url, sql.rstrip().rstrip(";"))
    assert str(row["partition"]) == "tasks_19700101"


async def test_who_keeps_the_clock_of_a_store_follows_the_server(postgres_url: str) -> None:
    store = await open_store(postgres_url)
    try:
        kept, later = store.now, store.now() + 3_600_000
        store.follow(later)
        assert kept() >= later
    finally:
        await store.close()


async def test_a_backup_is_left_to_the_tools_of_the_database(store: PostgresStore, tmp_path: Any) -> None:
    with pytest.raises(Exception, match="pg_dump"):
        store.backup(tmp_path / "copy")


# Requirements --------------------------------------------------------------------------------------------------------


async def refused(url: str, **options: Any) -> str:
    """The error of opening a database: one line."""
    with pytest.raises(InvalidDatabase) as caught:
        await open_store(url, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


class FakeConnection:
    """A connection that reports other properties of its server."""

    def __init__(self, connection: asyncpg.Connection, **about: object) -> None:
        self._connection = connection
        self._about = about

    async def fetchrow(self, sql: str) -> dict[str, object]:
        return {**dict(await self._connection.fetchrow(sql)), **self._about}


@pytest.mark.parametrize(
    ("about", "message"),
    [
        ({"version": 130_014, "called": "13.14"}, "it is PostgreSQL 13.14; the oldest supported version is 14"),
        ({"encoding": "LATIN1"}, "its encoding is LATIN1; create the database with ENCODING 'UTF8'"),
    ],
)
async def test_a_server_below_the_requirements_is_rejected(
    postgres_url: str, about: dict[str, object], message: str
) -> None:
    connection = await asyncpg.connect(postgres_url)
    with pytest.raises(InvalidDatabase, match=message):
        await opening.check_server(FakeConnection(connection, **about))
    await connection.close()


@asynccontextmanager
async def started(*settings: str) -> AsyncIterator[Server]:
    """A server with other settings."""
    needed()
    server = await asyncio.to_thread(Server, *settings)
    try:
        await asyncio.to_thread(server.start)
        yield server
    finally:
        await asyncio.to_thread(server.remove)


async def test_a_server_without_fsync_is_rejected() -> None:
    async with started("fsync=off") as server:
        assert await refused(server.url()) == (
            "fsync is off: a crash of its machine could destroy all data; turn it on in postgresql.conf"
        )
        assert await execute(server.url(), "SELECT 1 FROM pg_class WHERE relname = 'meta'") == []


async def test_settings_that_may_break_a_guarantee_cause_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    async with started("synchronous_commit=off", "full_page_writes=off") as server:
        await (await open_store(server.url())).close()
    warned = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    assert [line.partition(" is off")[0] for line in warned] == ["full_page_writes", "synchronous_commit"]


async def test_a_standby_is_rejected(tmp_path: Path) -> None:
    async with started() as primary:
        copy = primary.folder / "standby"
        primary.run(
            "pg_basebackup", "-D", str(copy), "-h", "127.0.0.1", "-p", str(primary.port), "-U", "postgres", "-R"
        )
        standby = await asyncio.to_thread(Server, data=copy)
        try:
            await asyncio.to_thread(standby.start)
            assert await refused(standby.url()) == "it is a standby, which is read-only; use the primary"
        finally:
            await asyncio.to_thread(standby.remove)


async def test_a_database_with_read_only_transactions_is_rejected(postgres_url: str) -> None:
    name = postgres_url.rpartition("/")[2]
    await execute(postgres_url, f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    assert "default_transaction_read_only" in await refused(postgres_url)
