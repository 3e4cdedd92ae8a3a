"""Failures of the server: broken connections, crashes, failover, and commits with an unknown outcome."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import asyncpg
import pytest
from tests.eventually import eventually
from tests.extensions.postgres.two_stores import all_of, reasons
from tests.postgres import Server, execute

from dragoman.core.errors import Unavailable
from dragoman.core.task import states
from dragoman.core.task.log import Append, Appended, Exists, TaskRef
from dragoman.extensions.postgres import database
from dragoman.extensions.postgres import errors as trouble
from dragoman.extensions.postgres.database import PostgresRetries
from dragoman.extensions.postgres.store import PostgresStore, open_store
from dragoman.testing.fixtures import (
    by_runner,
    chunk,
    created,
    new_ref,
    running,
    status,
)
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

pytestmark = pytest.mark.long

SHORT_TIMEOUT = 1.0
"""Seconds for one statement, in tests that wait for the end of it."""


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
    fetchval = asyncpg.Connection.fetchval
    words = iter(["cannot switch to state 12; another operation (2) is in progress"] * 2)

    async def breaks(*_: object, **__: Any) -> object:
        monkeypatch.setattr(asyncpg.Connection, "fetchval", fetchval)
        raise asyncpg.InternalClientError(next(words))

    monkeypatch.setattr(asyncpg.Connection, "fetchval", breaks)
    await store.append(by_runner(claimed, chunk("out", "x")))
    monkeypatch.setattr(asyncpg.Connection, "fetchval", breaks)
    assert len(await store.events(claimed.record.ref, 0)) == 2
    assert not list(words)
    assert not trouble.is_disconnected(asyncpg.InternalClientError("no decoder for OID 1"))


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT])
async def test_a_restart_of_the_server_loses_and_repeats_no_write(own_postgres: Server, how: signal.Signals) -> None:
    """It is stopped, or crashes, under load, and comes back within the retry time of writes."""
    store = await open_store(own_postgres.url(), retries=PostgresRetries(write=60.0))  # longer than any start
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


async def test_an_unreachable_server_is_reported_in_bounded_time(own_postgres: Server) -> None:
    store = await open_store(own_postgres.url(), retries=PostgresRetries(write=0.2, read=0.2))
    ref = (await running(store)).record.ref
    await asyncio.to_thread(own_postgres.stop)
    outage, not_done = "the store does not respond; what it has acknowledged is safe", ", this request was not done"
    calls: list[tuple[Callable[[], Awaitable[object]], str]] = [
        (lambda: store.append(created(new_ref())), not_done),
        (lambda: store.read(ref), ""),
        (lambda: store.pushes.unfinished(1), ""),
        (lambda: asyncio.to_thread(store.renew_session, 1, 10), not_done),
    ]
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
        for name in ("execute", "fetchval"):
            self._break(monkeypatch, name, getattr(asyncpg.Connection, name), done)

    def _break(self, monkeypatch: pytest.MonkeyPatch, name: str, method: Any, done: bool) -> None:
        async def breaks(connection: asyncpg.Connection, sql: str, *values: object, **options: Any) -> object:
            if not (sql == "COMMIT" or "lock_for_append" in sql) or self.broken:
                return await method(connection, sql, *values, **options)
            self.broken += 1
            if done:
                await method(connection, sql, *values)
            connection.terminate()
            raise asyncpg.ConnectionDoesNotExistError("connection was closed in the middle of operation")

        monkeypatch.setattr(asyncpg.Connection, name, breaks)


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
    store = await open_store(own_postgres.url(), retries=PostgresRetries(write=0.1))
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


async def test_commit_marks_are_deleted_after_a_while(store: PostgresStore, postgres_url: str) -> None:
    await running(store)
    await store.compact()
    (row,) = await execute(postgres_url, "SELECT count(*) FROM commits")
    assert row[0] > 0
    later = await open_store(
        postgres_url, retries=PostgresRetries(mark_ttl=-10.0)
    )  # includes marks of the next seconds
    await later.compact()
    await later.close()
    (after,) = await execute(postgres_url, "SELECT count(*) FROM commits")
    assert after[0] < row[0]


async def test_the_default_isolation_level_of_a_database_has_no_effect(postgres_url: str) -> None:
    once = PostgresRetries(repeats=0)
    name = postgres_url.rpartition("/")[2]
    await execute(postgres_url, f"ALTER DATABASE {name} SET default_transaction_isolation = 'serializable'")
    first, second = await open_store(postgres_url, retries=once), await open_store(postgres_url, retries=once)
    claimed = await running(first)
    changes = [by_runner(claimed, chunk("out", f"{number} ")) for number in range(100)]
    assert set(reasons(await all_of((first, second), changes))) == {""}
    await first.close()
    await second.close()


async def backends(url: str) -> set[int]:
    """The processes that serve the connections to a database."""
    query = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    return {row[0] for row in await execute(url, query)}


async def test_a_frozen_server_is_an_error_within_the_statement_timeout(own_postgres: Server) -> None:
    store = await open_store(own_postgres.url(), statement_timeout=SHORT_TIMEOUT)
    ref = (await running(store)).record.ref
    calls: list[Callable[[], Awaitable[object]]] = [
        lambda: store.append(created(new_ref())),
        lambda: store.read(ref),
        lambda: store.messages(ref),
        lambda: store.open_session(10),
        lambda: asyncio.to_thread(store.renew_session, 1, 10),
    ]
    for call in calls:
        await call()
    before = await backends(own_postgres.url())
    for call in calls * 2:  # on an open connection, then on a new one
        own_postgres.freeze()
        with pytest.raises(Unavailable, match=r"does not respond|stopped responding during a commit"):
            await call()
        own_postgres.thaw()
    for call in calls:
        await call()
    # A connection whose statement timed out is never used again.
    assert not before & await backends(own_postgres.url())
    await store.close()


async def test_readers_beyond_the_pool_get_an_error_in_time(own_postgres: Server) -> None:
    store = await open_store(own_postgres.url(), statement_timeout=SHORT_TIMEOUT, connections=2)
    ref = (await running(store)).record.ref
    own_postgres.freeze()
    async with asyncio.timeout(60):  # two by two they would take 100 seconds
        results = await asyncio.gather(*(store.read(ref) for _ in range(200)), return_exceptions=True)
    assert {type(result) for result in results} == {Unavailable}
    own_postgres.thaw()
    assert await store.read(ref) is not None
    await store.close()


async def test_a_server_that_becomes_a_standby_is_read_only_until_it_is_promoted(
    own_postgres: Server, caplog: pytest.LogCaptureFixture
) -> None:
    store = await open_store(own_postgres.url(), retries=PostgresRetries(write=0.2, read=60.0))
    claimed = await running(store)
    change = Append(task=claimed.record.ref, guard=Exists())
    await asyncio.to_thread(own_postgres.stop)
    (own_postgres.data / "standby.signal").touch()
    await asyncio.to_thread(own_postgres.start)
    assert await store.read(claimed.record.ref) is not None
    with pytest.raises(Unavailable, match="the store is read-only; what it has acknowledged is safe"):
        await store.append(change)
    assert "cannot set transaction read-write mode during recovery: it is a standby, or lacks a feature" in caplog.text
    own_postgres.run("pg_ctl", "promote", "-w", "-D", str(own_postgres.data))
    await store.append(change)
    await store.close()


async def test_a_lock_that_is_held_for_too_long_is_named_by_the_error(
    store: PostgresStore, postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """PostgreSQL ends the statement before our deadline, which would say that it does not respond."""
    claimed = await running(store)
    impatient = await open_store(postgres_url, statement_timeout=SHORT_TIMEOUT)
    blocker = await asyncpg.connect(postgres_url)
    async with blocker.transaction():
        await blocker.execute("SELECT 1 FROM tasks FOR UPDATE")
        with pytest.raises(Unavailable, match=r"waits for a lock of another session; .* this request was not done"):
            await impatient.append(Append(task=claimed.record.ref, guard=Exists()))
        assert "a batch of 1 writes failed: canceling statement due to lock timeout: another session has" in caplog.text
        waits = "SELECT count(*) FROM pg_locks WHERE NOT granted"
        async with asyncio.timeout(60):
            while (await execute(postgres_url, waits))[0][0]:  # noqa: ASYNC110 - another process's event
                await asyncio.sleep(0.02)
    await blocker.close()
    await impatient.append(Append(task=claimed.record.ref, guard=Exists()))
    await impatient.close()


async def test_locks_of_a_frozen_process_are_released(postgres_url: str) -> None:
    """A process that stands still within a transaction does not block the others."""
    store = await open_store(postgres_url, statement_timeout=SHORT_TIMEOUT)
    claimed = await running(store)
    async with store._database._pool.acquire() as frozen:
        await frozen.execute("BEGIN; SELECT 1 FROM tasks FOR UPDATE")
        await store.append(by_runner(claimed, chunk("out", "x")))
        assert [event.sequence for event in await store.events(claimed.record.ref, 0)] == [1, 2]
    await store.close()


async def slow_commits(url: str, table: str, seconds: float) -> None:
    """Commits that insert into this table take so long from now on, as with a standby that is slow to answer."""
    await execute(
        url,
        "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN PERFORM pg_sleep({seconds}); RETURN NULL; END $$",
    )
    await execute(
        url,
        f"CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON {table} DEFERRABLE INITIALLY DEFERRED "
        "FOR EACH ROW EXECUTE FUNCTION slow()",
    )


async def test_a_commit_that_takes_too_long_has_an_unknown_outcome_and_is_not_canceled(postgres_url: str) -> None:
    """Canceled, it would end the wait for a synchronous standby, and count as done without being replicated."""
    store = await open_store(postgres_url, statement_timeout=SHORT_TIMEOUT)
    await running(store)
    await slow_commits(postgres_url, "tasks", 3 * SHORT_TIMEOUT)
    change = created(new_ref())
    with pytest.raises(Unavailable, match="it is not known whether this request was done") as late:
        await store.append(change)
    assert late.value.outcome_unknown
    async with asyncio.timeout(60):
        while not await store.last_sequences([change.task]):  # noqa: ASYNC110 - another process's event
            await asyncio.sleep(0.02)
    assert await store.last_sequences([change.task]) == {change.task.key: 1}
    await store.close()


async def test_events_of_a_turn_wait_for_the_outcome_of_their_commit(postgres_url: str) -> None:
    store = await open_store(postgres_url, statement_timeout=SHORT_TIMEOUT)
    claimed = await running(store)
    await slow_commits(postgres_url, "chunks", 3 * SHORT_TIMEOUT)
    appended = await store.append(by_runner(claimed, chunk("out", "x")))
    assert [event.sequence for event in appended.events] == [2]
    assert [event.sequence for event in await store.events(claimed.record.ref, 0)] == [1, 2]
    await store.close()


def text_of(event: bytes) -> str:
    """The text of an artifact event."""
    return pb.StreamResponse.FromString(event).artifact_update.artifact.parts[0].text


async def test_a_server_that_freezes_under_load_makes_no_answer_wrong(own_postgres: Server) -> None:
    """What was acknowledged is stored, what was refused is not, and everything is stored at most once."""
    store = await open_store(own_postgres.url(), statement_timeout=SHORT_TIMEOUT)
    stop = asyncio.Event()
    acknowledged: list[TaskRef] = []
    refused: list[TaskRef] = []
    unknown: list[TaskRef] = []
    turns: list[Appended] = [await running(store) for _ in range(4)]
    written = [0] * len(turns)

    async def send() -> None:
        while not stop.is_set():
            change = created(new_ref())
            try:
                acknowledged.append((await store.append(change)).record.ref)
            except Unavailable as error:
                (unknown if error.outcome_unknown else refused).append(change.task)

    async def work(number: int) -> None:
        while not stop.is_set():
            await store.append(by_runner(turns[number], chunk("out", f"{written[number]} ")))
            written[number] += 1

    def sends_reach(number: int) -> bool:
        return len(acknowledged) >= number

    def failures_reach(number: int) -> bool:
        return len(refused) + len(unknown) >= number

    callers = [asyncio.create_task(send()) for _ in range(16)]
    workers = [asyncio.create_task(work(number)) for number in range(len(turns))]
    for _ in range(6):
        before, failed = len(acknowledged), len(refused) + len(unknown)
        await eventually(partial(sends_reach, before + 200))
        own_postgres.freeze()
        await eventually(partial(failures_reach, failed + len(callers)))
        own_postgres.thaw()
    stop.set()
    await asyncio.gather(*callers, *workers)
    stored = await store.last_sequences([*acknowledged, *refused, *unknown])
    assert {ref.key for ref in acknowledged} <= stored.keys()
    assert not {ref.key for ref in refused} & stored.keys()
    assert set(stored.values()) == {1}
    for turn, count in zip(turns, written, strict=True):
        events = [event for first in range(0, count + 1, 256) for event in await store.events(turn.record.ref, first)]
        assert [event.sequence for event in events] == list(range(1, count + 2))
        assert [text_of(event.data) for event in events[1:]] == [f"{number} " for number in range(count)]
    await store.close()


async def test_a_read_that_is_canceled_leaves_no_transaction_to_the_next_one(store: PostgresStore) -> None:
    claimed = await running(store)

    async def query(connection: asyncpg.Connection[Any]) -> None:
        await connection.prepare("SELECT count(*) FROM tasks")
        raise asyncio.CancelledError  # as it arrives in a task whose future is done

    for _ in range(3):
        with pytest.raises(asyncio.CancelledError):
            await store._database.read(query)
        await store.messages(claimed.record.ref)


# What others do to a session's connection --------------------------------------------------------------------------


async def blocked(url: str, part: str) -> int:
    """The process of the statement with this part that waits for a lock."""
    waiting = "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE $1 AND state = 'active'"
    while not (rows := await execute(url, waiting, f"%{part}%")):  # noqa: ASYNC110 - another connection's event
        await asyncio.sleep(0.01)
    found: int = rows[0][0]
    return found


@asynccontextmanager
async def locked(url: str, sql: str) -> AsyncIterator[asyncpg.Connection[Any]]:
    """Holds what a statement locks."""
    blocker = await asyncpg.connect(url)
    try:
        async with blocker.transaction(isolation="read_committed"):
            await blocker.execute(sql)
            yield blocker
    finally:
        await blocker.close()


LOCK_SESSIONS = "LOCK TABLE sessions IN ACCESS EXCLUSIVE MODE"
ENDS = ("pg_cancel_backend", "pg_terminate_backend")


@pytest.mark.parametrize("end", ENDS)
async def test_a_renewal_that_an_operator_ends_is_repeated(store: PostgresStore, postgres_url: str, end: str) -> None:
    session = await store.open_session(10)
    async with locked(postgres_url, LOCK_SESSIONS):
        renewal = asyncio.ensure_future(asyncio.to_thread(store.renew_session, session, 10))
        first = await blocked(postgres_url, "UPDATE sessions")
        await execute(postgres_url, f"SELECT {end}($1)", first)
        await blocked(postgres_url, "UPDATE sessions")
    assert await renewal > 0


@pytest.mark.parametrize("end", ENDS)
async def test_a_renewal_that_is_ended_again_and_again_is_unavailable_and_the_next_one_succeeds(
    store: PostgresStore, postgres_url: str, end: str
) -> None:
    session = await store.open_session(10)
    async with locked(postgres_url, LOCK_SESSIONS):
        renewal = asyncio.ensure_future(asyncio.to_thread(store.renew_session, session, 10))
        while not renewal.done():
            waiting = "wait_event_type = 'Lock' AND query LIKE '%UPDATE sessions s%'"
            await execute(postgres_url, f"SELECT {end}(pid) FROM pg_stat_activity WHERE {waiting}")
            await asyncio.sleep(0.01)
    with pytest.raises(Unavailable, match=r"^the store (cancels this server's statements|does not respond)") as caught:
        await renewal
    causes = [caught.value, caught.value.__cause__, caught.value.__cause__ and caught.value.__cause__.__cause__]
    assert len({id(cause) for cause in causes if cause is not None}) == len([cause for cause in causes if cause])
    assert await asyncio.to_thread(store.renew_session, session, 10) > 0


async def test_renewals_go_on_in_a_database_that_is_serializable_by_default(postgres_url: str) -> None:
    """Another session writes the row while the renewal waits for it: at that level the renewal would fail."""
    name = postgres_url.rpartition("/")[2]
    await execute(postgres_url, f"ALTER DATABASE {name} SET default_transaction_isolation = 'serializable'")
    store = await open_store(postgres_url)
    session = await store.open_session(10)
    async with locked(postgres_url, "UPDATE sessions SET expires = expires"):
        renewal = asyncio.ensure_future(asyncio.to_thread(store.renew_session, session, 10))
        await blocked(postgres_url, "UPDATE sessions")
    assert await renewal > 0
    await store.close()


async def test_a_renewal_that_deadlocks_is_repeated(store: PostgresStore, postgres_url: str) -> None:
    """The renewal holds its row when the other session asks for it, whose lock the renewal then needs."""
    session = await store.open_session(10)
    await execute(postgres_url, "CREATE TABLE other (id int PRIMARY KEY)")
    await execute(postgres_url, "INSERT INTO other VALUES (1)")
    await execute(
        postgres_url,
        "CREATE FUNCTION needs_other() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN PERFORM 1 FROM other FOR UPDATE; RETURN NULL; END $$",
    )
    await execute(
        postgres_url,
        "CREATE TRIGGER needs_other AFTER UPDATE ON sessions FOR EACH ROW EXECUTE FUNCTION needs_other()",
    )
    async with locked(postgres_url, "SELECT 1 FROM other FOR UPDATE") as blocker:
        await blocker.execute("SET LOCAL deadlock_timeout = '60s'")  # the renewal is the one that notices
        renewal = asyncio.ensure_future(asyncio.to_thread(store.renew_session, session, 10))
        await blocked(postgres_url, "UPDATE sessions")
        await blocker.execute("SELECT 1 FROM sessions FOR UPDATE")  # granted when the renewal has been rolled back
    assert await renewal > 0
    deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
    while not (await execute(postgres_url, deadlocks))[0][0]:  # noqa: ASYNC110 - counted within a second
        await asyncio.sleep(0.05)


@pytest.mark.parametrize("when", ["idle", "connecting", "preparing", "begun", "committing"])
async def test_a_renewal_survives_a_connection_that_is_lost_in_any_state(
    store: PostgresStore, postgres_url: str, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    session = await store.open_session(10)
    if when in ("idle", "begun", "committing"):
        await asyncio.to_thread(store.renew_session, session, 10)
    lost: list[str] = []

    def breaks_once(of: Any, method: str, *, sql: str = "") -> None:
        original = getattr(of, method)

        async def broken(*arguments: Any, **options: Any) -> Any:
            if lost or (sql and not str(arguments[1]).startswith(sql)):
                return await original(*arguments, **options)
            lost.append(when)
            raise asyncpg.ConnectionDoesNotExistError("connection was closed in the middle of operation")

        monkeypatch.setattr(of, method, broken)

    match when:
        case "idle":
            others = "datname = current_database() AND pid <> pg_backend_pid()"
            await execute(postgres_url, f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {others}")
            lost.append(when)
        case "connecting":
            breaks_once(asyncpg, "connect")
        case "preparing":
            breaks_once(database, "prepare_connection")
        case "begun":
            breaks_once(asyncpg.Connection, "fetchrow")
        case "committing":
            breaks_once(asyncpg.Connection, "execute", sql="COMMIT")
    assert await asyncio.to_thread(store.renew_session, session, 10) > 0
    assert lost == [when]


async def slow_tasks(url: str, seconds: float) -> None:
    """Statements that insert tasks take so long from now on."""
    await execute(
        url,
        "CREATE FUNCTION slow_tasks() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN PERFORM pg_sleep({seconds}); RETURN NULL; END $$",
    )
    await execute(url, "CREATE TRIGGER slow AFTER INSERT ON tasks FOR EACH STATEMENT EXECUTE FUNCTION slow_tasks()")


@pytest.fixture
async def hasty(postgres_url: str) -> AsyncIterator[str]:
    """The URL of a user with a `statement_timeout` that ends every insert of a task."""
    await (await open_store(postgres_url)).close()
    await slow_tasks(postgres_url, 0.3)
    await execute(postgres_url, "CREATE ROLE hasty LOGIN SUPERUSER")
    await execute(postgres_url, "ALTER ROLE hasty SET statement_timeout = '100ms'")
    yield postgres_url.replace("postgres@", "hasty@")
    await execute(postgres_url, "DROP ROLE hasty")


async def test_the_statement_timeout_of_a_role_has_no_effect(hasty: str, caplog: pytest.LogCaptureFixture) -> None:
    store = await open_store(hasty)
    assert (await store.append(created(new_ref()))).events
    await store.close()
    assert "statement_timeout" not in caplog.text


async def test_statements_that_the_database_cancels_are_unavailable_in_one_line_of_the_log(
    hasty: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Behind a pooler, a session keeps the timeout of its role."""
    store = await open_store(hasty, pooled=True)
    assert "statement_timeout is 100ms for this user" in caplog.text
    for _ in range(3):
        with pytest.raises(Unavailable, match=r"^the store cancels this server's statements; .* not done$") as refused:
            await store.append(created(new_ref()))
        assert refused.value.retry_after
        assert not refused.value.outcome_unknown
    await store.close()
    assert not [record for record in caplog.records if record.exc_info]
    (line,) = [text for record in caplog.records if "writes failed" in (text := record.getMessage())]
    assert "by a statement_timeout of the database or the role, or by pg_cancel_backend" in line


async def test_neighbors_of_a_write_that_the_database_cannot_store_are_stored(
    store: PostgresStore, postgres_url: str
) -> None:
    """A page that cannot be written, say: simulated by a trigger with that error."""
    await execute(
        postgres_url,
        "CREATE FUNCTION damaged() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'could not write block' USING ERRCODE = '58030'; END $$",
    )
    await execute(
        postgres_url,
        "CREATE TRIGGER damaged BEFORE INSERT ON tasks FOR EACH ROW WHEN (NEW.context = 'bad') "
        "EXECUTE FUNCTION damaged()",
    )
    changes = [created(new_ref(), context="bad" if number == 5 else "good") for number in range(10)]
    results = await asyncio.gather(*map(store.append, changes), return_exceptions=True)
    assert [number for number, result in enumerate(results) if isinstance(result, BaseException)] == [5]
    assert isinstance(results[5], Unavailable)
