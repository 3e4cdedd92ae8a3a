"""Which PostgreSQL servers can be used as a store, and the errors of those that cannot."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from tests.postgres import Server, execute, free_port, needed

from dragoman.settings.settings import Settings
from dragoman.stores.postgres import InvalidDatabase, PostgresSchemaTooNew, open_store, schema
from dragoman.stores.postgres import store as opening
from dragoman.testing.fixtures import created, finished, new_ref
from dragoman.wiring.app import open_app
from dragoman.wiring.infra import StartError


async def refused(url: str, **options: Any) -> str:
    """The error of opening a database: one line."""
    with pytest.raises(InvalidDatabase) as caught:
        await open_store(url, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# Connecting ----------------------------------------------------------------------------------------------------------


async def test_an_unreachable_server_is_reported_in_one_line() -> None:
    message = await refused(f"postgresql://me:secret-of-mine@127.0.0.1:{free_port()}/db")
    assert "it cannot be reached; check that it is running there and listening" in message
    assert "secret-of-mine" not in message


async def test_an_unknown_host_is_reported() -> None:
    assert "cannot be reached" in await refused("postgresql://me@no-such-host.invalid/db")


async def test_a_missing_database_is_reported(postgres: Server) -> None:
    message = await refused(postgres.url("nowhere"))
    assert 'database "nowhere" does not exist' in message
    assert "create it with createdb" in message


@pytest.fixture
def strict(postgres: Server) -> Iterator[Server]:
    """The server, while it requires a password of the user `guest`."""
    rules = postgres.data / "pg_hba.conf"
    before = rules.read_text()
    rules.write_text(f"host all guest 127.0.0.1/32 scram-sha-256\n{before}")
    postgres.run("pg_ctl", "reload", "-D", str(postgres.data))
    try:
        yield postgres
    finally:
        rules.write_text(before)
        postgres.run("pg_ctl", "reload", "-D", str(postgres.data))


async def test_invalid_credentials_are_rejected_and_not_shown(
    strict: Server, postgres_url: str, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    await execute(postgres_url, "CREATE ROLE guest LOGIN PASSWORD 'right-one'")
    try:
        url = postgres_url.replace("postgres@", "guest:wrong-one@")
        message = await refused(url)
        assert 'password authentication failed for user "guest"' in message
        assert "PGPASSWORD" in message
        settings = Settings(store=url, http="127.0.0.1:0", grpc="127.0.0.1:0")  # type: ignore[arg-type]
        with pytest.raises(StartError) as caught:
            async with open_app(settings):
                pass
        assert str(caught.value).startswith(f"the store {url.replace(':wrong-one', '')} cannot be opened: ")
        assert "wrong-one" not in message + str(caught.value) + repr(caught.value.__cause__) + caplog.text
    finally:
        await execute(postgres_url, "DROP ROLE guest")


async def test_a_user_without_create_permission_gets_the_missing_permission(postgres_url: str) -> None:
    await execute(postgres_url, "CREATE ROLE poor LOGIN")
    try:
        message = await refused(postgres_url.replace("postgres@", "poor@"))
        assert "permission denied for schema public: this user lacks a permission" in message
    finally:
        await execute(postgres_url, "DROP ROLE poor")


async def test_an_invalid_url_is_reported_without_its_password() -> None:
    message = await refused("postgresql://me:secret-of-mine@127.0.0.1:port/db")
    assert "secret-of-mine" not in message


# Requirements --------------------------------------------------------------------------------------------------------


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


# The schema ----------------------------------------------------------------------------------------------------------


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
