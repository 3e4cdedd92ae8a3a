"""The lease of a process: it ends by the process's clock before others may act."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

from tests.runtime.unavailable_store import UnavailableStore

from dragoman.runtime.lease import Lease, elapsed_clock, watch_lease
from dragoman.runtime.sessions import Heartbeat


class ManualClock:
    """Seconds that a test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_lease_ends_a_margin_before_the_session_counted_from_the_start_of_its_renewal() -> None:
    clock = ManualClock()
    lease = Lease(10.0, margin=2.0, clock=clock)
    assert lease.remaining == 8.0
    began, clock.now = clock.now + 1, clock.now + 4
    lease.extend(began, 10.0)
    assert lease.remaining == 5.0


def test_a_hold_stays_lost_after_a_lapse_although_the_lease_is_renewed() -> None:
    clock = ManualClock()
    lease = Lease(10.0, clock=clock)
    before = lease.hold()
    seen = []
    for seconds in (7.9, 0.1):
        clock.now += seconds
        seen.append(before.lost)
    lease.extend(clock.now, 10.0)
    seen += [before.lost, lease.hold().lost]
    assert seen == [False, True, True, False]


def test_an_answer_that_was_read_too_late_extends_nothing() -> None:
    clock = ManualClock()
    lease = Lease(10.0, clock=clock)
    began = clock.now
    clock.now += 60.0
    lease.extend(began, 10.0)
    assert lease.remaining < 0


def test_the_clock_of_a_lease_runs_forward() -> None:
    before = elapsed_clock()
    assert elapsed_clock() >= before


async def test_a_lapse_is_noticed_while_the_lease_is_watched() -> None:
    clock, lapsed = ManualClock(), asyncio.Event()
    lease = Lease(10.0, clock=clock)
    clock.now += 60.0
    watching = asyncio.create_task(watch_lease(lease, lapsed.set))
    await asyncio.wait_for(lapsed.wait(), 30)
    watching.cancel()


async def test_only_renewals_that_succeed_extend_the_lease(tmp_path: Path) -> None:
    clock, store = ManualClock(), cast(Any, UnavailableStore(tmp_path / "tasks.db"))
    try:
        lease = Lease(10.0, clock=clock)
        heartbeat = Heartbeat(store, await store.open_session(10.0), clock=clock, run_lease=lease)
        clock.now += 2.0
        store.unavailable.add("renew_session")
        await asyncio.to_thread(heartbeat.renew)
        assert lease.remaining == 6.0
        store.unavailable.clear()
        await asyncio.to_thread(heartbeat.renew)
        assert lease.remaining == 8.0
    finally:
        await store.close()
