"""An unavailable store: no task hangs because of it (G3), and no response is wrong."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from tests.runtime.harness import collect, kinds, open_harness, request, state, status_text, texts
from tests.runtime.test_sessions import Shifted, reaper
from tests.runtime.unavailable_store import UnavailableStore

from dragoman import Turn, retry
from dragoman.core.durations import Backoff
from dragoman.core.errors import Unavailable
from dragoman.runtime import Call, scheduler, sessions
from dragoman.runtime import log as runtime_log
from dragoman.runtime.turn import runner
from dragoman.stores.sqlite import open_store
from dragoman.testing.fixtures import Clock
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waits for the store asks it again soon."""
    monkeypatch.setattr(runtime_log, "STORE_RETRY_BACKOFF", Backoff(0.001, 0.01))


async def asks(turn: Turn) -> str:
    if len(turn.history) == 0:
        turn.ask("and?")
    return f"{turn.text} of {len(turn.references)} after {len(turn.history)}"


@pytest.mark.parametrize("what", ["messages", "usage", "context_state"])
async def test_a_turn_begins_when_the_store_can_read_its_input(tmp_path: Path, what: str) -> None:
    store: Any = UnavailableStore(tmp_path / "tasks.db")
    async with open_harness(tmp_path, asks, store=store) as here:
        task = await here.send()
        store.unavailable.add(what)
        await here.start("more", task_id=task.id)
        await store.tried(what)
        assert state(await here.get(task.id)) == "WORKING"
        store.unavailable.clear()
        assert texts(await here.ended(task.id)) == ["more of 0 after 2"]


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


async def test_an_agent_that_waits_for_messages_hears_of_them_when_the_store_can_tell(tmp_path: Path) -> None:
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


async def test_a_turn_that_others_took_over_meanwhile_does_not_begin(tmp_path: Path) -> None:
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


async def test_a_run_that_meets_another_error_ends_its_task(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
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


async def test_a_task_whose_agent_does_not_stop_is_ended_when_the_store_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "FENCE_TIMEOUT", 0.0)
    monkeypatch.setattr("dragoman.runtime.operations.cancel.CANCEL_TIMEOUT", 0.0)

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

    for returns in (True, False):  # before the store is back, or after it
        store: Any = UnavailableStore(tmp_path / f"{returns}.db")
        async with open_harness(tmp_path, stubborn, store=store) as here:
            task = await here.start()
            await here.at("working").wait()
            store.unavailable.add("append")
            assert state(await here.cancel(task.id)) == "WORKING"
            await store.tried("append")
            if returns:
                here.at("go").set()
                await store.tried("append", store.refused["append"] + 2)
            assert state(await here.get(task.id)) == "WORKING"
            store.unavailable.clear()
            ended = await here.ended(task.id)
            assert (state(ended), status_text(ended).split(":")[0]) == ("CANCELED", "FENCED")
            here.at("go").set()
            await here.idle()


async def test_a_drain_gives_a_turn_back_when_the_store_is_back(tmp_path: Path) -> None:
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
async def test_a_server_stops_while_the_store_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reading: bool
) -> None:
    """Whether its turn waits for what it has to read, or works; the next start ends the task."""
    monkeypatch.setattr(scheduler, "STOP_TIMEOUT", 0.05)

    async def works(turn: Turn) -> None:
        if len(turn.history) == 0:
            turn.ask("and?")
        here.at("working").set()
        await asyncio.Event().wait()

    store: Any = UnavailableStore(tmp_path / "tasks.db")
    async with open_harness(tmp_path, works, store=store) as here:
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
async def test_tasks_that_wait_are_taken_when_the_store_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.setattr(scheduler, "BACKLOG_POLL_INTERVAL", 0.001)

    async def works(turn: Turn) -> str:
        if turn.text == "first":
            await here.at("go").wait()
        return turn.text

    store: Any = UnavailableStore(tmp_path / "tasks.db")
    async with open_harness(tmp_path, works, store=store, slots=1) as here:
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


class Parents:
    """Notes under which trace each span begins. Implements `dragoman.ports.tracing.Tracer`."""

    def __init__(self) -> None:
        self.begun: list[str] = []

    def start_span(self, parent: str) -> str:
        self.begun.append(parent)
        return ""

    def activate(self, context: str) -> None:
        pass

    def record_span(self, *_: Any) -> None:
        pass


