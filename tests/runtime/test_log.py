"""Readiness from appends: when the store counts as a problem, and how it recovers without traffic."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import set_timings
from tests.eventually import eventually
from tests.runtime.harness import open_harness, state, texts
from tests.runtime.unavailable_store import UnavailableStore

from dragoman import Turn
from dragoman.bus.local import LocalBus
from dragoman.core.durations import Backoff
from dragoman.core.errors import Unavailable
from dragoman.core.task.log import AppendRejected
from dragoman.runtime.log import PROBE_NAME, EventLog, StoreHealth
from dragoman.testing.fixtures import created, new_ref


class ManualClock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class SilentStore:
    """Answers appends when the test does."""

    def __init__(self) -> None:
        self.answers: list[asyncio.Future[Any]] = []

    def append(self, _change: object) -> asyncio.Future[Any]:
        self.answers.append(asyncio.get_running_loop().create_future())
        return self.answers[-1]


@pytest.fixture
def silent() -> tuple[StoreHealth, EventLog, SilentStore, ManualClock]:
    clock, store = ManualClock(), SilentStore()
    health = StoreHealth(max_wait=5.0, clock=clock)
    return health, EventLog(store, LocalBus(), health=health), store, clock  # type: ignore[arg-type]


async def answered(future: asyncio.Future[Any]) -> None:
    with suppress(Exception):
        await future


Silent = tuple[StoreHealth, EventLog, SilentStore, ManualClock]


async def test_an_append_that_waits_is_a_problem_after_five_seconds(silent: Silent) -> None:
    health, event_log, store, clock = silent
    future = event_log.append(created(new_ref()))
    clock.now = 4.9
    assert health.problem == ""
    clock.now = 5.0
    assert health.problem == "no write has succeeded for 5 s: the store does not respond"
    store.answers[0].set_exception(AppendRejected("absent", None))  # answered by its guard: the store works
    await answered(future)
    assert health.problem == ""


async def test_appends_that_wait_behind_others_that_succeed_are_no_problem(silent: Silent) -> None:
    health, event_log, store, clock = silent
    futures = [event_log.append(created(new_ref())) for _ in range(3)]
    for number in range(2):
        clock.now += 4
        store.answers[number].set_exception(AppendRejected("absent", None))
        await answered(futures[number])
    assert health.problem == ""
    clock.now += 5
    assert "no write has succeeded for 5 s" in health.problem


async def test_one_append_that_fails_is_no_problem_and_three_in_a_row_are_whatever_the_cause(silent: Silent) -> None:
    health, event_log, store, _ = silent
    errors = [Unavailable("the store is full"), RuntimeError("a secret of the database"), Unavailable("it is full")]
    for number, error in enumerate(errors):
        assert health.problem == ""
        future = event_log.append(created(new_ref()))
        store.answers[number].set_exception(error)
        await answered(future)
    assert health.problem == "the last writes failed: it is full"
    health.note_failure(errors[1])
    assert health.problem == "the last writes failed: see the log"


async def test_failures_without_a_success_are_a_problem_after_five_seconds(silent: Silent) -> None:
    health, event_log, store, clock = silent
    future = event_log.append(created(new_ref()))
    store.answers[0].set_exception(Unavailable("the store is full"))
    await answered(future)
    clock.now = 5.0
    assert health.problem == "no write has succeeded for 5 s: the store is full"


async def test_a_rejected_append_does_not_hide_failures_because_it_writes_nothing(silent: Silent) -> None:
    health, event_log, store, _ = silent
    for number, error in enumerate([*[Unavailable("the store is full")] * 3, AppendRejected("absent", None)]):
        future = event_log.append(created(new_ref()))
        store.answers[number].set_exception(error)
        await answered(future)
    assert health.problem == "the last writes failed: the store is full"


async def test_a_write_that_fails_without_its_caller_is_one_line_of_the_log(
    silent: Silent, caplog: pytest.LogCaptureFixture
) -> None:
    _, event_log, store, _ = silent
    for number in range(3):
        event_log.append(created(new_ref())).cancel()
        store.answers[number].set_exception(Unavailable("the store is full"))
    await eventually(lambda: caplog.records)
    await asyncio.sleep(0)
    (record,) = caplog.records
    assert record.getMessage() == "a write failed after its caller had disconnected: the store is full"
    assert not record.exc_info


@asynccontextmanager
async def probing(path: Path) -> AsyncIterator[tuple[StoreHealth, Any]]:
    """A health that probes a store all the time."""
    store: Any = UnavailableStore(path / "tasks.db")
    health = StoreHealth()
    probes = asyncio.create_task(health.probe_forever(store, 0.001))
    yield health, store
    probes.cancel()
    await store.close()


@pytest.mark.parametrize("what", ["append", "key_values"])
async def test_a_probe_ends_the_problem_without_traffic(tmp_path: Path, what: str) -> None:
    async with probing(tmp_path) as (health, store):
        keys = store.key_values

        class Refusing:
            get = store._refuse("get")

        if what == "append":
            store.unavailable.add("append")
        else:
            store.key_values = Refusing()
        health.note_failure(Unavailable("the store is full"))
        await store.tried("append" if what == "append" else "get", 4)
        assert health.problem == "the last writes failed: the store does not answer"
        store.unavailable.clear()
        store.key_values = keys
        await eventually(lambda: not health.failures)
        assert health.problem == ""
        assert await store.key_values.get(PROBE_NAME) == ""


async def test_a_probe_that_succeeds_does_not_hide_appends_that_fail(tmp_path: Path) -> None:
    async with probing(tmp_path) as (health, store):
        seen: list[str] = []
        get = store.key_values.get

        class Counting:
            compare_and_set = staticmethod(store.key_values.compare_and_set)

            async def get(self, name: str) -> str:
                seen.append(health.problem)
                if len(seen) < 20:
                    health.note_failure(Unavailable("the store is full"))  # a caller's append
                return str(await get(name))

        store.key_values = Counting()
        for _ in range(3):
            health.note_failure(Unavailable("the store is full"))
        await eventually(lambda: not health.problem)
        assert len(seen) >= 20
        assert set(seen) == {"the last writes failed: the store is full"}


async def test_no_probe_is_made_while_appends_succeed(tmp_path: Path) -> None:
    async with probing(tmp_path) as (health, store):
        store.unavailable.add("append")
        await asyncio.sleep(0)
        assert not store.refused
        assert health.problem == ""


async def test_a_runtime_reports_a_store_that_takes_no_appends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The session is renewed meanwhile; the turn that returned is written afterwards."""
    set_timings(monkeypatch, store_retry=Backoff(0.01, 0.02), store_probe_interval=0.01)

    async def works(turn: Turn) -> str:
        await here.at("go").wait()
        return turn.text

    store: Any = UnavailableStore(tmp_path / "tasks.db")
    async with open_harness(tmp_path, works, store=store) as here:
        task = await here.start("kept")
        await eventually(lambda: here.runtime.scheduler.running)
        store.unavailable.add("append")
        here.at("go").set()
        await eventually(here.runtime.store_problem)
        assert "the last writes failed" in here.runtime.store_problem()
        store.unavailable.clear()
        ended = await here.ended(task.id)
        assert (state(ended), texts(ended)) == ("COMPLETED", ["kept"])
        await eventually(lambda: not here.runtime.store_problem())
