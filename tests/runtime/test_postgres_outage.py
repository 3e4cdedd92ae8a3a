"""PostgreSQL unavailable for longer than a lease, under two servers: turns continue, accepted messages are answered."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Any, Final

import asyncpg
import pytest
from tests.conftest import set_timings
from tests.eventually import eventually
from tests.postgres import Server, execute
from tests.runtime.harness import Harness, open_harness, state, status_text, texts

from dragoman import Turn
from dragoman.core.durations import Backoff
from dragoman.core.errors import Unavailable
from dragoman.extensions.postgres import database, errors
from dragoman.extensions.postgres.store import open_store
from dragoman.runtime import sessions
from dragoman.testing.fixtures import Clock

pytestmark = pytest.mark.long

TASKS = 8
"""Tasks of each kind at each server."""


SHORT: Final = database.PostgresRetries(write=0.1, read=0.1)


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Polls run all the time instead of every two seconds, and retries of the database end soon."""
    set_timings(monkeypatch, renew_interval=0.05, claim_poll_interval=0.05, store_retry=Backoff(0.01, 0.1))


async def test_an_outage_longer_than_a_lease_ends_no_turn_and_loses_no_message(
    tmp_path: Path, own_postgres: Server, caplog: pytest.LogCaptureFixture
) -> None:
    over = asyncio.Event()

    async def works(turn: Turn) -> str:
        if turn.text == "ask":
            turn.ask("and?")
        if turn.text == "work":
            await over.wait()
        return turn.text

    def logged(text: str) -> int:
        return sum(text in record.getMessage() for record in caplog.records)

    async def more(here: Harness, task: str) -> str:
        """The task, once its message was accepted."""
        try:
            await here.start("more", task_id=task)
        except Unavailable:
            return ""
        return task

    clock = Clock()
    first, second = [await open_store(own_postgres.url(), clock=clock, retries=SHORT) for _ in range(2)]
    async with (
        open_harness(tmp_path, works, store=first, exclusive=False) as one,
        open_harness(tmp_path, works, store=second, exclusive=False) as other,
    ):
        both = (one, other)
        working = [(here, (await here.start("work")).id) for here in both for _ in range(TASKS)]
        waiting_tasks = [(here, (await here.send("ask")).id) for here in both for _ in range(TASKS)]
        await eventually(lambda: all(here.runtime.scheduler.running == TASKS for here in both))
        sending = [asyncio.ensure_future(more(here, task)) for here, task in waiting_tasks]
        await asyncio.wait(sending, return_when=asyncio.FIRST_COMPLETED)
        before = logged("could not be renewed")
        await asyncio.to_thread(own_postgres.stop, signal.SIGQUIT)
        await eventually(lambda: logged("could not be renewed") >= before + len(both))
        clock.now += int(sessions.LEASE_SECONDS * 1000) + 1
        await asyncio.to_thread(own_postgres.start)
        taken = [task for task in await asyncio.gather(*sending) if task]
        over.set()
        for here, task in working:
            ended = await here.ended(task)
            assert (state(ended), status_text(ended), texts(ended)) == ("COMPLETED", "", ["work"])
        for task in taken:
            ended = await one.ended(task)
            assert (state(ended), status_text(ended), texts(ended)) == ("COMPLETED", "", ["more"])
        assert taken
        await eventually(lambda: logged("the session had expired for"))  # a turn may end before the next renewal


async def test_a_task_with_unknown_commit_outcome_runs_after_the_outage(
    tmp_path: Path, own_postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[str] = []

    async def works(turn: Turn) -> str:
        begun.append(turn.text)
        return turn.text

    commit, stopped = database.Database.commit, asyncio.Event()

    async def stops(self: database.Database, *arguments: Any) -> Any:
        result = await commit(self, *arguments)
        if not stopped.is_set():
            stopped.set()
            await asyncio.to_thread(own_postgres.stop, signal.SIGQUIT)
            logged = errors.failure_of(errors.CommitOutcomeUnknown("the connection was closed in a commit"))
            assert isinstance(logged, Unavailable)
            logged.outcome_unknown = True
            raise logged
        return result

    store = await open_store(own_postgres.url(), retries=SHORT)
    async with open_harness(tmp_path, works, store=store, exclusive=False) as here:
        monkeypatch.setattr(database.Database, "commit", stops)
        with pytest.raises(Unavailable, match="is not known"):
            await here.send("work")
        await asyncio.to_thread(own_postgres.start)
        (task,) = (await here.list()).tasks
        ended = await here.ended(task.id)
        assert (state(ended), texts(ended), begun) == ("COMPLETED", ["work"], ["work"])


async def process_blocked(url: str, table: str) -> int:
    """The process whose statement waits for a lock of this table."""
    waiting = "SELECT pid FROM pg_locks WHERE NOT granted AND relation = to_regclass($1)"
    while not (rows := await execute(url, waiting, table)):  # noqa: ASYNC110 - another process's event
        await asyncio.sleep(0.01)
    found: int = rows[0][0]
    return found


@pytest.mark.parametrize("what", ["a result", "an event"])
async def test_what_a_turn_has_put_or_returned_is_written_although_its_append_is_canceled_again_and_again(
    tmp_path: Path, postgres_url: str, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    async def works(turn: Turn) -> str:
        await here.at("go").wait()
        if what == "an event":
            turn.status("at it")
            await turn.flush()
            here.at("flushed").set()
        return "the result"

    store = await open_store(postgres_url, retries=SHORT)
    async with open_harness(tmp_path, works, store=store, exclusive=False) as here:
        task = await here.start("work")
        await eventually(lambda: here.runtime.scheduler.running)
        while state(await here.get(task.id)) != "WORKING":  # noqa: ASYNC110 - written by a timer
            await asyncio.sleep(0.005)
        blocker = await asyncpg.connect(postgres_url)
        async with blocker.transaction():
            await blocker.execute("LOCK TABLE log IN EXCLUSIVE MODE")
            here.at("go").set()
            failed = store.commit_counters.failed_batches
            while store.commit_counters.failed_batches < failed + 2:
                await execute(postgres_url, "SELECT pg_cancel_backend($1)", await process_blocked(postgres_url, "log"))
            assert state(await here.get(task.id)) == "WORKING"
        await blocker.close()
        ended = await here.ended(task.id)
        assert (state(ended), texts(ended)) == ("COMPLETED", ["the result"])
        assert what == "a result" or here.at("flushed").is_set()
    assert not [record for record in caplog.records if record.exc_info]


async def test_a_locked_table_makes_a_server_not_ready_until_it_is_free(
    tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session is renewed all the time, and there is no traffic when the lock is released."""
    set_timings(monkeypatch, append_wait=0.2, store_probe_interval=0.05)

    async def echo(turn: Turn) -> str:
        return turn.text

    store = await open_store(postgres_url, retries=SHORT, statement_timeout=1.0)
    async with open_harness(tmp_path, echo, store=store, exclusive=False) as here:
        assert state(await here.send()) == "COMPLETED"
        blocker = await asyncpg.connect(postgres_url)
        async with blocker.transaction():
            await blocker.execute("LOCK TABLE tasks IN ACCESS EXCLUSIVE MODE")
            sending = asyncio.ensure_future(here.send("refused"))
            await eventually(here.runtime.store_problem)
            with pytest.raises(Unavailable, match="waits for a lock of another session"):
                await sending
            assert here.runtime.store_problem()
        await blocker.close()
        await eventually(lambda: not here.runtime.store_problem())
        assert state(await here.send("again")) == "COMPLETED"
