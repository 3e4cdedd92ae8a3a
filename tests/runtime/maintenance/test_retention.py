"""Retention: tasks past their time end or are erased, on a clock that only the test moves."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import set_timings
from tests.eventually import eventually
from tests.runtime.harness import Harness, collect, open_harness, state, status_text

from dragoman.agents.functions.turn import Turn
from dragoman.core.errors import TaskNotFound
from dragoman.core.task import states
from dragoman.core.task.maintenance import RETENTION_REASON, RetentionPolicy, TaskSelection, parse_retention_ages
from dragoman.ports import Store
from dragoman.runtime.maintenance.retention import ClockWatch, StoreClock
from dragoman.runtime.sessions import Heartbeat
from dragoman.stores.sqlite import open_store
from dragoman.testing.fixtures import Clock

DAY = 86_400_000
Open = Callable[..., AbstractAsyncContextManager[Harness]]


async def echo(turn: Turn) -> str:
    return turn.text


async def asks(turn: Turn) -> str:
    if turn.text != "done":
        turn.ask("which?")
    return "thanks"


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def opened(tmp_path: Path, clock: Clock) -> Open:
    @asynccontextmanager
    async def open_it(*functions: Callable[[Turn], object], **options: Any) -> AsyncIterator[Harness]:
        store = open_store(tmp_path / "t.db", clock=clock)
        async with open_harness(tmp_path, *functions, store=store, **options) as here:
            # The round that every start begins with finds nothing here; it is over before the test has its own.
            await eventually(lambda: here.runtime.retention.counts.rounds)
            yield here

    return open_it


def rules(**ages: str) -> RetentionPolicy:
    return RetentionPolicy(parse_retention_ages(ages))


async def is_there(here: Harness, task_id: str) -> bool:
    try:
        await here.get(task_id)
    except TaskNotFound:
        return False
    return True


async def test_everything_is_kept_by_default(opened: Open, clock: Clock) -> None:
    async with opened(echo) as here:
        task = await here.send()
        clock.now += 10_000 * DAY
        await here.runtime.retention.run_once()
        assert await is_there(here, task.id)


async def test_a_task_is_erased_after_its_retention_time_and_not_before(opened: Open, clock: Clock) -> None:
    async with opened(echo, retention=rules(completed="30d")) as here:
        old = await here.send()
        clock.now += 30 * DAY - 1
        await here.runtime.retention.run_once()
        assert await is_there(here, old.id)
        young = await here.send()
        clock.now += 1
        await here.runtime.retention.run_once()
        assert [await is_there(here, one.id) for one in (old, young)] == [False, True]
        counts = here.runtime.retention.counts
        assert (counts.erased, counts.expired) == (1, 0)
        (receipt,) = await here.store.erasures.receipts()
        assert (receipt.reason, receipt.counts.tasks) == (RETENTION_REASON, 1)
        assert receipt.selection == "agent echo, COMPLETED, older than 30d"


async def test_a_task_that_waits_too_long_fails_visibly_before_it_is_erased(opened: Open, clock: Clock) -> None:
    async with opened(asks, retention=rules(**{"input-required": "7d", "failed": "30d"})) as here:
        task = await here.send()
        following = asyncio.create_task(collect(here.follow(task.id)))
        clock.now += 7 * DAY
        await here.runtime.retention.run_once()
        last = (await following)[-1]
        assert last.state == states.FAILED
        ended = await here.get(task.id)
        assert (state(ended), status_text(ended).startswith("EXPIRED: The task received no reply")) == ("FAILED", True)
        assert ended.status.message.metadata["reason"] == "EXPIRED"
        assert here.runtime.retention.counts.expired == 1
        clock.now += 30 * DAY - 1
        await here.runtime.retention.run_once()
        assert await is_there(here, task.id)
        clock.now += 1
        await here.runtime.retention.run_once()
        assert not await is_there(here, task.id)


async def test_an_answer_at_the_last_moment_continues_the_task(opened: Open, clock: Clock) -> None:
    async with opened(asks, retention=rules(**{"input-required": "7d"})) as here:
        task = await here.send()
        head = await here.store.find(here.call.caller.owner, "asks", task.id)
        assert head is not None
        clock.now += 7 * DAY
        stale = [one async for one in _selected(here)]
        answered = await here.send("done", task_id=task.id)
        assert state(answered) == "COMPLETED"
        assert not await here.runtime.retention._end(stale[0], TaskSelection(older_than=DAY))
        assert state(await here.get(task.id)) == "COMPLETED"


async def _selected(here: Harness) -> AsyncIterator[Any]:
    async for heads in here.store.erasures.select(TaskSelection(older_than=DAY, state=states.INPUT_REQUIRED)):
        for head in heads:
            yield head


async def test_a_running_task_in_auth_required_does_not_expire(opened: Open, clock: Clock) -> None:
    async def runs(turn: Turn) -> str:
        turn.status("log in, meanwhile I go on", state=states.AUTH_REQUIRED)
        await turn.flush()
        here.at("asked").set()
        await here.at("go").wait()
        return "done"

    async with opened(runs, retention=rules(**{"auth-required": "1d"})) as here:
        task = await here.start()
        await here.at("asked").wait()
        clock.now += 2 * DAY
        await here.runtime.retention.run_once()
        here.at("go").set()
        await here.idle()
        assert state(await here.get(task.id)) == "COMPLETED"


async def test_an_agent_sets_its_own_retention_and_the_operator_overrides_it(opened: Open, clock: Clock) -> None:
    async with opened(echo, agent_retention="1d", retention=rules(completed="30d")) as here:
        first = await here.send()
        clock.now += DAY
        await here.runtime.retention.run_once()
        assert not await is_there(here, first.id)
    operators = RetentionPolicy(overrides={"echo": parse_retention_ages({"completed": "0"})})
    async with opened(echo, agent_retention="1d", retention=operators) as here:
        second = await here.send()
        clock.now += 100 * DAY
        await here.runtime.retention.run_once()
        assert await is_there(here, second.id)


async def test_many_tasks_are_erased_in_batches(opened: Open, clock: Clock) -> None:
    async with opened(echo) as here:
        retention = replace(here.runtime.retention, rules=rules(completed="1d"), batch_size=10)
        await asyncio.gather(*(here.send() for _ in range(35)))
        clock.now += DAY
        await retention.run_once()
        assert (await here.list()).total_size == 0
        assert [one.counts.tasks for one in await here.store.erasures.receipts()] == [5, 10, 10, 10]


async def test_tasks_of_an_agent_no_longer_served_are_erased_too(opened: Open, clock: Clock) -> None:
    async with opened(echo) as here:
        await here.send()
    async with opened(asks, retention=rules(completed="1d")) as here:
        clock.now += DAY
        await here.runtime.retention.run_once()
        assert here.runtime.retention.counts.erased == 1


async def test_a_failed_round_is_logged_and_the_next_one_runs(
    opened: Open, clock: Clock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    set_timings(monkeypatch, retention_interval=0.001)
    async with opened(echo, retention=rules(completed="1d")) as here:
        keeper = here.runtime.retention
        await eventually(lambda: keeper.counts.rounds)
        inactive_states, failed = here.store.erasures.inactive_states, asyncio.Event()

        async def broken() -> list[tuple[str, int]]:
            failed.set()
            raise OSError("no disk")

        monkeypatch.setattr(here.store.erasures, "inactive_states", broken)
        await failed.wait()
        monkeypatch.setattr(here.store.erasures, "inactive_states", inactive_states)
        rounds = keeper.counts.rounds
        await eventually(lambda: keeper.counts.rounds != rounds)
    assert "background work failed: retention: OSError: no disk; it starts again in" in caplog.text


async def test_expired_and_erased_tasks_are_logged_with_counts(
    opened: Open, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "dragoman.retention")
    for function, kept in ((echo, "completed"), (asks, "input-required")):
        async with opened(function, retention=rules(**{kept: "1d"})) as here:
            await asyncio.gather(here.send(), here.send())
            clock.now += DAY
            await here.runtime.retention.run_once()
    lines = [record for record in caplog.records if record.name == "dragoman.retention"]
    logged = {line.getMessage(): (line.__dict__["tasks"], line.__dict__["after"]) for line in lines}
    assert logged == {
        "tasks past their retention time, erased: 2 of echo in COMPLETED": (2, "1d"),
        "tasks without an answer in time, ended as FAILED: 2 of asks in INPUT_REQUIRED": (2, "1d"),
    }
    page = (Path(__file__).parents[3] / "docs" / "how-to" / "data.md").read_text("utf-8")
    for message in logged:
        assert re.sub(r"\d of \w+", "1 of playground", message) in page


# Steps of the clock --------------------------------------------------------------------------------------------------


class Elapsed:
    """Monotonic seconds that only the test advances; the wall clock of the machine goes along."""

    def __init__(self) -> None:
        self.seconds = 1000.0
        self.wall_ahead = 0.0

    def __call__(self) -> float:
        return self.seconds

    def wall(self) -> float:
        return self.seconds + self.wall_ahead


async def watched(store: Store, elapsed: Elapsed) -> StoreClock:
    """The clock of the store as a new process sees it."""
    watch = ClockWatch(clock=elapsed, wall=elapsed.wall)
    session = await store.open_session(10.0)
    heartbeat = Heartbeat(
        store, session, lease=10.0, clock=elapsed, has_jumped=partial(watch.compare, "the clock of the store")
    )
    return StoreClock(store, watch, session, 10.0, heartbeat.renew_in_thread)


STEPS = [3600, -3600, 400 * 86_400, -400 * 86_400]


async def check_that_a_step_pauses(store: Store, clock: Clock, step: int, caplog: pytest.LogCaptureFixture) -> None:
    """Retention and compaction pause for a day of elapsed time after a step of the store's clock, with one line."""
    elapsed = Elapsed()
    store_clock = await watched(store, elapsed)
    assert await store_clock.is_trusted()
    elapsed.seconds += 5
    clock.forward(5 + step)
    assert not await store_clock.is_trusted()
    elapsed.seconds += 86_399
    clock.forward(86_399)
    assert not await store_clock.is_trusted()
    assert caplog.text.count("retention and compaction pause for 1d; check the clock") == 1
    assert f"the clock of the store jumped by {step:+d} s" in caplog.text
    elapsed.seconds += 2
    clock.forward(2)
    assert await store_clock.is_trusted()
    assert "the clock is trusted again" in caplog.text


