"""An unavailable store: no task hangs because of it (G3), and no response is wrong."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import set_timings, timings
from tests.eventually import eventually
from tests.runtime.harness import open_harness, state, status_text, texts
from tests.runtime.test_sessions import Shifted, reaper
from tests.runtime.unavailable_store import UnavailableStore

from dragoman import Turn, retry
from dragoman.bus.local import LocalBus
from dragoman.core.durations import Backoff
from dragoman.core.errors import OutOfMemory, Unavailable
from dragoman.core.task.log import Event, TaskRef
from dragoman.runtime.turn.runner import TurnRunner
from dragoman.testing.contracts.store_usage import usage_of
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

pytestmark = pytest.mark.long


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retries of store reads come soon."""
    set_timings(monkeypatch, store_retry=Backoff(0.001, 0.01))


async def asks(turn: Turn) -> str:
    if len(turn.history) == 0:
        turn.ask("and?")
    return f"{turn.text} of {len(turn.references)} after {len(turn.history)}"


async def test_a_turn_begins_when_the_store_can_read_its_input(tmp_path: Path) -> None:
    store: Any = UnavailableStore(tmp_path / "tasks.db")
    async with open_harness(tmp_path, asks, store=store) as here:
        task = await here.send()
        store.unavailable.add("messages")
        await here.start("more", task_id=task.id)
        await store.tried("messages")
        assert state(await here.get(task.id)) == "WORKING"
        store.unavailable.clear()
        assert texts(await here.ended(task.id)) == ["more of 0 after 2"]


async def test_a_turn_begins_when_the_store_can_read_the_state_of_its_conversation(tmp_path: Path) -> None:
    async def remembers(turn: Turn) -> str:
        turn.context.state["turns"] = turn.context.state.get("turns", 0) + 1
        return str(turn.context.state["turns"])

    store: Any = UnavailableStore(tmp_path / "tasks.db")
    async with open_harness(tmp_path, remembers, store=store) as here:
        first = await here.send()
        store.unavailable.add("messages")
        task = await here.start(context_id=first.context_id)
        await store.tried("messages")
        store.unavailable.clear()
        assert texts(await here.ended(task.id)) == ["2"]


async def test_a_turn_begins_when_the_store_can_read_its_references(tmp_path: Path) -> None:
    async def refers(turn: Turn) -> str:
        return str(len(turn.references))

    store: Any = UnavailableStore(tmp_path / "tasks.db")
    async with open_harness(tmp_path, refers, store=store) as here:
        first = await here.send()
        store.unavailable.add("find")
        task = await here.start(reference_task_ids=[first.id])
        await store.tried("find")
        store.unavailable.clear()
        assert texts(await here.ended(task.id)) == ["1"]


async def test_a_waiting_agent_receives_messages_after_an_outage_of_the_store(tmp_path: Path) -> None:
    async def listens(turn: Turn) -> str:
        here.at("listening").set()
        async for message in turn.messages():
            return message.text
        return "nothing"

    store: Any = UnavailableStore(tmp_path / "tasks.db")
    async with open_harness(tmp_path, listens, store=store) as here:
        store.unavailable.add("messages")
        task = await here.start()
        await here.at("listening").wait()
        await here.start("more", task_id=task.id)
        await store.tried("messages")
        store.unavailable.clear()
        assert texts(await here.ended(task.id)) == ["more"]


async def test_a_task_that_waits_for_the_store_can_be_canceled(tmp_path: Path) -> None:
    store: Any = UnavailableStore(tmp_path / "tasks.db")
    async with open_harness(tmp_path, asks, store=store) as here:
        task = await here.send()
        store.unavailable.add("messages")
        await here.start("more", task_id=task.id)
        await store.tried("messages")
        assert state(await here.cancel(task.id)) == "CANCELED"
        await here.idle()


async def test_a_turn_taken_over_during_an_outage_does_not_begin(tmp_path: Path) -> None:
    begun: list[str] = []

    async def works(turn: Turn) -> str:
        if len(turn.history) == 0:
            turn.ask("and?")
        begun.append(turn.text)
        return turn.text

    clock = Shifted()
    first: Any = UnavailableStore(tmp_path / "tasks.db", clock=clock)
    second: Any = UnavailableStore(tmp_path / "tasks.db", clock=clock)
    async with (
        open_harness(tmp_path, works, store=first, exclusive=False) as one,
        open_harness(tmp_path, works, store=second, exclusive=False) as other,
    ):
        task = await one.send()
        first.unavailable.add("messages")
        await one.start("more", task_id=task.id)
        await first.tried("messages")
        first.unavailable.add("append")
        await first.tried("append")
        clock.ahead += 15_000
        assert await reaper(other).reap() == 1
        ended = await other.get(task.id)
        first.unavailable.clear()
        await one.idle()
        assert await other.get(task.id) == ended
    assert (state(ended), begun) == ("FAILED", [])