@pytest.mark.parametrize("error", [Unavailable("the store does not answer"), RuntimeError("no such column")])
async def test_a_turn_does_not_wait_for_the_store_to_tell_its_trace(tmp_path: Path, error: Exception) -> None:
    store: Any = UnavailableStore(tmp_path / "tasks.db")
    store.error = lambda: error
    tracer = Parents()
    async with open_harness(tmp_path, asks, store=store, tracer=tracer) as here:
        task = await here.send()
        store.unavailable.add("envelope")
        await here.start("more", task_id=task.id)
        assert texts(await here.ended(task.id)) == ["more of 0 after 2"]
    assert store.refused["envelope"] > 0
    assert len(tracer.begun) == 2


# What is said of a send that is done, when it cannot be read --------------------------------------------------------


@pytest.mark.parametrize("history", [None, 0, 1])
async def test_a_send_that_created_a_task_is_answered_though_the_task_cannot_be_read(
    tmp_path: Path, history: int | None
) -> None:
    """At once, at the limit of a wait that is over, while others run, and as the first of a stream."""

    async def works(turn: Turn) -> str:
        await here.at("go").wait()
        return turn.text

    def send_request(text: str) -> pb.SendMessageRequest:
        created = request(text)
        if history is not None:
            created.configuration.history_length = history
        return created

    store: Any = UnavailableStore(tmp_path / "tasks.db")
    async with open_harness(tmp_path, works, store=store, slots=1) as here:
        service, call = here.runtime.service, here.call
        store.unavailable.add("read")
        at_once = send_request("at once")
        at_once.configuration.return_immediately = True
        answers = [
            pb.SendMessageResponse.FromString(await service.send_message(call, at_once)),
            pb.SendMessageResponse.FromString(await service.send_message(Call(call.caller, 0), send_request("waits"))),
        ]
        stream = service.send_streaming_message(call, send_request("streams"))
        answers.append(pb.SendMessageResponse.FromString((await anext(stream)).data))
        rest = asyncio.create_task(collect(stream))
        for answer in answers:
            assert state(answer.task) == "SUBMITTED"
            assert len(answer.task.history) == (history != 0)
        here.at("go").set()
        assert kinds(await rest)[-1] == "COMPLETED"
        store.unavailable.clear()
        ended = [await here.ended(answer.task.id) for answer in answers]
        assert [texts(task) for task in ended] == [["at once"], ["waits"], ["streams"]]


async def test_a_stored_message_is_reported_when_its_task_cannot_be_read(tmp_path: Path) -> None:
    store: Any = UnavailableStore(tmp_path / "tasks.db")
    async with open_harness(tmp_path, asks, store=store) as here:
        first, second = await here.send(), await here.send()
        store.unavailable.add("read")
        with pytest.raises(Unavailable) as sent:
            await here.start("more", task_id=first.id)
        with pytest.raises(Unavailable) as streamed:
            await collect(here.stream("more", task_id=second.id))
        store.unavailable.clear()
        for task, caught in ((first, sent), (second, streamed)):
            assert str(caught.value).startswith(
                f"the message was stored for task {task.id}, but the store is unavailable now"
            )
            assert caught.value.metadata == {"task": task.id}
            assert texts(await here.ended(task.id)) == ["more of 0 after 2"]


# Sessions that expire because nobody could renew them ---------------------------------------------------------------


class Times:
    """The store's clock and a process's own, which may be moved together or alone."""

    def __init__(self) -> None:
        self.store = Clock()
        self.own = 0.0

    def pass_(self, seconds: float) -> None:
        self.store.now += round(seconds * 1000)
        self.own += seconds


def keeps(here: Any, times: Times) -> sessions.Heartbeat:
    """The heartbeat of a runtime, by hand."""
    return sessions.Heartbeat(here.store, here.runtime.scheduler.session, clock=lambda: times.own)


async def goes_on(times: Times, *beats: sessions.Heartbeat, seconds: int) -> list[bool]:
    """Lets time pass, in which these renew in time. Gives what they are sure of at the end."""
    sure = []
    for _ in range(0, seconds, 2):
        times.pass_(2)
        sure = [await asyncio.to_thread(beat.renew) for beat in beats]
    return sure


async def holds(turn: Turn) -> None:
    await asyncio.Event().wait()


