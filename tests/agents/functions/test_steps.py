"""Durable steps of agent functions, in a runtime."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.eventually import eventually
from tests.runtime.harness import Harness, open_harness, state, status_text, texts

from dragoman import Retry, Turn, retry
from dragoman.core.task import states
from dragoman.core.task.log import TaskRecord
from dragoman.core.task.steps import MAX_RESULT_BYTES, NO_POSITION, StepRecord, StepState
from dragoman.runtime.timings import Timings
from dragoman_pb.dragoman.worker.v1 import worker_pb2 as wk
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

SOON = Retry(attempts=3, backoff=0.001)
"""Retries at once."""


class Calls(Counter[str]):
    """Counts how often each function really ran."""

    async def make(self, name: str, result: Any = None) -> Any:
        await asyncio.sleep(0)
        self[name] += 1
        return result


async def steps_of(here: Harness, task: pb.Task) -> list[StepRecord]:
    (record,) = await here.store.locate(task.id)
    return await here.store.steps(record.ref)


async def record_of(here: Harness, task: pb.Task) -> TaskRecord:
    (record,) = await here.store.locate(task.id)
    return record


# Running once -------------------------------------------------------------------------------------------------------


async def test_a_finished_step_does_not_run_again_when_the_turn_is_tried_again(tmp_path: Path) -> None:
    calls = Calls()

    async def researcher(turn: Turn) -> str:
        found = await turn.step("search", calls.make, "search", ["a", "b"])
        calls["turn"] += 1
        if turn.attempt < 3:
            raise ConnectionError("the model is away")
        return f"{found} in attempt {turn.attempt}"

    async with open_harness(tmp_path, researcher, retry=SOON) as here:
        task = await here.send()
        assert texts(task) == ["['a', 'b'] in attempt 3"]
        assert calls == {"search": 1, "turn": 3}
        (step,) = await steps_of(here, task)
        assert (step.label, step.state, step.attempt, step.size) == ("search", StepState.DONE, 1, len('["a","b"]'))


async def test_a_turn_that_keeps_failing_ends_after_its_attempts(tmp_path: Path) -> None:
    async def researcher(turn: Turn) -> str:
        await turn.step("search", lambda: 1)
        raise ConnectionError("the model is away")

    async with open_harness(tmp_path, researcher, retry=SOON) as here:
        task = await here.send()
        assert (state(task), status_text(task)) == ("FAILED", "ConnectionError: the model is away")
        assert (await record_of(here, task)).attempt == 1  # the turn has ended


async def test_other_errors_than_those_of_the_retry_end_the_turn(tmp_path: Path) -> None:
    calls = Calls()

    async def researcher(turn: Turn) -> None:
        calls["turn"] += 1
        raise ValueError("no retry helps")

    async with open_harness(tmp_path, researcher, retry=Retry(attempts=5, on=OSError)) as here:
        assert state(await here.send()) == "FAILED"
        assert calls["turn"] == 1


async def test_a_new_attempt_shows_why_the_last_one_failed(tmp_path: Path) -> None:
    async def researcher(turn: Turn) -> str:
        if turn.attempt == 1:
            raise ConnectionError("the model is away")
        return "done"

    async with open_harness(tmp_path, researcher, retry=SOON) as here:
        updates = [pb.StreamResponse.FromString(event.data) async for event in here.stream()]
        (retried,) = [one.status_update for one in updates if "error" in one.status_update.metadata]
        assert dict(retried.metadata) == {"attempt": 2, "error": "ConnectionError: the model is away"}


async def test_an_answered_question_finds_the_steps_before_it(tmp_path: Path) -> None:
    calls = Calls()

    async def planner(turn: Turn) -> str:
        plan = await turn.step("plan", calls.make, "plan", "three chapters")
        if turn.question is None:
            turn.ask(f"{plan}: all right?")
        return f"{plan}, {turn.text}"

    async with open_harness(tmp_path, planner) as here:
        question = await here.send("a book")
        assert (state(question), status_text(question)) == ("INPUT_REQUIRED", "three chapters: all right?")
        task = await here.send("yes", task_id=question.id)
        assert texts(task) == ["three chapters, yes"]
        assert calls == {"plan": 1}


async def test_the_next_message_of_a_task_begins_with_new_steps(tmp_path: Path) -> None:
    calls, may_end = Calls(), asyncio.Event()

    async def worker(turn: Turn) -> str:
        await turn.step("work", calls.make, "work")
        await may_end.wait()
        return turn.text

    async with open_harness(tmp_path, worker) as here:
        task = await here.start("one")
        await eventually(lambda: calls["work"] == 1)
        await here.start("two", task_id=task.id)
        may_end.set()
        assert texts(await here.ended(task.id)) == ["one", "two"]
        assert calls == {"work": 2}
        assert [step.turn for step in await steps_of(here, task)] == [1, 0]


async def test_two_steps_of_one_name_have_results_of_their_own(tmp_path: Path) -> None:
    calls = Calls()

    async def pages(turn: Turn) -> str:
        found = [await turn.step("page", calls.make, f"page {number}", number) for number in range(3)]
        if turn.attempt == 1:
            raise OSError
        return str(found)

    async with open_harness(tmp_path, pages, retry=SOON) as here:
        assert texts(await here.send()) == ["[0, 1, 2]"]
        assert calls == {"page 0": 1, "page 1": 1, "page 2": 1}


async def test_another_step_than_before_fails_the_task(tmp_path: Path) -> None:
    async def changed(turn: Turn) -> None:
        await turn.step("search" if turn.attempt == 1 else "fetch", lambda: 1)
        raise OSError

    async with open_harness(tmp_path, changed, retry=SOON) as here:
        task = await here.send()
        assert state(task) == "FAILED"
        assert status_text(task).startswith('StepMismatch: step 1 of this turn is "fetch", and was "search"')


# Forms --------------------------------------------------------------------------------------------------------------


@dataclass
class Paper:
    title: str
    published: datetime


async def test_results_keep_their_types(tmp_path: Path) -> None:
    paper = Paper("Logs", datetime(2026, 1, 2, tzinfo=UTC))
    found: list[Any] = []

    async def reader(turn: Turn) -> str:
        found.append(await turn.step("read", lambda: [paper, (1, b"2"), pb.Part(text="three")]))
        if turn.attempt == 1:
            raise OSError
        return "done"

    async with open_harness(tmp_path, reader, retry=SOON) as here:
        await here.send()
        assert found[1] == found[0] == [paper, (1, b"2"), pb.Part(text="three")]


async def test_a_decorated_function_is_a_step(tmp_path: Path) -> None:
    calls = Calls()

    async def agent(turn: Turn) -> str:
        @turn.step
        async def add(a: int, *, b: int) -> int:
            calls["add"] += 1
            return a + b

        @turn.step(retry=SOON, timeout=5)
        async def flaky() -> str:
            calls["flaky"] += 1
            if calls["flaky"] < 3:
                raise ConnectionError
            return "flaky"

        total = await add(1, b=2) + await add(3, b=4)
        text = await flaky()
        if turn.attempt == 1:
            raise OSError
        return f"{total} {text}"

    async with open_harness(tmp_path, agent, retry=SOON) as here:
        task = await here.send()
        assert texts(task) == ["10 flaky"]
        assert calls == {"add": 2, "flaky": 3}
        assert [(step.label, step.attempt) for step in await steps_of(here, task)] == [
            ("add", 1), ("add#2", 1), ("flaky", 3),
        ]  # fmt: skip


async def test_a_block_is_a_step(tmp_path: Path) -> None:
    calls, keys = Calls(), set()

    async def buyer(turn: Turn) -> str:
        async with turn.step("pay") as step:
            keys.add(step.key)
            if not step.done:
                step.result = await calls.make("pay", "receipt 1")
        if turn.attempt == 1:
            raise OSError
        return str(step.result)

    async with open_harness(tmp_path, buyer, retry=SOON) as here:
        assert texts(await here.send()) == ["receipt 1"]
        assert calls == {"pay": 1}
        assert len(keys) == 1


async def test_a_block_that_fails_runs_again(tmp_path: Path) -> None:
    calls = Calls()

    async def buyer(turn: Turn) -> str:
        async with turn.step("pay") as step:
            calls["pay"] += 1
            if turn.attempt == 1:
                raise ConnectionError("no bank")
            step.result = turn.attempt
        return str(step.result)

    async with open_harness(tmp_path, buyer, retry=SOON) as here:
        assert texts(await here.send()) == ["2"]
        assert calls == {"pay": 2}


@pytest.mark.parametrize("yields", [False, True])
async def test_a_sync_agent_has_steps(tmp_path: Path, yields: bool) -> None:
    calls, threads = Calls(), set()

    def add(a: int, b: int) -> int:
        calls["add"] += 1
        threads.add(threading.current_thread().name.rpartition("-")[0])
        return a + b

    def body(turn: Turn) -> str:
        total = turn.step("add", add, 1, 2).wait()
        with turn.step("double") as step:
            if not step.done:
                calls["double"] += 1
                step.result = total * 2
        if turn.attempt == 1:
            raise OSError
        return f"{total} {step.result}"

    def plain(turn: Turn) -> str:
        return body(turn)

    def generator(turn: Turn) -> Any:
        yield body(turn)

    async with open_harness(tmp_path, generator if yields else plain, retry=SOON) as here:
        task = await here.send()
        assert texts(task) == ["3 6"]
        assert calls == {"add": 1, "double": 1}
        assert threads == {"dragoman-step"}
        assert [step.position for step in await steps_of(here, task)] == [0, 1]


async def test_steps_of_a_generator_are_stored(tmp_path: Path) -> None:
    calls = Calls()

    async def writer(turn: Turn) -> AsyncIterator[str]:
        yield "one "
        yield await turn.step("two", calls.make, "two", "two ")
        if turn.attempt == 1:
            raise OSError
        yield "three"

    async with open_harness(tmp_path, writer, retry=SOON) as here:
        assert texts(await here.send()) == ["one two three"]
        assert calls == {"two": 1}


async def test_concurrent_steps_are_stored_as_they_end(tmp_path: Path) -> None:
    calls, late = Calls(), asyncio.Event()

    async def slow() -> str:
        calls["slow"] += 1
        await late.wait()
        return "slow"

    async def agent(turn: Turn) -> str:
        async def fail() -> None:
            await turn.step("fast", calls.make, "fast", "fast")
            late.set()
            raise OSError

        if turn.attempt == 1:
            await asyncio.gather(fail(), turn.step("slow", slow))
        both = await asyncio.gather(
            asyncio.create_task(turn_step(turn, "fast")), turn.step("slow", slow), return_exceptions=True
        )
        return str(both)

    async def turn_step(turn: Turn, name: str) -> Any:
        return await turn.step(name, calls.make, name, name)

    async with open_harness(tmp_path, agent, retry=SOON) as here:
        task = await here.send()
        assert texts(task) == ["['fast', 'slow']"]
        assert calls["fast"] == 1
        positions = {step.name: step.position for step in await steps_of(here, task)}
        assert positions == {"fast": NO_POSITION, "slow": 0}


async def test_steps_and_pauses_are_coroutines(tmp_path: Path) -> None:
    calls = Calls()

    async def agent(turn: Turn) -> str:
        async with asyncio.TaskGroup() as group:
            found = [group.create_task(turn.step("read", calls.make, "read", page)) for page in range(3)]
            group.create_task(turn.sleep(seconds=0.01))
        if turn.attempt == 1:
            raise OSError
        return str([task.result() for task in found])

    async with open_harness(tmp_path, agent, retry=SOON) as here:
        assert texts(await here.send()) == ["[0, 1, 2]"]
        assert calls == {"read": 3}


async def test_a_canceled_step_ends_with_its_function(tmp_path: Path) -> None:
    async def agent(turn: Turn) -> str:
        waiting = asyncio.create_task(turn.step("wait", asyncio.Event().wait))
        unstarted = asyncio.create_task(turn.step("never begun", asyncio.Event().wait))
        unstarted.cancel()
        await asyncio.sleep(0)
        waiting.cancel()
        ended = await asyncio.gather(waiting, unstarted, return_exceptions=True)
        return str([type(error).__name__ for error in ended])

    async with open_harness(tmp_path, agent) as here:
        assert texts(await here.send()) == ["['CancelledError', 'CancelledError']"]


def line_of(mark: str) -> int:
    """The line of this file that ends with a mark."""
    lines = Path(__file__).read_text().splitlines()
    return next(number for number, text in enumerate(lines, 1) if text.endswith(f"# {mark}"))


async def test_a_step_that_is_never_awaited_is_logged_with_its_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def agent(turn: Turn) -> str:
        turn.step("charge", lambda: 1)  # charge
        turn.sleep(seconds=2)  # sleep
        turn.sleep_until(datetime(2026, 1, 1, tzinfo=UTC))  # sleep until
        kept = turn.step("kept", lambda: 1)  # kept

        @turn.step
        async def decorated() -> None: ...

        decorated()  # decorated
        return f"{kept.name} until the end"

    async with open_harness(tmp_path, agent) as here:
        task = await here.send()
        assert texts(task) == ["kept until the end"]
    records = [one for one in caplog.records if one.name == "dragoman.agents"]
    assert {(one.levelname, one.__dict__["task"], one.__dict__["agent"]) for one in records} == {
        ("WARNING", task.id, "agent")
    }
    advice = "Write await before the call; in a sync agent, .wait() after it."
    assert sorted(one.getMessage() for one in records) == sorted(
        f"{__file__}, line {line_of(mark)}: agent agent called {what} without await, so it did not run. {advice}"
        for mark, what in (
            ("charge", 'the step "charge"'),
            ("sleep", "a sleep"),
            ("sleep until", "a sleep"),
            ("kept", 'the step "kept"'),
            ("decorated", 'the step "decorated"'),
        )
    )


async def test_a_step_of_a_sync_agent_that_nobody_waits_for_is_logged_with_its_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def agent(turn: Turn) -> str:
        turn.step("charge", lambda: 1)  # charge in a thread
        return "done"

    async with open_harness(tmp_path, agent) as here:
        assert texts(await here.send()) == ["done"]
    [record] = [one for one in caplog.records if one.name == "dragoman.agents"]
    assert f"line {line_of('charge in a thread')}: agent agent called the step" in record.getMessage()


# Errors -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda turn: turn.step("", lambda: 1), "turn.step: the name '' must be 1 to 200 printable characters"),
        (lambda turn: turn.step("search", 7), "7 is not a function; write turn.step('search', function, argument)"),
        (lambda turn: turn.step("search", lambda: object()), 'the result of step "search": a builtins.object cannot'),
        (lambda turn: turn.step("search"), 'step "search" has no function: pass one'),
        (lambda turn: turn.step("search", lambda: 1, timeout=-1), "timeout=-1 must be seconds, 0 for no limit"),
        (lambda turn: turn.step("search", lambda: 1, retry=3), "retry=3 must be a Retry, such as Retry(attempts=3)"),
        (lambda turn: turn.sleep(-1), "is negative; pass seconds=, minutes=, hours= or days="),
        (lambda turn: turn.sleep_until(datetime(2026, 1, 1)), "has no timezone"),
    ],
)
async def test_a_mistake_is_explained(tmp_path: Path, call: Any, text: str) -> None:
    async def agent(turn: Turn) -> None:
        await call(turn)

    async with open_harness(tmp_path, agent) as here:
        task = await here.send()
        assert state(task) == "FAILED"
        assert text in status_text(task)


async def test_an_attempt_waits_for_the_thread_that_went_on_after_its_timeout(tmp_path: Path) -> None:
    release, lock = threading.Event(), threading.Lock()
    calls = Counter[str]()

    def slow() -> int:
        with lock:
            calls["made"] += 1
            calls["running"] += 1
            calls["most"] = max(calls["most"], calls["running"])
            is_first = calls["made"] == 1
        if is_first:
            release.wait()
        with lock:
            calls["running"] -= 1
        return 1

    async def patient(turn: Turn) -> str:
        return str(await turn.step("slow", slow, retry=Retry(attempts=1000, backoff=0.001), timeout=0.2))

    async with open_harness(tmp_path, patient) as here:
        begun = await here.start()
        try:
            async with asyncio.timeout(60):  # the thread waits as long, so this state does not pass by
                while not any(step.attempt > 1 for step in await steps_of(here, begun)):  # noqa: ASYNC110 - in a thread
                    await asyncio.sleep(0.01)
        finally:
            release.set()
        task = await here.ended(begun.id)
    assert (texts(task), calls["most"]) == (["1"], 1)


async def test_a_step_that_takes_too_long_fails(tmp_path: Path) -> None:
    async def agent(turn: Turn) -> str:
        try:
            await turn.step("wait", asyncio.Event().wait, timeout=0.01)
        except TimeoutError:
            return "too late"
        return "in time"

    async with open_harness(tmp_path, agent) as here:
        task = await here.send()
        assert texts(task) == ["too late"]
        (step,) = await steps_of(here, task)
        assert (step.state, step.error) == (StepState.FAILED, "TimeoutError")


# Pauses -------------------------------------------------------------------------------------------------------------


async def test_a_short_pause_stays_in_memory(tmp_path: Path) -> None:
    calls = Calls()

    async def agent(turn: Turn) -> str:
        calls["turn"] += 1
        await turn.sleep(0.01)
        return "awake"

    async with open_harness(tmp_path, agent) as here:
        assert texts(await here.send()) == ["awake"]
        assert calls["turn"] == 1


@pytest.mark.parametrize("until", [False, True])
async def test_a_long_pause_releases_the_turn(tmp_path: Path, until: bool) -> None:
    calls = Calls()

    async def agent(turn: Turn) -> str:
        calls["turn"] += 1
        before: str = await turn.step("before", calls.make, "before", "before")
        await (turn.sleep_until(datetime.now(UTC) + timedelta(hours=1)) if until else turn.sleep(hours=1))
        return before

    async with open_harness(tmp_path, agent) as here:
        task = await here.start()
        await eventually(lambda: calls["before"] == 1)
        await here.idle()
        record = await record_of(here, task)
        assert (record.session, record.ready, record.state) == (0, False, states.WORKING)
        assert record.wake_at
        assert calls == {"turn": 1, "before": 1}


@pytest.mark.parametrize("until", [False, True])
async def test_the_turn_goes_on_after_a_long_pause(tmp_path: Path, until: bool) -> None:
    calls = Calls()

    async def agent(turn: Turn) -> str:
        calls["turn"] += 1
        before = await turn.step("before", calls.make, "before", "before")
        await (turn.sleep_until(datetime.now(UTC) + timedelta(seconds=1.1)) if until else turn.sleep(1.1))
        return f"{before}, attempt {turn.attempt}"

    async with open_harness(tmp_path, agent) as here:
        assert texts(await here.send()) == ["before, attempt 1"]
        assert calls == {"turn": 2, "before": 1}


async def test_a_pause_survives_a_restart(tmp_path: Path) -> None:
    calls = Calls()

    async def agent(turn: Turn) -> str:
        calls["turn"] += 1
        await turn.sleep(1.2)
        return "awake"

    async with open_harness(tmp_path, agent) as here:
        task = await here.start()
        await eventually(lambda: calls["turn"])
        await here.idle()
    async with open_harness(tmp_path, agent) as here:
        assert texts(await here.ended(task.id)) == ["awake"]
    assert calls == {"turn": 2}


async def test_a_cancel_ends_a_pause_at_once(tmp_path: Path) -> None:
    calls = Calls()

    async def agent(turn: Turn) -> None:
        calls["turn"] += 1
        await turn.sleep(days=3)

    async with open_harness(tmp_path, agent) as here:
        task = await here.start()
        await eventually(lambda: calls["turn"] == 1)
        await here.idle()
        assert state(await here.cancel(task.id)) == "CANCELED"
        assert (await record_of(here, task)).wake_at == 0


async def test_a_pause_beside_other_steps_does_not_interrupt_them(tmp_path: Path) -> None:
    calls = Calls()

    async def agent(turn: Turn) -> str:
        calls["turn"] += 1
        await asyncio.gather(turn.step("work", asyncio.sleep, 0.05, "done"), turn.sleep(1.05))
        return "both"

    async with open_harness(tmp_path, agent) as here:
        assert texts(await here.send()) == ["both"]
        assert calls == {"turn": 1}


async def test_a_blocking_send_waits_over_a_pause(tmp_path: Path) -> None:
    async def agent(turn: Turn) -> str:
        await turn.sleep(1.0)
        return "awake"

    async with open_harness(tmp_path, agent, timings=Timings(backlog_poll_interval=0.05)) as here:
        assert texts(await here.send()) == ["awake"]


async def test_status_updates_before_the_last_step_are_sent_once(tmp_path: Path) -> None:
    async def agent(turn: Turn) -> str:
        turn.status("searching")
        await turn.step("search", lambda: 1)
        turn.status("reading")
        if turn.attempt == 1:
            raise OSError
        return "done"

    async with open_harness(tmp_path, agent, retry=SOON) as here:
        task = await here.send()
        seen = [part.text for message in task.history for part in message.parts]
        assert seen == ["hello", "searching", "reading", "reading"]


async def test_the_answer_of_a_question_may_lead_elsewhere(tmp_path: Path) -> None:
    async def agent(turn: Turn) -> None:
        if turn.question is not None:
            turn.status("thank you")
        else:
            await turn.step("plan", lambda: 1)
            turn.ask("all right?")

    async with open_harness(tmp_path, agent) as here:
        question = await here.send()
        task = await here.send("yes", task_id=question.id)
        assert "thank you" in [part.text for message in task.history for part in message.parts]


async def test_a_crash_keeps_the_finished_steps(tmp_path: Path) -> None:
    calls, finished, never = Calls(), asyncio.Event(), asyncio.Event()

    async def agent(turn: Turn) -> str:
        first = await turn.step("first", calls.make, "first", "first")
        finished.set()
        if turn.attempt == 1:
            await never.wait()
        return str(first)

    async with open_harness(tmp_path, agent, on_crash=retry(2)) as here:
        task = await here.start()
        await finished.wait()
    async with open_harness(tmp_path, agent, on_crash=retry(2)) as here:  # drained: released for the next attempt
        assert texts(await here.ended(task.id)) == ["first"]
    assert calls == {"first": 1}


# A result that cannot be stored ------------------------------------------------------------------------------------


@pytest.mark.parametrize("result", [object(), ValueError("x"), b"x" * (MAX_RESULT_BYTES + 1), {1: [lambda: None]}])
@pytest.mark.parametrize("as_block", [False, True])
async def test_a_step_whose_result_cannot_be_stored_has_run_and_is_not_repeated(
    tmp_path: Path, result: object, as_block: bool
) -> None:
    calls = Calls()

    async def pays(turn: Turn) -> None:
        if as_block:
            async with turn.step("charge") as step:
                step.result = await calls.make("charge", result)
        else:
            await turn.step("charge", calls.make, "charge", result, retry=SOON)

    async with open_harness(tmp_path, pays, retry=SOON) as here:
        task = await here.send()
        assert state(task) == "FAILED"
        assert 'the result of step "charge"' in status_text(task)
        assert status_text(task).endswith("The step has run, so it is not repeated")
        assert calls == {"charge": 1}
        (step,) = await steps_of(here, task)
        assert (step.state, step.error) == (StepState.FAILED, status_text(task))


async def test_a_step_around_one_whose_result_cannot_be_stored_is_not_repeated_either(tmp_path: Path) -> None:
    calls = Calls()

    async def pays(turn: Turn) -> None:
        async def outer() -> None:
            await turn.step("charge", calls.make, "charge", object())

        await turn.step("order", outer, retry=SOON)

    async with open_harness(tmp_path, pays, retry=SOON) as here:
        assert "UnstorableResult" in status_text(await here.send())
        assert calls == {"charge": 1}


@pytest.mark.parametrize("error", [GeneratorExit(), SystemExit(2), KeyboardInterrupt(), StopIteration(), OSError()])
async def test_a_step_that_raises_is_stored_as_failed_whatever_it_raises(tmp_path: Path, error: BaseException) -> None:
    async def breaks(turn: Turn) -> None:
        def work() -> None:
            raise error

        await turn.step("work", work)

    async with asyncio.timeout(60), open_harness(tmp_path, breaks) as here:
        task = await here.send()
        (step,) = await steps_of(here, task)
        assert (state(task), step.state) == ("FAILED", StepState.FAILED)


# Contents, for operators ------------------------------------------------------------------------------------------


async def details_of(here: Harness, task: pb.Task) -> list[wk.StepDetails]:
    (record,) = await here.store.locate(task.id)
    steps = await here.store.steps(record.ref, results=True)
    return [wk.StepDetails.FromString(step.details) for step in steps]


async def test_a_step_keeps_its_arguments_by_name_as_they_were_when_it_began(tmp_path: Path) -> None:
    def search(query: str, *, pages: list[int], **more: object) -> int:
        pages.append(0)
        return len(query)

    async def researcher(turn: Turn) -> str:
        @turn.step
        async def write(title: str) -> str:
            return title

        await turn.step("search", search, "tides", pages=[3, 4], sort="new")
        async with turn.step("pay"):
            pass
        return await write("On tides")

    async with open_harness(tmp_path, researcher) as here:
        details = await details_of(here, await here.send())
    assert [one.input for one in details] == [
        '{"query":"tides","pages":[3,4],"more":{"sort":"new"}}', "", '{"title":"On tides"}',
    ]  # fmt: skip


async def test_failed_attempts_keep_their_errors_and_the_last_one_the_frames_of_its_author(tmp_path: Path) -> None:
    tries = Calls()

    async def fetch(page: int) -> str:
        tries["fetch"] += 1
        if tries["fetch"] < 14:
            raise ConnectionError(f"page {page} failed {tries['fetch']} times: {'x' * 3_000}")
        return "found"

    async def researcher(turn: Turn) -> str:
        return await turn.step("fetch", fetch, 7, retry=Retry(attempts=6, backoff=0.001))

    async with open_harness(tmp_path, researcher, retry=SOON) as here:
        (details,) = await details_of(here, await here.send())
    assert details.input == '{"page":7}'
    # The steps' attempts are counted in each run of the turn: 6 of the first, 6 of the second, 1 of the third.
    assert [one.attempt for one in details.failures] == [4, 5, 6, 1, 2, 3, 4, 5, 6, 1]
    *earlier, last = details.failures
    assert {len(one.text) for one in earlier} == {500}
    assert not any(one.frames for one in earlier)
    assert (last.type, last.text[:25], len(last.text)) == ("ConnectionError", "page 7 failed 13 times: x", 3_024)
    assert last.ended.ToMilliseconds() > 0
    assert [(frame.function, frame.code[:21]) for frame in last.frames] == [("fetch", "raise ConnectionError")]
