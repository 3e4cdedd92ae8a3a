"""Sessions that expired during an outage or a pause: only those of dead processes are reaped."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from tests.runtime.harness import open_harness, state, status_text
from tests.runtime.test_sessions import reaper
from tests.runtime.unavailable_store import UnavailableStore

from dragoman import Turn
from dragoman.core.errors import Unavailable
from dragoman.runtime import sessions
from dragoman.stores.sqlite import open_store
from dragoman.testing.fixtures import Clock

# Sessions that expire because no process could renew them -----------------------------------------------------------


class Times:
    """The store's clock and a process's own, which may be moved together or alone."""

    def __init__(self) -> None:
        self.store = Clock()
        self.own = 0.0

    def pass_(self, seconds: float) -> None:
        self.store.now += round(seconds * 1000)
        self.own += seconds


@asynccontextmanager
async def kept_alone(tmp_path: Path, times: Times) -> AsyncIterator[tuple[Any, sessions.Heartbeat]]:
    """A store, and the heartbeat of a session that only the test renews: a runtime renews its own when it starts."""
    store = cast(Any, UnavailableStore(tmp_path / "tasks.db", clock=times.store))
    try:
        yield store, sessions.Heartbeat(store, await store.open_session(10.0), clock=lambda: times.own)
    finally:
        await store.close()


def keeps(here: Any, times: Times) -> sessions.Heartbeat:
    """The heartbeat of a runtime, renewed by the test."""
    return sessions.Heartbeat(here.store, here.runtime.scheduler.session, clock=lambda: times.own)


async def goes_on(times: Times, *beats: sessions.Heartbeat, seconds: int) -> list[bool]:
    """Advances time while these heartbeats renew. Returns which of them trust expired sessions at the end."""
    sure = []
    for _ in range(0, seconds, 2):
        times.pass_(2)
        sure = [await asyncio.to_thread(beat.renew) for beat in beats]
    return sure


async def holds(turn: Turn) -> None:
    await asyncio.Event().wait()


@asynccontextmanager
async def two(tmp_path: Path, times: Times) -> AsyncIterator[tuple[Any, Any, sessions.Heartbeat, sessions.Heartbeat]]:
    """Two runtimes on one file whose heartbeats have renewed in time for a while, and these heartbeats."""
    first, second = (cast(Any, UnavailableStore(tmp_path / "tasks.db", clock=times.store)) for _ in range(2))
    async with (
        open_harness(tmp_path, holds, store=first, exclusive=False) as one,
        open_harness(tmp_path, holds, store=second, exclusive=False) as other,
    ):
        beats = keeps(one, times), keeps(other, times)
        assert await goes_on(times, *beats, seconds=8) == [False, False], "a new process trusts no expiry"
        assert await goes_on(times, *beats, seconds=2) == [True, True]
        yield one, other, *beats


async def test_after_an_outage_sessions_renewed_in_time_are_not_reaped(tmp_path: Path) -> None:
    times = Times()
    async with two(tmp_path, times) as (one, other, beats, others):
        task = await one.start()
        reaping = reaper(other, trusts_expiry=others.renew_in_thread)
        for store in (one.store, other.store):
            store.unavailable.add("renew_session")
        await goes_on(times, beats, others, seconds=30)
        assert await reaping.reap() == 0, "while only renewals fail"
        for store in (one.store, other.store):
            store.unavailable.clear()
        assert await reaping.reap() == 0, "before the other process has renewed"
        assert await goes_on(times, beats, others, seconds=8) == [False, False]
        assert await reaping.reap() == 0
        assert state(await other.get(task.id)) in ("SUBMITTED", "WORKING")
        # A process that does not return is dead after a lease.
        assert await goes_on(times, others, seconds=10) == [True]
        assert await reaping.reap() == 1
        assert status_text(await other.get(task.id)).startswith("INTERRUPTED: ")


async def test_a_process_paused_for_longer_than_its_lease_is_reaped_and_does_not_reap(tmp_path: Path) -> None:
    times = Times()
    async with two(tmp_path, times) as (one, other, beats, others):
        task, there = await one.start(), await other.start()
        assert await goes_on(times, others, seconds=12) == [True]
        assert await reaper(other, trusts_expiry=others.renew_in_thread).reap() == 1
        assert status_text(await other.get(task.id)).startswith("INTERRUPTED: ")
        # If both were paused, the first to continue would find the other's session expired.
        times.pass_(12)
        assert await reaper(one, trusts_expiry=beats.renew_in_thread).reap() == 0
        assert state(await one.get(there.id)) in ("SUBMITTED", "WORKING")


@pytest.mark.parametrize("whose", ["store", "own"])
async def test_a_clock_that_jumps_or_stops_expires_no_session(tmp_path: Path, whose: str) -> None:
    """On a paused machine the process's clock stops as well; the store's clock continues, or jumps."""
    times = Times()
    async with two(tmp_path, times) as (one, other, beats, others):
        task = await one.start()
        if whose == "store":
            times.store.now += 3_600_000
        else:
            times.own += 3_600
        assert await reaper(other, trusts_expiry=others.renew_in_thread).reap() == 0
        assert await goes_on(times, beats, others, seconds=8) == [False, False]
        assert await goes_on(times, beats, others, seconds=4) == [True, True]
        assert await reaper(other, trusts_expiry=others.renew_in_thread).reap() == 0
        assert state(await other.get(task.id)) in ("SUBMITTED", "WORKING")


async def test_a_process_started_after_an_outage_reaps_no_session_that_may_still_renew(tmp_path: Path) -> None:
    times = Times()
    async with two(tmp_path, times) as (one, _, beats, others):
        task = await one.start()
        times.pass_(30)
        store = open_store(tmp_path / "tasks.db", clock=times.store)
        async with open_harness(tmp_path, holds, store=store, exclusive=False) as new:
            assert state(await new.get(task.id)) in ("SUBMITTED", "WORKING"), "it polled at its start"
            news = keeps(new, times)
            assert await goes_on(times, beats, others, news, seconds=10) == [False, False, True]
            assert await reaper(new, trusts_expiry=news.renew_in_thread).reap() == 0
            assert await goes_on(times, news, seconds=12) == [True]
            assert await reaper(new, trusts_expiry=news.renew_in_thread).reap() == 1


async def test_a_session_that_was_not_renewed_for_two_intervals_is_a_problem_of_the_store(tmp_path: Path) -> None:
    times = Times()
    async with kept_alone(tmp_path, times) as (_, beat):
        await goes_on(times, beat, seconds=4)
        times.pass_(4)  # two intervals
        assert beat.problem == ""
        times.pass_(1)
        assert beat.problem == "the session was not renewed for 5 s: the store does not respond"
        await goes_on(times, beat, seconds=2)
        assert beat.problem == ""


async def test_renewals_that_fail_are_logged_once_a_minute_and_readiness_says_why(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    times = Times()
    async with kept_alone(tmp_path, times) as (store, beat):
        store.error = lambda: Unavailable("the disk is away")
        store.unavailable.add("renew_session")
        await goes_on(times, beat, seconds=60)
        assert beat.problem == "the session was not renewed for 60 s: the disk is away"
        failures = [one for one in caplog.messages if one.startswith("the session could not be renewed")]
        assert len(failures) == 1
        await goes_on(times, beat, seconds=4)
        store.unavailable.clear()
        await goes_on(times, beat, seconds=2)
        store.unavailable.add("renew_session")
        await goes_on(times, beat, seconds=2)
        failures = [one for one in caplog.messages if one.startswith("the session could not be renewed")]
        assert len(failures) == 3, "one after a minute, and the first one of a new series"
