"""Errors of PostgreSQL: what callers and operators read about them, and which are retried."""

from __future__ import annotations

import inspect
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from tests.postgres import Server, execute, free_port

from dragoman.core.errors import OutOfMemory, Unavailable
from dragoman.extensions.postgres.errors import (
    ERROR_TABLE,
    CommitOutcomeUnknown,
    InvalidDatabase,
    explain,
    failure_of,
    verdict_of,
)
from dragoman.extensions.postgres.store import open_store
from dragoman.ports.extension import StartError
from dragoman.settings.settings import Settings
from dragoman.stores.shared.errors import StoreFault, Verdict
from dragoman.wiring.app import open_app

pytestmark = pytest.mark.long


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


def error_classes() -> list[type[Exception]]:
    """Every exception of the driver, without its warnings."""
    classes = inspect.getmembers(asyncpg.exceptions, inspect.isclass)
    found = [kind for _, kind in classes if issubclass(kind, Exception) and not issubclass(kind, Warning)]
    assert len(found) > 200
    return found


@pytest.mark.parametrize("kind", error_classes(), ids=lambda kind: kind.__name__)
def test_every_error_of_the_driver_has_a_row(kind: type[BaseException]) -> None:
    """By its code, by the class of its code, or by its class; not by a default."""
    code = getattr(kind, "sqlstate", None)
    if code is not None:
        assert code in ERROR_TABLE or code[:2] in ERROR_TABLE
    elif not issubclass(kind, asyncpg.PostgresError):  # these are bases of classes with a code
        assert any(base in ERROR_TABLE for base in kind.__mro__)


@pytest.mark.parametrize("code", sorted(key for key in ERROR_TABLE if isinstance(key, str)))
def test_every_row_is_of_a_code_that_exists(code: str) -> None:
    codes = {kind.sqlstate for kind in error_classes() if getattr(kind, "sqlstate", None)}  # type: ignore[attr-defined]
    warnings = ("01", "02")
    assert code in codes or (len(code) == 2 and (any(each.startswith(code) for each in codes) or code in warnings))


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (asyncpg.SerializationError("x"), Verdict.REPEAT),
        (asyncpg.DeadlockDetectedError("x"), Verdict.REPEAT),
        (asyncpg.QueryCanceledError("x"), Verdict.REPEAT),
        (asyncpg.InvalidCachedStatementError("x"), Verdict.REPEAT),
        (asyncpg.AdminShutdownError("x"), Verdict.LOST),
        (asyncpg.CrashShutdownError("x"), Verdict.LOST),
        (asyncpg.CannotConnectNowError("x"), Verdict.LOST),
        (asyncpg.TooManyConnectionsError("x"), Verdict.LOST),
        (asyncpg.ReadOnlySQLTransactionError("x"), Verdict.LOST),
        (asyncpg.FeatureNotSupportedError("x"), Verdict.LOST),
        (asyncpg.ConnectionDoesNotExistError("x"), Verdict.LOST),
        (asyncpg.TransactionTimeoutError("x"), Verdict.LOST),
        (asyncpg.StatementCompletionUnknownError("x"), Verdict.LOST),
        (asyncpg.InterfaceError("the connection is closed"), Verdict.LOST),
        (ConnectionResetError(), Verdict.LOST),
        (ssl.SSLError("x"), Verdict.LOST),
        (TimeoutError(), Verdict.LATE),
        (asyncpg.LockNotAvailableError("x"), Verdict.BLOCKED),
        (asyncpg.DiskFullError("x"), Verdict.REFUSED),
        (asyncpg.OutOfMemoryError("x"), Verdict.REFUSED),
        (asyncpg.InsufficientResourcesError("x"), Verdict.REFUSED),
        (asyncpg.InvalidPasswordError("x"), Verdict.REFUSED),
        (asyncpg.InsufficientPrivilegeError("x"), Verdict.REFUSED),
        (asyncpg.PostgresIOError("x"), Verdict.BROKEN),
        (asyncpg.InternalServerError("x"), Verdict.BROKEN),
        (asyncpg.DataCorruptedError("x"), Verdict.BROKEN),
        (asyncpg.UniqueViolationError("x"), Verdict.FAULT),
        (asyncpg.CharacterNotInRepertoireError("x"), Verdict.FAULT),
        (asyncpg.UndefinedColumnError("x"), Verdict.FAULT),
        (asyncpg.ClientConfigurationError("x"), Verdict.FAULT),
        (ValueError("x"), Verdict.FAULT),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else value.name,
)
def test_an_error_is_repeated_or_unavailable_or_a_fault(error: BaseException, verdict: Verdict) -> None:
    assert verdict_of(error) is verdict
    failure = failure_of(error)
    assert isinstance(failure, StoreFault if verdict is Verdict.FAULT else Unavailable)
    assert failure.__cause__ is error  # and, by its type, another one
    assert "x" not in str(failure).split()  # no text of the database for callers


@pytest.mark.parametrize("kind", [asyncpg.UndefinedObjectError, asyncpg.CantChangeRuntimeParamError])
def test_an_option_that_postgresql_rejects_is_explained_with_those_that_it_accepts(kind: type[Exception]) -> None:
    text = explain(kind('unrecognized configuration parameter "sslmod"'))
    assert text.startswith('unrecognized configuration parameter "sslmod": an option of --store after the ? is host, ')
    assert "sslmode, sslcert, " in text


def test_a_code_that_the_driver_does_not_know_is_decided_by_its_class() -> None:
    error = asyncpg.PostgresError.new({"C": "57999", "M": "of a later release"})
    assert verdict_of(error) is Verdict.REPEAT
    assert verdict_of(asyncpg.PostgresError.new({"C": "ZZ001", "M": "of an extension"})) is Verdict.FAULT


def test_a_commit_without_a_response_is_as_lost_as_its_cause() -> None:
    late = CommitOutcomeUnknown("")
    late.__cause__ = TimeoutError()
    assert verdict_of(late) is Verdict.LATE
    failure = failure_of(late)
    assert isinstance(failure, Unavailable)
    assert failure.outcome_unknown