@asynccontextmanager
async def two(tmp_path: Path, times: Times) -> AsyncIterator[tuple[Any, Any, sessions.Heartbeat, sessions.Heartbeat]]:
    """Two runtimes on one file, that have renewed in time for a while, and their heartbeats."""
    first, second = (cast(Any, UnavailableStore(tmp_path / "tasks.db", clock=times.store)) for _ in range(2))
    async with (
        open_harness(tmp_path, holds, store=first, exclusive=False) as one,
        open_harness(tmp_path, holds, store=second, exclusive=False) as other,
    ):
        beats = keeps(one, times), keeps(other, times)
        assert await goes_on(times, *beats, seconds=8) == [False, False], "who has just come does not know who lives"
        assert await goes_on(times, *beats, seconds=2) == [True, True]
        yield one, other, *beats


async def test_after_an_outage_sessions_renewed_in_time_are_not_reaped(tmp_path: Path) -> None:
    times = Times()
    async with two(tmp_path, times) as (one, other, beats, others):
        task = await one.start()
        reaping = reaper(other, trusts_expiry=others.renew)
        for store in (one.store, other.store):
            store.unavailable.add("renew_session")
        await goes_on(times, beats, others, seconds=30)
        assert await reaping.reap() == 0, "while it is away for those who write, and not for those who read"
        for store in (one.store, other.store):
            store.unavailable.clear()
        assert await reaping.reap() == 0, "before the other one has renewed"
        assert await goes_on(times, beats, others, seconds=8) == [False, False]
        assert await reaping.reap() == 0
        assert state(await other.get(task.id)) in ("SUBMITTED", "WORKING")
        # Who does not come back is dead when a lease is over, as ever.
        assert await goes_on(times, others, seconds=10) == [True]
        assert await reaping.reap() == 1
        assert status_text(await other.get(task.id)).startswith("INTERRUPTED: ")


async def test_a_process_paused_for_longer_than_its_lease_is_reaped_and_reaps_none(tmp_path: Path) -> None:
    times = Times()
    async with two(tmp_path, times) as (one, other, beats, others):
        task, there = await one.start(), await other.start()
        assert await goes_on(times, others, seconds=12) == [True]
        assert await reaper(other, trusts_expiry=others.renew).reap() == 1
        assert status_text(await other.get(task.id)).startswith("INTERRUPTED: ")
        # Had it been both of them, the one that wakes first would find the session of the other expired.
        times.pass_(12)
        assert await reaper(one, trusts_expiry=beats.renew).reap() == 0
        assert state(await one.get(there.id)) in ("SUBMITTED", "WORKING")


@pytest.mark.parametrize("whose", ["store", "own"])
async def test_a_clock_that_jumps_or_stops_makes_no_session_dead(tmp_path: Path, whose: str) -> None:
    """A machine that is held still has a clock of its own that stood still with it; the store's went on, or jumped."""
    times = Times()
    async with two(tmp_path, times) as (one, other, beats, others):
        task = await one.start()
        if whose == "store":
            times.store.now += 3_600_000
        else:
            times.own += 3_600
        assert await reaper(other, trusts_expiry=others.renew).reap() == 0
        assert await goes_on(times, beats, others, seconds=8) == [False, False]
        assert await goes_on(times, beats, others, seconds=4) == [True, True]
        assert await reaper(other, trusts_expiry=others.renew).reap() == 0
        assert state(await other.get(task.id)) in ("SUBMITTED", "WORKING")


async def test_a_process_started_after_an_outage_reaps_no_session_that_may_still_renew(tmp_path: Path) -> None:
    times = Times()
    async with two(tmp_path, times) as (one, _, beats, others):
        task = await one.start()
        times.pass_(30)
        async with open_harness(
            tmp_path, holds, store=open_store(tmp_path / "tasks.db", clock=times.store), exclusive=False
        ) as new:
            assert state(await new.get(task.id)) in ("SUBMITTED", "WORKING"), "its first round was at its start"
            news = keeps(new, times)
            assert await goes_on(times, beats, others, news, seconds=10) == [False, False, True]
            assert await reaper(new, trusts_expiry=news.renew).reap() == 0
            assert await goes_on(times, news, seconds=12) == [True]
            assert await reaper(new, trusts_expiry=news.renew).reap() == 1
