"""Sessions that end or expire, and dead processes: one that may be running never counts as dead."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest
from tests.extensions.postgres.two_stores import Stores
from tests.postgres import Server, execute

from dragoman.core.task import states
from dragoman.core.task.log import (
    FENCED,
    Append,
    AppendRejected,
)
from dragoman.extensions.postgres import claims
from dragoman.extensions.postgres.store import PostgresStore, open_store
from dragoman.testing.fixtures import (
    Clock,
    artifact,
    by_runner,
    created,
    new_ref,
    running,
    status,
)

pytestmark = pytest.mark.long

needs_proc = pytest.mark.skipif(
    not claims.current_pid_namespace(), reason="this system does not tell about processes in /proc"
)

SAY = "from dragoman.extensions.postgres import claims; print(claims.current_process(), flush=True); input()"


@needs_proc
def test_a_killed_process_has_ended() -> None:
    with subprocess.Popen([sys.executable, "-c", SAY], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as one:
        assert one.stdout is not None
        process_name = one.stdout.readline().strip()
        assert process_name
        assert not claims.has_process_ended(process_name)
        one.kill()
        one.wait()
        assert claims.has_process_ended(process_name)


@needs_proc
def test_the_own_process_has_not_ended() -> None:
    assert not claims.has_process_ended(claims.current_process())


@needs_proc
def test_a_reused_pid_is_another_process() -> None:
    place, _, began = claims.current_process().rpartition(" ")
    assert claims.has_process_ended(f"{place} {int(began) - 1}")


@needs_proc
@pytest.mark.parametrize("process_name", ["", "x", "boot pid:[1] 1 2", f"{claims.current_pid_namespace()}x 1 2"])
def test_a_process_of_another_namespace_counts_as_running(process_name: str) -> None:
    assert not claims.has_process_ended(process_name)


@needs_proc
def test_a_process_hidden_by_proc_counts_as_running(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where /proc hides the processes of other users."""
    process_name = claims.current_process()
    monkeypatch.setattr(claims, "_start_tick", lambda _: "")
    assert not claims.has_process_ended(process_name)

    def is_not_ours(pid: int, number: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "kill", is_not_ours)
    assert not claims.has_process_ended(process_name)


@needs_proc
def test_a_system_without_proc_names_no_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    process_name = claims.current_process()
    monkeypatch.setattr(claims, "PROC_FOLDER", tmp_path)
    assert claims.current_process() == ""
    assert not claims.has_process_ended(process_name)


async def test_a_failover_is_logged(own_postgres: Server, caplog: pytest.LogCaptureFixture) -> None:
    """A standby replaces the primary; a server cannot know that nothing was lost."""
    where = ["-h", "127.0.0.1", "-p", str(own_postgres.port), "-U", "postgres"]
    copy = own_postgres.folder / "standby"
    await asyncio.to_thread(own_postgres.run, "pg_basebackup", "-D", str(copy), "-R", *where)
    standby = await asyncio.to_thread(Server, data=copy)
    try:
        await asyncio.to_thread(standby.start)
        store = await open_store(own_postgres.url())
        session = await store.open_session(10)
        await asyncio.to_thread(store.renew_session, session, 10)
        claimed = await running(store)
        await asyncio.to_thread(own_postgres.stop)  # a clean stop, so that the standby has everything
        standby.run("pg_ctl", "promote", "-w", "-D", str(copy))
        await asyncio.to_thread(standby.stop)
        standby.port = own_postgres.port  # clients of the primary find it here
        await asyncio.to_thread(standby.start)
        await asyncio.to_thread(store.renew_session, session, 10)
        await store.append(by_runner(claimed, status(states.WORKING)))
        errors = [record.message for record in caplog.records if record.levelname == "ERROR"]
        assert [line.partition(":")[0] for line in errors] == [
            "the database was failed over (timeline 00000001, now 00000002)"
        ]
        await asyncio.to_thread(store.renew_session, session, 10)
        assert sum(record.levelname == "ERROR" for record in caplog.records) == 1
        await store.close()
    finally:
        await asyncio.to_thread(standby.remove)


async def test_a_session_that_the_store_lost_is_not_renewed(store: PostgresStore, postgres_url: str) -> None:
    session = await store.open_session(10)
    await execute(postgres_url, "DELETE FROM sessions")
    with pytest.raises(claims.UnknownSession, match=f"no longer has session {session}: .*restart this server"):
        await asyncio.to_thread(store.renew_session, session, 10)


async def test_appends_of_an_expired_session_are_rejected(stores: Stores, clock: Clock) -> None:
    dead, alive = await stores[0].open_session(10), await stores[1].open_session(3600)
    first = await stores[0].append(created(new_ref(), claim=dead))
    clock.now += 11_000
    (orphan,) = await stores[1].orphaned_tasks(alive, 10)
    await stores[1].append(Append(task=orphan.ref, guard=by_runner(first).guard, retry=True, claim_session=alive))
    with pytest.raises(AppendRejected, match=FENCED):
        await stores[0].append(by_runner(first, artifact("a", "late")))


RUNS = """
import asyncio, os, sys
from dragoman.extensions.postgres.store import open_store
from dragoman.testing.fixtures import created, new_ref

async def main():
    store = await open_store(sys.argv[1])
    claimed = await store.append(created(new_ref(), claim=await store.open_session(3600)))
    print(claimed.record.id, flush=True)
    input()

asyncio.run(main())
"""


@needs_proc
async def test_the_tasks_of_a_dead_process_are_orphans_at_once(stores: Stores, postgres_url: str) -> None:
    """Not only when its session expires, in an hour; and not while it runs."""
    runs = [sys.executable, "-c", RUNS, postgres_url]
    process = await asyncio.create_subprocess_exec(*runs, stdin=PIPE, stdout=PIPE)
    assert process.stdout is not None
    task = (await process.stdout.readline()).decode().strip()
    own = await stores[0].open_session(3600)
    assert await stores[0].orphaned_tasks(own, 10) == []
    process.kill()
    await process.wait()
    assert [head.id for head in await stores[0].orphaned_tasks(own, 10, expired=False)] == [task]
    assert list(await stores[0].sessions()) == [own]
