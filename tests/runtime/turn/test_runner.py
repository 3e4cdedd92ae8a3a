"""Turn runner: start, drain, limits of uncommitted events, and failing stores."""

from __future__ import annotations

import asyncio
import logging
import re
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.hostile import kinds as hostile
from tests.runtime.harness import Harness, collect, kinds, open_harness, state, status_text, texts
from tests.runtime.remote_agent import Far
from tests.runtime.unavailable_store import UnavailableStore

from dragoman import Retry, Turn
from dragoman.bus.local import LocalBus
from dragoman.core.errors import Unavailable
from dragoman.core.exceptions import is_a
from dragoman.core.task import states
from dragoman.core.task.log import Append, Appended, ClaimHeld, StatusChange, TaskRecord
from dragoman.runtime import Ports, RuntimeConfig, open_runtime
from dragoman.runtime.turn.events import MAX_PENDING_EVENTS, OVERFLOW_FACTOR, Change
from dragoman.runtime.turn.finish import TransitionChecker
from dragoman.runtime.turn.runner import TurnRunner, turn_line
from dragoman.stores.shared.errors import StoreFault
from dragoman.stores.sqlite import SqliteStore, open_store
from dragoman.testing.fixtures import AGENT, created, new_ref
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


async def echo(turn: Turn) -> str:
    return turn.text


async def square() -> int:
    return 4


def unknown_outcome() -> Unavailable:
    """An error after which nothing may be repeated."""
    error = Unavailable("it is not known")
    error.outcome_unknown = True
    return error


async def test_working_is_not_shown_by_a_turn_that_could_not_store_a_step(tmp_path: Path) -> None:
    store, raised = UnavailableStore(tmp_path / "tasks.db"), list[str]()
    store.error = unknown_outcome

    async def steps(turn: Turn) -> str:
        store.unavailable.add("append")
        with suppress(Unavailable):
            await turn.step("square", square)
        store.unavailable.clear()
        (runner,) = here.runtime.scheduler.runs
        try:
            runner.show_working()  # as its timer does
        except Unavailable:
            raised.append(turn.text)
        return turn.text

    async with open_harness(tmp_path, steps, store=store) as here:
        assert status_text(await here.send()).startswith("NOT_WRITTEN")
    assert raised == []


# Slots and start-up ------------------------------------------------------------------------------------------------


async def test_more_tasks_than_slots_all_complete(tmp_path: Path) -> None:
    running = most = 0

    async def counts(turn: Turn) -> str:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return turn.text

    async with open_harness(tmp_path, counts, slots=3) as here:
        tasks = await asyncio.gather(*(here.send(str(number)) for number in range(40)))
        assert sorted(int(texts(task)[0]) for task in tasks) == list(range(40))
        assert most <= 3


async def test_a_follow_up_waits_for_a_slot_too(tmp_path: Path) -> None:
    async def asks(turn: Turn) -> str:
        if turn.text == "hold":
            await here.at("go").wait()
        elif turn.question is None:
            turn.ask("which?")
        return turn.text

    async with open_harness(tmp_path, asks, slots=1) as here:
        waiting_task = await here.send()
        holding = await here.start("hold")
        await here.start("blue", task_id=waiting_task.id)
        assert state(await here.get(waiting_task.id)) == "WORKING"
        here.at("go").set()
        assert texts(await here.ended(waiting_task.id)) == ["blue"]
        assert texts(await here.ended(holding.id)) == ["hold"]


async def test_running_tasks_of_an_earlier_session_end_as_interrupted(tmp_path: Path) -> None:
    store = open_store(tmp_path / "tasks.db")
    dead = await store.open_session(10)
    seen = await store.append(created(new_ref(), claim=dead))
    unseen = await store.append(created(new_ref(), claim=dead, visible=False))
    async with open_harness(tmp_path, echo, store=store) as here:
        task = await here.get(seen.record.id)
        assert state(task) == "FAILED"
        assert status_text(task).startswith("INTERRUPTED: ")
        assert task.status.message.metadata["reason"] == "INTERRUPTED"
        assert await store.read(unseen.record.ref) is None


async def test_tasks_that_waited_run_at_start(tmp_path: Path) -> None:
    store = open_store(tmp_path / "tasks.db")
    waiting = await store.append(created(new_ref(), text="still here", agent=AGENT))
    async with open_harness(tmp_path, echo, store=store) as here:
        assert texts(await here.ended(waiting.record.id)) == ["still here"]