async def test_an_unexpected_store_error_fails_the_task(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store: Any = UnavailableStore(tmp_path / "tasks.db")
    store.error = lambda: RuntimeError("a bug")
    async with open_harness(tmp_path, asks, store=store) as here:
        task = await here.send()
        store.unavailable.add("messages")
        await here.start("more", task_id=task.id)
        ended = await here.ended(task.id)
        assert (state(ended), status_text(ended)) == (
            "FAILED",
            "INTERRUPTED: The server could not continue this task.",
        )
        await here.idle()
    assert "a bug" in caplog.text


async def test_a_fenced_task_ends_when_its_agent_has_stopped_and_the_store_is_available(tmp_path: Path) -> None:
    async def stubborn(turn: Turn) -> str:
        turn.status("at it")
        await turn.flush()
        here.at("working").set()
        while not here.at("go").is_set():
            try:
                await here.at("go").wait()
            except asyncio.CancelledError:
                here.at("asked").set()
        return "late"

    for returns in (True, False):  # before the store is available, or after it
        store: Any = UnavailableStore(tmp_path / f"{returns}.db")
        async with open_harness(
            tmp_path, stubborn, store=store, timings=timings(mute_timeout=0.0, cancel_timeout=0.0)
        ) as here:
            task = await here.start()
            await here.at("working").wait()
            store.unavailable.add("append")
            assert state(await here.cancel(task.id)) == "WORKING"
            await here.at("asked").wait()
            if returns:
                here.at("go").set()
                await store.tried("append", store.refused["append"] + 2)
            assert state(await here.get(task.id)) == "WORKING"
            store.unavailable.clear()
            here.at("go").set()
            ended = await here.ended(task.id)
            assert (state(ended), texts(ended)) == ("CANCELED", [])


async def test_a_drain_releases_a_turn_when_the_store_is_available(tmp_path: Path) -> None:
    async def patient(turn: Turn) -> str:
        if turn.attempt == 1:
            here.at("working").set()
            await asyncio.Event().wait()
        return f"attempt {turn.attempt}"

    store: Any = UnavailableStore(tmp_path / "tasks.db")
    async with open_harness(tmp_path, patient, store=store, on_crash=retry(1)) as here:
        task = await here.start()
        await here.at("working").wait()
        store.unavailable.add("append")
        await here.runtime.scheduler.drain(0)
        await store.tried("append")
        store.unavailable.clear()
        await here.idle()
    async with open_harness(tmp_path, patient, on_crash=retry(1)) as there:
        assert texts(await there.ended(task.id)) == ["attempt 2"]


@pytest.mark.parametrize("reading", [True, False])
async def test_a_server_stops_during_an_outage_of_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reading: bool
) -> None:
    """Whether the turn reads its input or works; the next start ends the task."""

    async def works(turn: Turn) -> None:
        if len(turn.history) == 0:
            turn.ask("and?")
        here.at("working").set()
        await asyncio.Event().wait()

    store: Any = UnavailableStore(tmp_path / "tasks.db")
    async with open_harness(tmp_path, works, store=store, timings=timings(stop_timeout=0.05)) as here:
        task = await here.send()
        if reading:
            store.unavailable.add("messages")
        await here.start("more", task_id=task.id)
        await (store.tried("messages") if reading else here.at("working").wait())
        store.unavailable |= {"messages", "append"}
        await here.runtime.scheduler.drain(0)
        await store.tried("append")
    async with open_harness(tmp_path, works) as there:
        ended = await there.get(task.id)
        assert (state(ended), status_text(ended).split(":")[0]) == ("FAILED", "INTERRUPTED")


@pytest.mark.parametrize("what", ["ready_tasks", "append"])
async def test_waiting_tasks_are_claimed_after_an_outage_of_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:

    async def works(turn: Turn) -> str:
        if turn.text == "first":
            await here.at("go").wait()
        return turn.text

    store: Any = UnavailableStore(tmp_path / "tasks.db")
    async with open_harness(
        tmp_path, works, store=store, slots=1, timings=timings(backlog_poll_interval=0.001)
    ) as here:
        first = await here.start("first")
        second = await here.start("second")
        append = store.append
        # The end of the first can be written, and the second cannot be claimed.
        store.append = lambda change: append(change) if change.release else store.claims(change)
        store.claims = store._refuse("append") if what == "append" else append
        store.unavailable |= {what} - {"append"}
        here.at("go").set()
        await store.tried(what)
        assert state(await here.get(first.id)) == "COMPLETED"
        assert not here.runtime.scheduler.running
        store.claims = append
        store.unavailable.clear()
        assert texts(await here.ended(second.id)) == ["second"]


@pytest.mark.parametrize("error", [MemoryError, OutOfMemory, lambda: RuntimeError("the store is broken")])
async def test_a_turn_that_the_store_cannot_end_is_ended_as_soon_as_it_can(
    tmp_path: Path, error: Callable[[], Exception]
) -> None:
    async def breaks_the_store(turn: Turn) -> str:
        store.unavailable.add("append")
        return "lost"

    store: Any = UnavailableStore(tmp_path / "tasks.db")
    store.error = error
    async with open_harness(tmp_path, breaks_the_store, store=store) as here:
        task = await here.start()
        await store.tried("append", 6)
        assert state(await here.get(task.id)) in ("SUBMITTED", "WORKING")
        store.unavailable.clear()
        assert state(await here.ended(task.id)) == "FAILED"
    assert not here.runtime.scheduler.running


