"""Several runtimes on one PostgreSQL, without a bus: each task runs once and none waits for ever."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import timings
from tests.eventually import eventually
from tests.runtime.harness import collect, kinds, open_harness, state
from tests.runtime.maintenance.test_retention import STEPS, check_that_a_step_pauses
from tests.runtime.test_fencing import AGAIN, LATE, check_late_writes

from dragoman import Turn
from dragoman.extensions.postgres.store import PostgresStore, open_store
from dragoman.testing.fixtures import Clock, created, new_ref

pytestmark = pytest.mark.long

Stores = tuple[PostgresStore, PostgresStore]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def stores(postgres_url: str, clock: Clock) -> Stores:
    first, second = await open_store(postgres_url, clock=clock), await open_store(postgres_url, clock=clock)
    return first, second  # closed by the caller


@AGAIN
@LATE
async def test_late_writes_of_a_paused_process_are_rejected(
    tmp_path: Path, stores: Stores, clock: Clock, late: Any, again: bool
) -> None:
    await check_late_writes(stores, clock, tmp_path, late, again=again)


async def test_waiting_tasks_run_once_on_any_process_with_room(tmp_path: Path, stores: Stores) -> None:
    runs: list[str] = []

    async def echo(turn: Turn) -> str:
        runs.append(turn.text)
        await asyncio.sleep(0)
        return turn.text

    for number in range(60):  # left by a dead process
        await stores[0].append(created(new_ref(), text=str(number)))
    async with (
        open_harness(tmp_path, echo, store=stores[0], exclusive=False) as one,
        open_harness(tmp_path, echo, store=stores[1], exclusive=False) as other,
    ):
        await eventually(lambda: len(runs) >= 60)
        await one.idle()
        await other.idle()
        page = await one.list(page_size=100)
        assert [state(task) for task in page.tasks] == ["COMPLETED"] * 60
    assert sorted(runs) == sorted(map(str, range(60)))


async def test_a_task_without_a_job_message_is_found(tmp_path: Path, stores: Stores) -> None:
    """The process that made it ready died before it published a job; the other one is idle."""

    async def echo(turn: Turn) -> str:
        return turn.text

    async with open_harness(
        tmp_path, echo, store=stores[0], exclusive=False, timings=timings(backlog_poll_interval=0.01)
    ) as idle:
        head = (await stores[1].append(created(new_ref()))).record
        assert state(await idle.ended(head.id)) == "COMPLETED"
    await stores[1].close()


async def test_a_subscriber_on_another_process_sees_every_event(tmp_path: Path, stores: Stores) -> None:
    go_on = asyncio.Event()

    async def counts(turn: Turn) -> None:
        for number in range(3):
            turn.chunk(str(number))
            await turn.flush()
        await go_on.wait()
        turn.chunk("3")

    async with (
        open_harness(tmp_path, counts, store=stores[0], exclusive=False) as one,
        open_harness(tmp_path, counts, store=stores[1], exclusive=False) as other,
    ):
        task = await one.start()
        stream = other.follow(task.id)
        first = await anext(stream)
        following = asyncio.create_task(collect(stream))
        go_on.set()
        await one.ended(task.id)
        while not following.done():
            await other.runtime.feeds.poll()  # what it does every two seconds
        shown = kinds([first, *following.result()])
        assert shown[-1] == "COMPLETED"
        assert shown[0].startswith("task ")


@pytest.mark.parametrize("step", STEPS)
async def test_a_step_of_the_databases_clock_pauses_retention(
    stores: Stores, clock: Clock, step: int, caplog: pytest.LogCaptureFixture
) -> None:
    await check_that_a_step_pauses(stores[0], clock, step, caplog)
    for store in stores:
        await store.close()