async def test_a_run_that_lost_its_claim_cannot_write(tmp_path: Path) -> None:
    async def slow(turn: Turn) -> str:
        await here.at("go").wait()
        return "late"

    async with open_harness(tmp_path, slow) as here:
        task = await here.start()
        head = await here.store.find(here.call.caller.owner, "slow", task.id)
        assert head is not None
        end = Append(
            task=head.ref,
            guard=ClaimHeld(head.session, head.token),
            events=[StatusChange(states.FAILED)],
            release=True,
        )
        await here.store.append(end)
        here.at("go").set()
        await here.idle()
        assert (state(await here.get(task.id)), texts(await here.get(task.id))) == ("FAILED", [])


# Working -----------------------------------------------------------------------------------------------------------


async def test_a_silent_run_is_shown_as_working(tmp_path: Path) -> None:
    async def silent(turn: Turn) -> str:
        await here.at("go").wait()
        return "done"

    async with open_harness(tmp_path, silent) as here:
        task = await here.start()
        following = here.follow(task.id)
        kind = kinds([await anext(following)])
        if kind == ["task SUBMITTED"]:
            assert kinds([await anext(following)]) == ["WORKING"]
        else:
            assert kind == ["task WORKING"]
        here.at("go").set()
        assert kinds(await collect(following)) == ["done", "COMPLETED"]


async def test_a_quick_turn_goes_straight_to_its_final_state(tmp_path: Path) -> None:
    async with open_harness(tmp_path, echo) as here:
        assert kinds(await collect(here.stream())) == ["task SUBMITTED", "hello", "COMPLETED"]


def test_a_turn_that_ends_before_working_is_written_goes_straight_to_its_final_state() -> None:
    changes: list[Change] = [StatusChange(states.WORKING), StatusChange(states.COMPLETED)]
    record = TaskRecord(new_ref(), AGENT, "task", "context", states.SUBMITTED, updated=0, last_sequence=1)
    assert TransitionChecker(states.SUBMITTED).check_end(changes, record) == changes


# Drain -------------------------------------------------------------------------------------------------------------


async def test_each_turn_is_one_log_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def answer(turn: Turn) -> str:
        match turn.text:
            case "ask":
                turn.ask("which?")
            case "fail":
                raise ValueError("no\nand more")
            case "retry" if turn.attempt == 1:
                raise OSError("busy")
        return "done"

    caplog.set_level(logging.INFO, "dragoman.turns")
    async with open_harness(tmp_path, answer, retry=Retry(attempts=2, backoff=0.001, on=OSError)) as here:
        tasks = [await here.send(text) for text in ("ask", "fail", "go", "retry")]
    lines = [one for one in caplog.records if one.name == "dragoman.turns"]
    agent = lines[0].__dict__["agent"]
    shown = [f"{agent} {task.id[:13]}… {{}} N ms{{}}" for task in (*tasks, tasks[-1])]
    assert [re.sub(r"\d+ ms", "N ms", one.getMessage()) for one in lines] == [
        shown[0].format("INPUT_REQUIRED", ": which?"),
        shown[1].format("FAILED", ": ValueError: no and more"),
        shown[2].format("COMPLETED", ""),
        shown[3].format("RETRYING", ""),
        shown[4].format("COMPLETED", ""),
    ]
    fields = lines[2].__dict__
    assert (fields["task"], fields["state"], fields["ms"] >= 0) == (tasks[2].id, "COMPLETED", True)


