"""Errors of PostgreSQL: what callers and operators read about them, and which are retried."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from tests.postgres import Server, execute, free_port

from dragoman.core.errors import OutOfMemory, Unavailable
from dragoman.settings.settings import Settings
from dragoman.stores.postgres import InvalidDatabase, open_store
from dragoman.stores.postgres.errors import explain, failure_of
from dragoman.wiring.app import open_app
from dragoman.wiring.infra import StartError


async def refused(url: str, **options: Any) -> str:
    """The error of opening a database: one line."""
    with pytest.raises(InvalidDatabase) as caught:
        await open_store(url, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


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
        settings = Settings(store=url, http="127.0.0.1:0", grpc="127.0.0.1:0")
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


def test_a_full_disk_is_an_outage_with_what_to_do() -> None:
    full = asyncpg.DiskFullError("could not extend file: No space left on device")
    outage = failure_of(full)
    assert isinstance(outage, Unavailable)
    assert outage.message == "the store is full; what it has acknowledged is safe, this request was not done"
    assert explain(full).endswith("the disk is full; free some space, nothing that was acknowledged is lost")


def test_an_error_that_a_lack_of_memory_caused_is_a_lack_of_memory() -> None:
    error = asyncpg.DataError("invalid input for query argument $1")
    error.__cause__ = MemoryError()
    assert isinstance(failure_of(error), OutOfMemory)