async def test_events_and_steps_of_a_turn_wait_for_the_store_and_are_written_once(tmp_path: Path) -> None:
    ran: list[int] = []

    async def once() -> int:
        ran.append(1)
        return 4

    async def works(turn: Turn) -> str:
        store.unavailable.add("append")
        turn.status("first")
        number = await turn.step("square", once)
        turn.status("second")
        await turn.flush()
        return f"result {number}"

    store: Any = UnavailableStore(tmp_path / "tasks.db")
    async with open_harness(tmp_path, works, store=store) as here:
        task = await here.start()
        await store.tried("append", 4)
        assert state(await here.get(task.id)) in ("SUBMITTED", "WORKING")
        store.unavailable.clear()
        ended = await here.ended(task.id)
        assert (state(ended), texts(ended), ran) == ("COMPLETED", ["result 4"], [1])
        shown = [message.parts[0].text for message in ended.history if message.role == pb.ROLE_AGENT]
        assert shown == ["first", "second"]


async def test_reported_usage_waits_for_the_store(tmp_path: Path) -> None:
    async def works(turn: Turn) -> str:
        store.unavailable.add("append")
        turn.usage(tokens=7)
        return "result"

    store: Any = UnavailableStore(tmp_path / "tasks.db")
    async with open_harness(tmp_path, works, store=store) as here:
        task = await here.start()
        await store.tried("append")
        store.unavailable.clear()
        ended = await here.ended(task.id)
        (record,) = await store.locate(task.id)
        assert (state(ended), (await usage_of(store, record.ref)).tokens) == ("COMPLETED", 7)


async def test_events_of_a_turn_are_not_repeated_if_they_may_have_been_written(tmp_path: Path) -> None:
    def unknown() -> Unavailable:
        error = Unavailable("it is not known")
        error.outcome_unknown = True
        return error

    async def works(turn: Turn) -> str:
        store.unavailable.add("append")
        turn.status("first")
        with suppress(Unavailable):
            await turn.flush()
        store.unavailable.clear()
        return "result"

    store: Any = UnavailableStore(tmp_path / "tasks.db")
    store.error = unknown
    async with open_harness(tmp_path, works, store=store) as here:
        assert status_text(await here.send()).startswith("NOT_WRITTEN")
        assert store.refused["append"] == 1


async def test_a_canceled_turn_whose_events_wait_ends_when_the_store_is_available(tmp_path: Path) -> None:
    async def works(turn: Turn) -> None:
        store.unavailable.add("append")
        turn.status("first")
        await turn.flush()

    store: Any = UnavailableStore(tmp_path / "tasks.db")
    async with open_harness(tmp_path, works, store=store, timings=timings(cancel_timeout=0.0)) as here:
        task = await here.start()
        await store.tried("append")
        assert state(await here.cancel(task.id)) in ("SUBMITTED", "WORKING")
        store.unavailable.clear()
        assert state(await here.ended(task.id)) == "CANCELED"
        await here.idle()


async def test_a_direct_reply_waits_for_the_store(tmp_path: Path) -> None:
    async def replies(turn: Turn) -> None:
        store.unavailable.add("append")
        turn.reply(turn.text)

    store: Any = UnavailableStore(tmp_path / "tasks.db")
    async with open_harness(tmp_path, replies, store=store, direct=True) as here:
        answering = asyncio.ensure_future(here.answer("hello"))
        await store.tried("append")
        store.unavailable.clear()
        assert (await answering).message.parts[0].text == "hello"


async def test_a_turn_goes_on_if_its_events_cannot_be_published(tmp_path: Path) -> None:
    class FullBus(LocalBus):
        def publish(self, task: TaskRef, events: Sequence[Event]) -> None:
            if len(failed) < 2:
                failed.append(task)
                raise MemoryError
            super().publish(task, events)

    async def echo(turn: Turn) -> str:
        return turn.text

    failed: list[TaskRef] = []
    async with open_harness(tmp_path, echo, bus=FullBus()) as here:
        task = await here.start()
        await eventually(lambda: here.runtime.scheduler.counts["echo"].ended_by_state)
        assert state(await here.get(task.id)) == "COMPLETED"
        assert here.runtime.scheduler.runs.free_slots == here.runtime.scheduler.runs.slots
    assert failed


async def test_a_claimed_turn_that_cannot_begin_begins_later(tmp_path: Path) -> None:
    async def echo(turn: Turn) -> str:
        return turn.text

    def run(runner: TurnRunner) -> Coroutine[Any, Any, None]:
        if not failed:
            failed.append(runner.context.task_id)
            raise MemoryError
        return runner.run()

    failed: list[str] = []
    async with open_harness(tmp_path, echo, run_turns=run) as here:
        with pytest.raises(MemoryError):
            await here.start()
        await eventually(lambda: here.runtime.scheduler.counts["echo"].ended_by_state)
        assert state(await here.get(failed[0])) == "COMPLETED"
        assert here.runtime.scheduler.runs.free_slots == here.runtime.scheduler.runs.slots