async def test_turns_write_no_lines_where_these_are_off(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def answer(turn: Turn) -> str:
        return "done"

    caplog.set_level(logging.WARNING, "dragoman.turns")
    async with open_harness(tmp_path, answer) as here:
        await here.send("go")
    assert not [one for one in caplog.records if one.name == "dragoman.turns"]


def test_a_long_turn_is_shown_in_seconds() -> None:
    task = {"agent": "echo", "task": "01a2fb2a-91a1-7000"}
    fields: dict[str, str | float] = {**task, "state": "FAILED", "ms": 61_234.5, "text": "no"}
    assert turn_line(fields) == "echo 01a2fb2a-91a1… FAILED 61.2 s: no"


async def test_a_drain_waits_for_running_turns(tmp_path: Path) -> None:
    async def waits(turn: Turn) -> str:
        await here.at("go").wait()
        return "done"

    async with open_harness(tmp_path, waits) as here:
        task = await here.start()
        reports: list[int] = []

        def tell(left: int) -> None:
            reports.append(left)
            here.at("go").set()

        await here.runtime.scheduler.drain(30, tell)
        assert reports == [1]
        assert state(await here.get(task.id)) == "COMPLETED"


@pytest.mark.parametrize(("limit", "end"), [(30.0, "COMPLETED"), (0.0, "FAILED")])
async def test_a_drain_waits_for_a_task_that_is_being_claimed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: float, end: str
) -> None:
    """The claim of its message is being written, and will be acknowledged."""

    async def answers(turn: Turn) -> str:
        if not limit:
            await here.at("never").wait()
        return turn.text

    async with open_harness(tmp_path, answers) as here:
        append, dispatch = here.store.append, here.runtime.scheduler

        async def slow(change: Append) -> Appended:
            here.at("asked").set()
            await here.at("go").wait()
            return await append(change)

        with monkeypatch.context() as patched:
            patched.setattr(here.store, "append", lambda change: asyncio.ensure_future(slow(change)))
            sending = asyncio.create_task(here.send("hello"))
            await here.at("asked").wait()
        draining = asyncio.create_task(dispatch.drain(limit))
        if limit:
            assert not (await asyncio.wait((draining,), timeout=0.05))[0]
        else:
            await draining
        stopping = draining if limit else asyncio.create_task(dispatch.stop())
        here.at("go").set()
        task = await sending
        await stopping
        assert state(task) == end


async def test_at_the_limit_of_a_drain_tasks_end_as_failed(tmp_path: Path) -> None:
    async def sleeps(turn: Turn) -> None:
        await here.at("never").wait()

    async with open_harness(tmp_path, sleeps) as here:
        task = await here.start()
        await here.runtime.scheduler.drain(0)
        await here.runtime.scheduler.stop()
        ended = await here.get(task.id)
        assert state(ended) == "FAILED"
        assert status_text(ended) == "DRAINED: The server shut down before this task was finished."
        assert ended.status.message.metadata["reason"] == "DRAINED"


@pytest.mark.parametrize(("how", "end"), [("cancel", "CANCELED"), ("drain", "COMPLETED")])
async def test_a_run_stopped_before_its_first_step_ends_or_waits_again(tmp_path: Path, how: str, end: str) -> None:
    """An asyncio task canceled before its first step does nothing, and would keep its claim for ever."""
    runners: list[TurnRunner] = []

    def stop_first(runner: TurnRunner) -> Coroutine[Any, Any, None]:
        runners.append(runner)
        if len(runners) == 1:
            asyncio.get_running_loop().call_soon(getattr(runner, how))  # before the asyncio task is created
        return runner.run()

    async with open_harness(tmp_path, echo, run_turns=stop_first) as here:
        task = await here.ended((await here.start()).id)
        assert state(task) == end
        assert [runner.context.record.attempt for runner in runners] == [1] * len(runners)
        await here.idle()


# Backpressure ------------------------------------------------------------------------------------------------------


async def test_a_flood_of_verbs_is_stopped_with_a_clear_text(tmp_path: Path) -> None:
    async def floods(turn: Turn) -> None:
        for _ in range(MAX_PENDING_EVENTS * OVERFLOW_FACTOR + 1):
            turn.chunk("x")

    async with open_harness(tmp_path, floods) as here:
        task = await here.send()
        assert state(task) == "FAILED"
        assert "BufferFull" in status_text(task)


async def test_awaiting_verbs_waits_for_room(tmp_path: Path) -> None:
    async def waits(turn: Turn) -> None:
        for number in range(2 * MAX_PENDING_EVENTS):
            await turn.chunk(f"{number} ")

    async with open_harness(tmp_path, waits) as here:
        assert texts(await here.send()) == ["".join(f"{number} " for number in range(2 * MAX_PENDING_EVENTS))]


async def test_a_thread_waits_for_room_in_the_call(tmp_path: Path) -> None:
    def threaded(turn: Turn) -> None:
        assert threading.current_thread() is not threading.main_thread()
        for number in range(2 * MAX_PENDING_EVENTS):
            turn.chunk(f"{number} ")

    async with open_harness(tmp_path, threaded) as here:
        assert texts(await here.send()) == ["".join(f"{number} " for number in range(2 * MAX_PENDING_EVENTS))]


class Failing:
    """A store whose appends fail for a certain text."""

    def __init__(self, store: SqliteStore) -> None:
        self._store = store
        self.failed = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def append(self, change: Append) -> asyncio.Future[Appended]:
        if any(b"disk" in getattr(event, "message", b"") for event in change.events) and not self.failed:
            self.failed += 1
            future: asyncio.Future[Appended] = asyncio.get_running_loop().create_future()
            future.set_exception(StoreFault("the store rejected a statement"))
            return future
        return self._store.append(change)


