"""Two runtimes on one store: a process paused for too long has lost its task, and its writes are rejected."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.eventually import eventually
from tests.runtime.harness import Harness, open_harness, state, texts
from tests.runtime.test_sessions import trusted

from dragoman import Turn, retry
from dragoman.core.task import states
from dragoman.ports import Store
from dragoman.runtime.sessions import LEASE_SECONDS, Reaper
from dragoman.stores.sqlite import open_store
from dragoman.testing.fixtures import Clock


async def chunks(turn: Turn) -> str:
    turn.chunk("late chunk")
    await turn.flush()
    return "late"


async def finishes(turn: Turn) -> str:
    return "late"


async def asks(turn: Turn) -> None:
    turn.ask("late?")


async def breaks(turn: Turn) -> None:
    raise RuntimeError("late")


async def speaks(turn: Turn) -> str:
    turn.status("late")
    return "late"


def reaper_of(here: Harness) -> Reaper:
    scheduler, agents = here.runtime.scheduler, here.runtime.registry.agents
    return Reaper(here.store, here.bus, scheduler.services.event_log, scheduler.session, agents, trusted)


LATE = pytest.mark.parametrize("late", [chunks, finishes, asks, breaks, speaks])
AGAIN = pytest.mark.parametrize("again", [False, True])


async def check_late_writes(stores: Sequence[Store], clock: Clock, folder: Path, late: Any, *, again: bool) -> None:
    """Pauses an agent of the first store's runtime while its session expires, and then lets it go on to `late`.

    again: whether the other runtime runs the turn again.
    """
    go_on, finished = asyncio.Event(), asyncio.Event()

    async def pauses(turn: Turn) -> object:
        turn.chunk(f"attempt {turn.attempt}; ")
        if turn.attempt == 2:
            return None
        await turn.flush()
        try:
            await go_on.wait()
            return await late(turn)
        finally:
            finished.set()

    first, second = stores
    options: dict[str, Any] = {"exclusive": False} | ({"on_crash": retry(1)} if again else {})
    async with (
        open_harness(folder, pauses, store=first, **options) as paused,
        open_harness(folder, pauses, store=second, **options) as other,
    ):
        task = await paused.start()
        run = next(iter(paused.runtime.scheduler.runs))
        await eventually(lambda: run.context.record.last_sequence >= 3)
        ref, holder = run.context.record.ref, run.context.record.session
        while (snapshot := await second.read(ref)) is not None and snapshot.record.session == holder:
            clock.now += int(LEASE_SECONDS * 1000) + 1  # once more if the paused process has renewed meanwhile
            await reaper_of(other).reap()
        before = await other.ended(task.id)
        events = await second.events(ref, 0)

        go_on.set()
        await finished.wait()
        await paused.idle()
        assert await other.get(task.id) == before
        assert await second.events(ref, 0) == events
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    assert sum(event.state in states.TERMINAL for event in events) == 1
    expected = ("COMPLETED", ["attempt 2; "]) if again else ("FAILED", ["attempt 1; "])
    assert (state(before), texts(before)) == expected


@AGAIN
@LATE
async def test_late_writes_of_a_paused_process_are_rejected(tmp_path: Path, late: Any, again: bool) -> None:
    clock = Clock()
    stores = [open_store(tmp_path / "tasks.db", clock=clock) for _ in range(2)]
    await check_late_writes(stores, clock, tmp_path, late, again=again)


async def test_a_renewed_session_is_not_reaped(tmp_path: Path) -> None:
    async def holds(turn: Turn) -> None:
        await asyncio.Event().wait()

    path, now = tmp_path / "tasks.db", Clock()
    first, second = (open_store(path, clock=now) for _ in range(2))
    async with (
        open_harness(tmp_path, holds, store=first, exclusive=False) as one,
        open_harness(tmp_path, holds, store=second, exclusive=False) as other,
    ):
        task = await one.start()
        for _ in range(3):
            now.now += int(LEASE_SECONDS * 1000) - 1
            dispatch: Any = one.runtime.scheduler
            await asyncio.to_thread(first.renew_session, dispatch.session, LEASE_SECONDS)
            assert await reaper_of(other).reap() == 0
        assert state(await other.get(task.id)) in ("SUBMITTED", "WORKING")