@pytest.mark.parametrize("step", STEPS)
async def test_a_step_of_the_clock_pauses_retention(
    tmp_path: Path, clock: Clock, step: int, caplog: pytest.LogCaptureFixture
) -> None:
    store = open_store(tmp_path / "t.db", clock=clock)
    await check_that_a_step_pauses(store, clock, step, caplog)
    await store.close()


async def test_a_slow_renewal_is_not_a_step_of_the_clock(tmp_path: Path, clock: Clock) -> None:
    store, elapsed = open_store(tmp_path / "t.db", clock=clock), Elapsed()
    store_clock = await watched(store, elapsed)
    for seconds, progress in ((30.0, 2.0), (2.0, 30.0), (86_400.0, 86_410.0)):
        elapsed.seconds += seconds
        clock.forward(progress)
        assert await store_clock.is_trusted()
    await store.close()


def test_a_step_of_this_machines_clock_pauses_retention(caplog: pytest.LogCaptureFixture) -> None:
    """The audit log has the times of this machine, also on PostgreSQL."""
    elapsed = Elapsed()
    watch = ClockWatch(clock=elapsed, wall=elapsed.wall)
    assert watch.is_trusted()
    elapsed.wall_ahead -= 3600
    assert not watch.is_trusted()
    assert not watch.is_trusted()
    assert caplog.text.count("the clock of this machine jumped by -3600 s") == 1