async def test_a_failed_commit_is_raised_at_the_next_verb_and_fails_the_task(tmp_path: Path) -> None:
    raised: list[BaseException] = []

    async def writes(turn: Turn) -> None:
        turn.status("this breaks the disk")
        try:
            await turn.flush()
        except StoreFault as error:
            raised.append(error)
            raise

    store = Failing(open_store(tmp_path / "tasks.db"))
    async with open_harness(tmp_path, writes, store=store) as here:
        task = await here.send()
        assert raised
        assert state(task) == "FAILED"
        assert status_text(task).startswith("NOT_WRITTEN: ")
        assert "rejected a statement" in status_text(task)


async def test_a_failed_commit_that_a_remote_agent_reports_fails_the_task_as_not_written(tmp_path: Path) -> None:
    """A worker writes without waiting, and the turn then ends with the error of the commit."""
    store: Any = Failing(open_store(tmp_path / "tasks.db"))
    async with open_runtime(Ports(store, LocalBus(), [far := Far()]), RuntimeConfig()) as runtime:
        here = Harness(runtime, store)
        task = await here.start()
        context, end = await far.turns.get()
        context.put(StatusChange(states.WORKING, pb.Message(message_id="disk").SerializeToString()))
        with pytest.raises(StoreFault) as raised:
            await context.flush()
        end.set_exception(raised.value)
        assert status_text(await here.ended(task.id)).startswith("NOT_WRITTEN: ")
    await store.close()


async def test_a_finished_task_is_removed_from_memory(tmp_path: Path) -> None:
    async def streams(turn: Turn) -> AsyncIterator[str]:
        yield "one"

    async with open_harness(tmp_path, streams) as here:
        for _ in range(20):
            await here.send()
            await collect(here.stream())
        dispatch, feeds = here.runtime.scheduler, here.runtime.feeds
        await here.idle()
        assert not dispatch.runs
        assert not feeds.by_task


# Whatever an agent raises -----------------------------------------------------------------------------------------

HOSTILE = pytest.mark.parametrize("make", hostile.EXCEPTIONS.values(), ids=hostile.EXCEPTIONS)


@HOSTILE
async def test_an_agent_that_raises_anything_at_all_loses_its_turn(
    tmp_path: Path, make: Callable[[], BaseException]
) -> None:
    """Agents of other kinds than functions: a fault in our own code passes what they raise on."""

    async def take_turn(_: object) -> object:
        raise make()

    async def run(runner: TurnRunner) -> None:
        runner._agent.take_turn = take_turn  # type: ignore[method-assign, assignment]
        await runner.run()

    async with asyncio.timeout(60), open_harness(tmp_path, echo, run_turns=run) as here:
        ended = await here.ended((await here.start()).id)
        await here.idle()
    assert state(ended) == "FAILED"


@HOSTILE
async def test_a_run_that_fails_before_its_end_is_written_ends_its_task(
    tmp_path: Path, make: Callable[[], BaseException]
) -> None:
    async def run(_: TurnRunner) -> None:
        error = make()
        if not is_a(error, (KeyboardInterrupt, SystemExit)):  # which asyncio raises from the loop, too
            raise error
        raise asyncio.CancelledError

    async with asyncio.timeout(60), open_harness(tmp_path, echo, run_turns=run) as here:
        ended = await here.ended((await here.start()).id)
        await here.idle()
    assert status_text(ended) == "INTERRUPTED: The server could not continue this task."


class BrokenHandler(logging.Handler):
    """A handler of a program that embeds the server: it fails itself."""

    def handle(self, record: logging.LogRecord) -> bool:
        raise RuntimeError("the disk of the log is full")


async def test_a_log_that_fails_does_not_keep_a_task_from_ending(tmp_path: Path) -> None:
    async def run(_: TurnRunner) -> None:
        raise ValueError("x")

    async def fails(turn: Turn) -> None:
        raise ValueError("y")

    handler = BrokenHandler()
    logging.getLogger("dragoman").addHandler(handler)
    try:
        async with asyncio.timeout(60), open_harness(tmp_path, echo, run_turns=run) as here:
            assert state(await here.ended((await here.start()).id)) == "FAILED"
        async with asyncio.timeout(60), open_harness(tmp_path, fails) as here:
            assert status_text(await here.ended((await here.start()).id)) == "ValueError: y"
    finally:
        logging.getLogger("dragoman").removeHandler(handler)
