"""G3: no task hangs. Dead sessions, repeated turns, limits, and a blocked loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.eventually import eventually
from tests.runtime.harness import Harness, collect, open_harness, state, status_text, texts
from tests.runtime.remote_agent import Far

from dragoman import Turn, retry
from dragoman.bus.local import LocalBus
from dragoman.core.task import states
from dragoman.core.task.log import AppendRejected, StatusChange
from dragoman.ids import now_ms
from dragoman.runtime import sessions
from dragoman.runtime.log import EventLog
from dragoman.stores.sqlite import open_store
from dragoman.testing.fixtures import created, new_ref
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


class Shifted:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.ahead = 0

    def __call__(self) -> int:
        return now_ms() + self.ahead


@asynccontextmanager
async def two(tmp_path: Path, clock: Shifted, agent: Any, **options: Any) -> AsyncIterator[tuple[Harness, Harness]]:
    """Two runtimes on one file. Neither is exclusive, and neither renews during a test."""
    first, second = (open_store(tmp_path / "tasks.db", clock=clock) for _ in range(2))
    async with (
        open_harness(tmp_path, agent, store=first, exclusive=False, **options) as one,
        open_harness(tmp_path, agent, store=second, exclusive=False, **options) as other,
    ):
        yield one, other


async def trusted() -> bool:
    """Every expired session belongs to a dead process."""
    return True


def reaper(here: Harness, session: int = 0, trusts_expiry: Callable[[], Awaitable[bool]] = trusted) -> sessions.Reaper:
    dispatch = here.runtime.scheduler
    log = dispatch.services.event_log
    agents = dict(here.runtime.registry.agents)
    return sessions.Reaper(here.store, here.bus, log, session or dispatch.session, agents, trusts_expiry)


async def begun(runs: Any) -> None:
    """Waits for a run."""
    await eventually(lambda: runs)


async def hold(turn: Turn) -> str:
    yielded = turn.attempt
    turn.status(f"attempt {yielded}")
    if yielded == 1:
        await asyncio.Event().wait()
    return f"attempt {yielded}"


async def test_the_tasks_of_a_dead_process_end_within_its_lease(tmp_path: Path) -> None:
    clock = Shifted()
    async with two(tmp_path, clock, hold) as (one, other):
        task = await one.start()
        assert await reaper(other).reap() == 0, "the session is alive"
        clock.ahead += 15_000
        assert await reaper(other).reap() == 1
        ended = await other.get(task.id)
        assert (state(ended), status_text(ended).split(":")[0]) == ("FAILED", "INTERRUPTED")


async def test_a_late_write_of_a_paused_process_is_rejected(tmp_path: Path) -> None:
    clock = Shifted()
    async with two(tmp_path, clock, hold) as (one, other):
        task = await one.start()
        runs: Any = one.runtime.scheduler
        (run,) = runs.runs
        await run.context.flush()
        clock.ahead += 15_000
        await reaper(other).reap()
        late = run.context.build_append([StatusChange(states.COMPLETED)], run.context.batch._state_update, release=True)
        with pytest.raises(AppendRejected):
            await one.store.append(late)
        assert state(await one.get(task.id)) == "FAILED"


async def test_a_turn_is_repeated_where_its_agent_allows_it(tmp_path: Path) -> None:
    clock = Shifted()
    async with two(tmp_path, clock, hold, on_crash=retry(1)) as (one, other):
        task = await one.start()
        (run,) = one.runtime.scheduler.runs
        await run.context.flush()
        clock.ahead += 15_000
        await reaper(other).reap()
        ended = await other.ended(task.id)
        assert (state(ended), texts(ended)) == ("COMPLETED", ["attempt 2"])
        events = await collect(other.follow(task.id, cursor="1"))
        updates = [pb.StreamResponse.FromString(event.data).status_update for event in events]
        assert 2 in [update.metadata["attempt"] for update in updates if "attempt" in update.metadata]


async def test_a_second_attempt_sees_and_replaces_the_artifacts_of_the_first(tmp_path: Path) -> None:
    seen: list[list[str]] = []

    async def writer(turn: Turn) -> None:
        seen.append(["".join(part.text for part in artifact.parts) for artifact in turn.previous_artifacts])
        turn.chunk(f"try {turn.attempt}, ")
        turn.chunk("more")
        await turn.flush()
        if turn.attempt == 1:
            await asyncio.Event().wait()

    clock = Shifted()
    async with two(tmp_path, clock, writer, on_crash=retry(2)) as (one, other):
        task = await one.start()
        (run,) = one.runtime.scheduler.runs
        await run.context.flush()
        clock.ahead += 15_000
        await reaper(other).reap()
        assert texts(await other.ended(task.id)) == ["try 2, more"]
    assert seen == [[], ["try 1, more"]]


async def test_attempts_are_limited(tmp_path: Path) -> None:
    async def never(turn: Turn) -> None:
        await asyncio.Event().wait()

    clock = Shifted()
    async with two(tmp_path, clock, never, on_crash=retry(1)) as (one, other):
        task = await one.start()
        for runs in (one.runtime.scheduler.runs, other.runtime.scheduler.runs):
            await begun(runs)
            clock.ahead += 15_000
            await reaper(other, session=999).reap()
        assert state(await other.get(task.id)) == "FAILED"


async def test_a_drain_releases_a_turn_that_may_be_repeated(tmp_path: Path) -> None:
    stopping: list[bool] = []

    async def patient(turn: Turn) -> str:
        if turn.attempt > 1:
            return "later"
        turn.status("working")
        try:
            await asyncio.sleep(60)
        finally:
            stopping.append(turn.stopping)
        return "never"

    store = open_store(tmp_path / "tasks.db")
    async with open_harness(tmp_path, patient, store=store, on_crash=retry(1)) as here:
        task = await here.start()
        await here.runtime.scheduler.drain(0.2)
        await here.idle()
        left = await here.get(task.id)
        assert state(left) == "WORKING"
    assert stopping == [True]
    async with open_harness(tmp_path, patient, store=open_store(tmp_path / "tasks.db"), on_crash=retry(1)) as there:
        assert texts(await there.ended(task.id)) == ["later"]


async def test_a_session_is_renewed_from_a_thread_while_the_loop_is_blocked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, renewals = Shifted(), threading.Semaphore(0)
    store = open_store(tmp_path / "tasks.db", clock=clock)
    renew = store.renew_session

    def counted(session: int, lease: float) -> int:
        left = renew(session, lease)
        renewals.release()
        return left

    monkeypatch.setattr(store, "renew_session", counted)
    session = await store.open_session(600)
    heartbeat = sessions.Heartbeat(store, session, lease=600, interval=0.01)
    heartbeat.start()
    try:
        for _ in range(2):
            clock.ahead += 500_000
            for _ in range(2):  # the second renewal began after the clock was moved
                assert renewals.acquire(timeout=60)  # the loop is blocked here
        assert session in await store.sessions()
    finally:
        await asyncio.to_thread(heartbeat.stop)
        await store.close()


async def test_a_turn_at_a_worker_of_a_dead_server_is_repeated_when_the_worker_cannot_run_it_any_more(
    tmp_path: Path,
) -> None:
    """Its session ended early, because another process on the machine saw that it was dead."""
    now = [100.0]
    store: Any = open_store(tmp_path / "tasks.db")
    dead = await store.open_session(600)
    ref = (await store.append(created(new_ref(), agent="far", claim=dead))).record.ref
    mine, bus = await store.open_session(600, exclusive=True), LocalBus()
    agents = {"far": Far(crash_retries=1)}
    reaping = sessions.Reaper(store, bus, EventLog(store, bus), mine, agents, trusted, clock=lambda: now[0])
    try:
        assert await reaping.reap() == 0
        assert (await store.read(ref)).record.running, "else a cancel would end it at once"
        now[0] += sessions.LEASE_SECONDS
        assert await reaping.reap() == 1
        after = (await store.read(ref)).record
        assert (after.ready, after.attempt) == (True, 2)
    finally:
        await store.close()


async def test_turns_that_wait_for_a_worker_hold_back_no_others_and_wait_once(tmp_path: Path) -> None:
    now = [100.0]
    store: Any = open_store(tmp_path / "tasks.db")
    dead = await store.open_session(600)
    many = sessions.ORPHAN_BATCH_SIZE + 1
    await asyncio.gather(*(store.append(created(new_ref(), agent="far", claim=dead)) for _ in range(many)))
    await store.append(created(new_ref(), agent="near", claim=dead))
    mine, bus = await store.open_session(600, exclusive=True), LocalBus()
    agents = {"far": Far(crash_retries=1)}
    reaping = sessions.Reaper(store, bus, EventLog(store, bus), mine, agents, trusted, clock=lambda: now[0])
    try:
        assert await reaping.reap() == 1
        now[0] += sessions.LEASE_SECONDS
        assert await reaping.reap() == many
    finally:
        await store.close()