@pytest.mark.parametrize("step", STEPS[1:])
async def test_a_step_of_the_clock_between_two_processes_pauses_retention(
    tmp_path: Path, clock: Clock, step: int, caplog: pytest.LogCaptureFixture
) -> None:
    store, elapsed = open_store(tmp_path / "t.db", clock=clock), Elapsed()
    assert await (await watched(store, elapsed)).is_trusted()
    clock.forward(step)
    for _ in range(2):  # a restart meanwhile does not make the clock trusted
        assert not await (await watched(store, elapsed)).is_trusted()
    assert f"the clock of the store moved by {step:+d} s since a server last used it" in caplog.text
    clock.forward(10 - step)
    assert await (await watched(store, elapsed)).is_trusted()
    await store.close()


async def test_a_clock_that_is_ahead_after_a_restart_erases_and_truncates_nothing(
    tmp_path: Path, clock: Clock, opened: Open
) -> None:
    async def chatty(turn: Turn) -> AsyncIterator[str]:
        for number in range(200):
            yield str(number)
            await turn.flush()

    async with opened(chatty, retention=rules(completed="30d")) as here:
        task = await here.send()
        (record,) = await here.store.locate(task.id)
    clock.now += 400 * DAY
    async with open_harness(
        tmp_path, chatty, store=open_store(tmp_path / "t.db", clock=clock), retention=rules(completed="30d")
    ) as here:
        await eventually(lambda: here.runtime.retention.counts.skipped or here.runtime.retention.counts.rounds)
        assert await is_there(here, task.id)
        assert await here.store.oldest_sequence(record.ref) == 1
