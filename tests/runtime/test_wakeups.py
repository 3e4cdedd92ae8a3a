"""Waking turns that sleep: by timers, by polls, and by one process only."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.eventually import eventually
from tests.runtime.harness import Harness, state, texts

from dragoman.agents.functions.declaration import agent as declare
from dragoman.agents.functions.turn import Turn
from dragoman.bus.local import LocalBus
from dragoman.core.errors import Unavailable
from dragoman.core.task import states
from dragoman.core.task.log import Append, Appended, ClaimHeld, StatusChange, TaskRecord
from dragoman.ids import now_ms
from dragoman.ports import Store
from dragoman.runtime import Ports, RuntimeConfig, open_runtime
from dragoman.runtime.log import EventLog
from dragoman.runtime.scheduler import Wakeups
from dragoman.runtime.timings import Timings
from dragoman.stores.sqlite import open_store
from dragoman.testing.fixtures import AGENT, SESSION, created, new_ref


class Place:
    """A reservation that notes what was appended."""

    def __init__(self, session: int = SESSION) -> None:
        self.session = session
        self.appended: list[Appended | None] = []

    def commit(self, appended: Appended | None) -> None:
        self.appended.append(appended)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    opened = open_store(tmp_path / "tasks.db")
    yield opened
    await opened.close()


async def asleep(store: Store, wake_at: int, agent: str = AGENT) -> TaskRecord:
    """A task whose turn sleeps."""
    claimed = (await store.append(created(new_ref(), claim=SESSION, agent=agent))).record
    change = Append(task=claimed.ref, guard=ClaimHeld(claimed.session, claimed.token), suspend=True, wake_at=wake_at)
    return (await store.append(replace(change, events=[StatusChange(states.WORKING)]))).record


def wakeups_of(store: Store, reserve: Any, interval: float = 1.0) -> Wakeups:
    return Wakeups(store, EventLog(store, LocalBus()), {AGENT}, reserve, interval)


async def test_a_poll_wakes_what_is_due(store: Store) -> None:
    place = Place()
    record = await asleep(store, now_ms() - 1)
    await wakeups_of(store, lambda agent: place).poll()
    await eventually(lambda: place.appended)
    (appended,) = place.appended
    assert appended is not None
    assert (appended.record.ref, appended.claimed, appended.record.wake_at) == (record.ref, True, 0)


async def test_a_turn_that_wakes_before_the_next_poll_gets_a_timer(store: Store) -> None:
    place = Place()
    await asleep(store, now_ms() + 50)
    wakeups = wakeups_of(store, lambda agent: place, interval=60)
    await wakeups.poll()
    assert place.appended == []
    await eventually(lambda: place.appended)


async def test_a_turn_sleeps_on_until_its_time(store: Store) -> None:
    record = await asleep(store, now_ms() + 60_000)
    wakeups = wakeups_of(store, lambda agent: Place())
    await wakeups.poll()
    wakeups.note(record)
    assert await store.sleeping_tasks(record.wake_at, 10) == [record]
    assert wakeups.timers == 0


async def test_turns_of_other_agents_are_left_to_other_processes(store: Store) -> None:
    await asleep(store, now_ms() - 1, agent="elsewhere")
    wakeups = wakeups_of(store, lambda agent: Place())
    await wakeups.poll()
    assert wakeups.timers == 0


async def test_a_turn_that_cannot_be_woken_now_is_found_by_the_next_poll(store: Store) -> None:
    place, is_away = Place(), asyncio.Event()

    def reserve(agent: str) -> Place:
        if not is_away.is_set():
            is_away.set()
            raise Unavailable("the agent is away")
        return place

    await asleep(store, now_ms() - 1)
    wakeups = wakeups_of(store, reserve)
    await wakeups.poll()
    await eventually(lambda: is_away.is_set() and not wakeups.timers)
    await wakeups.poll()
    await eventually(lambda: place.appended)


async def test_a_stop_cancels_all_timers(store: Store) -> None:
    wakeups = wakeups_of(store, lambda agent: Place(), interval=3600)
    wakeups.note(await asleep(store, now_ms() + 60_000))
    assert wakeups.timers == 1
    wakeups.stop()
    assert wakeups.timers == 0


async def test_two_processes_wake_a_turn_once(tmp_path: Path) -> None:
    runs: list[str] = []

    @asynccontextmanager
    async def process(name: str) -> AsyncIterator[Harness]:
        async def nap(turn: Turn) -> str:
            runs.append(name)
            await turn.sleep(1.5)  # well above the limit below which a pause stays in memory
            return "awake"

        store, bus = open_store(tmp_path / "tasks.db"), LocalBus()
        config = RuntimeConfig(exclusive=False, timings=Timings(backlog_poll_interval=0.2))
        async with open_runtime(Ports(store, bus, [declare()(nap)]), config) as runtime:
            yield Harness(runtime, store, bus)
        await store.close()

    async with process("one") as one, process("two"):
        task = await one.start()
        done = await one.ended(task.id)
        assert (state(done), texts(done)) == ("COMPLETED", ["awake"])
        assert len(runs) == 2
