"""Failures of the server: broken connections, crashes, failover, and commits with an unknown outcome."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg
import pytest
from tests.eventually import eventually
from tests.postgres import Server, execute
from tests.stores.postgres.two_stores import all_of, reasons

from dragoman.core.errors import Unavailable
from dragoman.core.task import states
from dragoman.core.task.log import (
    Append,
    Appended,
)
from dragoman.stores.postgres import PostgresStore, database, open_store
from dragoman.stores.postgres import errors as trouble
from dragoman.testing.fixtures import (
    by_runner,
    chunk,
    created,
    new_ref,
    running,
    status,
)


async def test_broken_connections_are_reopened(store: PostgresStore, postgres_url: str) -> None:
    claimed = await running(store)
    session = await store.open_session(10)
    others = "datname = current_database() AND pid <> pg_backend_pid()"
    cut = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {others}"
    for number in range(3):
        await execute(postgres_url, cut)
        await store.append(by_runner(claimed, chunk("out", str(number))))
        assert (await store.last_sequences([claimed.record.ref])) == {claimed.record.ref.key: 2 + number}
        await asyncio.to_thread(store.renew_session, session, 10)


async def test_a_connection_that_the_server_ended_is_discarded(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error of asyncpg between the server's last message and the end of the connection."""
    claimed = await running(store)
    execute, fetchval = asyncpg.Connection.execute, asyncpg.Connection.fetchval
    words = iter(["cannot switch to state 12; another operation (2) is in progress"] * 2)

    async def breaks(*_: object, **__: Any) -> object:
        monkeypatch.setattr(asyncpg.Connection, "execute", execute)
        monkeypatch.setattr(asyncpg.Connection, "fetchval", fetchval)
        raise asyncpg.InternalClientError(next(words))

    monkeypatch.setattr(asyncpg.Connection, "execute", breaks)
    await store.append(by_runner(claimed, chunk("out", "x")))
    monkeypatch.setattr(asyncpg.Connection, "fetchval", breaks)
    assert len(await store.events(claimed.record.ref, 0)) == 2
    assert not list(words)
    assert not trouble.is_unreachable(asyncpg.InternalClientError("no decoder for OID 1"))


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT])
async def test_a_restart_of_the_server_loses_and_repeats_no_write(
    own_postgres: Server, how: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is stopped, or crashes, under load, and comes back within the retry time of writes."""
    monkeypatch.setattr(database, "WRITE_RETRY_TIMEOUT", 60.0)  # longer than any start
    store = await open_store(own_postgres.url())
    acknowledged: list[Appended] = []
    refused: list[Append] = []
    stop = asyncio.Event()

    async def write() -> None:
        while not stop.is_set():
            change = created(new_ref(), claim=7)
            try:
                claimed = await store.append(change)
                acknowledged.append(claimed)
                acknowledged.append(await store.append(by_runner(claimed, status(states.COMPLETED, "done"), end=True)))
            except Unavailable:
                refused.append(change)

    async def more_than(number: int) -> None:
        await eventually(lambda: not (len(acknowledged) < number))

    writers = [asyncio.create_task(write()) for _ in range(8)]
    await more_than(100)
    await asyncio.to_thread(own_postgres.stop, how)
    await asyncio.to_thread(own_postgres.start)
    await more_than(len(acknowledged) + 100)
    stop.set()
    await asyncio.gather(*writers)
    assert refused == []
    for appended in acknowledged:
        assert (await store.last_sequences([appended.record.ref]))[
            appended.record.ref.key
        ] >= appended.record.last_sequence
    (row,) = await execute(
        own_postgres.url(), "SELECT count(*) FROM (SELECT task FROM log GROUP BY task HAVING count(*) > 2) x"
    )
    assert row[0] == 0
    await store.close()


async def test_an_unreachable_server_is_reported_in_bounded_time(
    own_postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await open_store(own_postgres.url())
    ref = (await running(store)).record.ref
    await asyncio.to_thread(own_postgres.stop)
    outage, not_done = "the store does not respond; what it has acknowledged is safe", ", this request was not done"
    calls: list[tuple[Callable[[], Awaitable[object]], str]] = [
        (lambda: store.append(created(new_ref())), not_done),
        (lambda: store.read(ref), ""),
        (lambda: store.pushes.unfinished(1), ""),
        (lambda: asyncio.to_thread(store.renew_session, 1, 10), not_done),
    ]
    with monkeypatch.context() as patched:
        patched.setattr(database, "WRITE_RETRY_TIMEOUT", 0.2)
        patched.setattr(database, "READ_RETRY_TIMEOUT", 0.2)
        for call, suffix in calls:
            with pytest.raises(Unavailable, match=f"^{outage}{suffix}$"):
                await call()
    await asyncio.to_thread(own_postgres.start)
    assert await store.read(ref) is not None
    await store.append(created(new_ref()))
    await store.close()


class Breaking:
    """Breaks the connection at the next commit: after or before it was done."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, done: bool) -> None:
        self.broken = 0
        execute = asyncpg.Connection.execute

        async def breaks(connection: asyncpg.Connection, sql: str, *values: object, **options: Any) -> object:
            if sql != "COMMIT" or self.broken:
                return await execute(connection, sql, *values, **options)
            self.broken += 1
            if done:
                await execute(connection, sql)
            connection.terminate()
            raise asyncpg.ConnectionDoesNotExistError("connection was closed in the middle of operation")

        monkeypatch.setattr(asyncpg.Connection, "execute", breaks)


@pytest.mark.parametrize("done", [True, False])
async def test_a_commit_without_a_response_is_executed_once(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch, done: bool
) -> None:
    """A retry with the same mark finds out that it was done, or does it."""
    claimed = await running(store)
    breaking = Breaking(monkeypatch, done=done)
    appended = await store.append(by_runner(claimed, chunk("out", "x")))
    assert breaking.broken == 1
    assert [event.sequence for event in appended.events] == [2]
    assert [event.sequence for event in await store.events(claimed.record.ref, 0)] == [1, 2]


async def test_a_commit_that_never_gets_a_response_has_an_unknown_outcome(
    own_postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "UNKNOWN_COMMIT_TIMEOUT", 0.2)
    monkeypatch.setattr(database, "WRITE_RETRY_TIMEOUT", 0.1)
    store = await open_store(own_postgres.url())
    change = created(new_ref())
    breaking = Breaking(monkeypatch, done=True)
    transact = database.run_transaction

    async def stops(*arguments: Any) -> Any:
        try:
            return await transact(*arguments)
        finally:
            if breaking.broken:
                await asyncio.to_thread(own_postgres.stop)

    monkeypatch.setattr(database, "run_transaction", stops)
    with pytest.raises(Unavailable, match="it is not known whether this request was done") as broken_off:
        await store.append(change)
    assert broken_off.value.outcome_unknown
    with pytest.raises(Unavailable, match="this request was not done") as away:
        await store.append(created(new_ref()))
    assert not away.value.outcome_unknown
    await asyncio.to_thread(own_postgres.start)
    assert (await store.last_sequences([change.task])) == {change.task.key: 1}
    await store.close()


async def test_commit_marks_are_deleted_after_a_while(
    store: PostgresStore, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await running(store)
    await store.compact()
    (row,) = await execute(postgres_url, "SELECT count(*) FROM commits")
    assert row[0] > 0
    monkeypatch.setattr(database, "COMMIT_MARK_TTL", -10.0)  # includes marks of the next seconds
    await store.compact()
    (after,) = await execute(postgres_url, "SELECT count(*) FROM commits")
    assert after[0] < row[0]


async def test_the_default_isolation_level_of_a_database_has_no_effect(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "MAX_COLLISION_RETRIES", 0)  # no retries
    name = postgres_url.rpartition("/")[2]
    await execute(postgres_url, f"ALTER DATABASE {name} SET default_transaction_isolation = 'serializable'")
    first, second = await open_store(postgres_url), await open_store(postgres_url)
    claimed = await running(first)
    changes = [by_runner(claimed, chunk("out", f"{number} ")) for number in range(100)]
    assert set(reasons(await all_of((first, second), changes))) == {""}
    await first.close()
    await second.close()
