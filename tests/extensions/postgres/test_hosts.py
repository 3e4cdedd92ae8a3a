"""URLs with several hosts: which one a store connects to, while others are gone, hang or are standbys."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import asyncpg
import pytest
from tests.postgres import Server, free_port
from tests.postgres_pair import postgres_pair

from dragoman.extensions.postgres.errors import DatabaseUnreachable, InvalidDatabase
from dragoman.extensions.postgres.hosts import DatabaseHost, HostConnector, hosts_of
from dragoman.extensions.postgres.store import open_store
from dragoman.testing.fixtures import by_runner, chunk, running

pytestmark = pytest.mark.long

SHORT_TIMEOUT = 2.0


@pytest.mark.parametrize(
    ("url", "hosts"),
    [
        ("postgresql://db.example.com/tasks", [DatabaseHost("db.example.com")]),
        ("postgresql://me:s%2Cecret@one:5433,two/tasks", [DatabaseHost("one", 5433), DatabaseHost("two")]),
        ("postgresql://[::1],[::2]:5433/tasks", [DatabaseHost("::1"), DatabaseHost("::2", 5433)]),
        ("postgresql:///tasks?host=one,two", [DatabaseHost("one"), DatabaseHost("two")]),
        ("postgresql:///tasks?host=one,two&port=5433", [DatabaseHost("one", 5433), DatabaseHost("two", 5433)]),
        ("postgresql:///tasks?host=one,two&port=1,2", [DatabaseHost("one", 1), DatabaseHost("two", 2)]),
        ("postgresql:///tasks?host=/run/postgresql", [DatabaseHost("/run/postgresql")]),
        ("postgresql:///tasks", []),
    ],
)
def test_hosts_are_those_of_libpq(url: str, hosts: list[DatabaseHost]) -> None:
    assert hosts_of(url) == hosts


@pytest.mark.parametrize(
    "url", ["postgresql://one:,two/tasks", "postgresql://one:x,two/tasks", "postgresql:///t?host=a,b,c&port=1,2"]
)
async def test_invalid_hosts_are_rejected(url: str) -> None:
    with pytest.raises(InvalidDatabase):
        await open_store(url)


@asynccontextmanager
async def hanging() -> AsyncIterator[int]:
    """A port that accepts connections and never answers, as a host behind a network that drops packets."""
    opened: list[asyncio.StreamWriter] = []

    async def hold(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        opened.append(writer)

    server = await asyncio.start_server(hold, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for writer in opened:
            writer.close()


async def test_a_host_that_does_not_answer_leaves_time_for_the_next(postgres: Server, postgres_url: str) -> None:
    name = urlsplit(postgres_url).path
    async with hanging() as silent:
        hosts = f"127.0.0.1:{silent},127.0.0.1:{free_port()},127.0.0.1:{postgres.port}"
        url = f"postgresql://postgres@{hosts}{name}?target_session_attrs=read-write"
        store = await open_store(url, statement_timeout=SHORT_TIMEOUT)
        try:
            claimed = await running(store)
            await store.append(by_runner(claimed, chunk("out", "x")))
            session = await store.open_session(10)
            await asyncio.to_thread(store.renew_session, session, 10)
            assert (await store.last_sequences([claimed.record.ref])) == {claimed.record.ref.key: 2}
        finally:
            await store.close()


async def test_a_host_that_is_named_twice_is_asked_twice() -> None:
    connections = 0

    def refuse(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
        host = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        with pytest.raises(asyncpg.PostgresConnectionError):
            await HostConnector().connect(f"postgresql://{host},{host}/tasks?sslmode=disable", timeout=30.0)
    assert connections == 2


async def test_hosts_without_a_primary_are_an_outage_and_not_a_mistake() -> None:
    async with postgres_pair() as pair:
        hosts = f"127.0.0.1:{pair.standby.port},localhost:{pair.standby.port}"  # as in the middle of a switchover
        url = f"postgresql://postgres@{hosts}/postgres?target_session_attrs=read-write"
        with pytest.raises(DatabaseUnreachable, match="no host of --store is the primary"):
            await open_store(url)


async def test_a_store_follows_a_failover_and_loses_nothing() -> None:
    async with postgres_pair() as pair:
        store = await open_store(pair.url(), statement_timeout=SHORT_TIMEOUT)
        try:
            claimed = await running(store)
            await store.append(by_runner(claimed, chunk("out", "a")))
            await asyncio.to_thread(pair.kill)
            waiting = store.append(by_runner(claimed, chunk("out", "b")))  # no host accepts writes yet
            await asyncio.to_thread(pair.promote)
            await waiting
            events = await store.events(claimed.record.ref, 0, 10)
            assert [event.sequence for event in events] == [1, 2, 3]
        finally:
            await store.close()


async def test_a_store_leaves_a_primary_that_hangs() -> None:
    async with postgres_pair() as pair:
        store = await open_store(pair.url(), statement_timeout=SHORT_TIMEOUT)
        try:
            claimed = await running(store)
            await asyncio.to_thread(pair.freeze)
            await asyncio.to_thread(pair.promote)
            await store.append(by_runner(claimed, chunk("out", "a")))  # at first to the frozen one
            events = await store.events(claimed.record.ref, 0, 10)
            assert [event.sequence for event in events] == [1, 2]
        finally:
            await store.close()
