"""The runner: kinds of functions, and failures."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import itertools
import logging
import threading
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.agents.turn_context import RecordingTurnContext, run_turn, state_of, status_text

from dragoman import AgentError, Retry, Turn, agent, types
from dragoman.agents.functions.runner import MAX_VALUES_IN_A_ROW, DeclaredAgent
from dragoman.agents.functions.threads import DaemonThreadPool
from dragoman.core.cards.agent_spec import AgentSpec
from dragoman.core.exceptions import generic_error_text
from dragoman.core.task import states
from dragoman.core.task.log import FENCED, AppendRejected
from dragoman.ports import AgentStillRuns, BufferFull, LeaseLost, TurnResult
from dragoman_pb.dragoman.worker.v1 import worker_pb2 as wk

caller: contextvars.ContextVar[str] = contextvars.ContextVar("caller", default="")


# Kinds -------------------------------------------------------------------------------------------------------------


async def test_a_sync_function_runs_in_a_thread_with_the_callers_context() -> None:
    @agent
    def it(turn: Turn) -> str:
        return f"{caller.get()} {threading.current_thread() is threading.main_thread()}"

    caller.set("me")
    task, _ = await run_turn(it, "go")
    assert task.artifacts[0].parts[0].text == "me False"


async def test_a_sync_generator_can_stream_and_return() -> None:
    @agent
    def it(turn: Turn) -> Generator[object, None, object]:
        yield "a "
        yield types.message("working")
        yield "b"
        return types.message("done")

    task, _ = await run_turn(it, "go")
    assert [part.text for part in task.artifacts[0].parts] == ["a ", "b"]
    assert (state_of(task), status_text(task)) == ("COMPLETED", "done")


async def test_a_string_returned_after_chunks_is_a_separate_artifact() -> None:
    @agent
    def it(turn: Turn) -> Generator[str, None, str]:
        yield "streamed"
        return "result"

    task, _ = await run_turn(it, "go")
    assert [artifact.parts[0].text for artifact in task.artifacts] == ["streamed", "result"]


@pytest.mark.parametrize(("ticks", "in_a_row"), [(True, 1), (False, MAX_VALUES_IN_A_ROW)])
async def test_an_async_generator_yields_to_the_event_loop_when_the_clock_advances_or_after_many_values(
    ticks: bool, in_a_row: int
) -> None:
    seen: list[int] = []
    number_of_values = 2 * MAX_VALUES_IN_A_ROW

    @agent
    async def it(turn: Turn) -> AsyncIterator[str]:
        for n in range(number_of_values):
            yield str(n)

    async def watch(turn_context: RecordingTurnContext) -> None:
        while True:
            seen.append(len(turn_context.changes))
            await asyncio.sleep(0)

    turn_context = RecordingTurnContext("go")
    turn_context.now = itertools.count().__next__ if ticks else (lambda: 0)
    watching = asyncio.create_task(watch(turn_context))
    await it.take_turn(turn_context)
    watching.cancel()
    assert turn_context.room.waits == number_of_values
    assert set(seen) - {0} == set(range(in_a_row, number_of_values + 1, in_a_row))


async def test_sync_turns_wait_for_a_free_thread() -> None:
    begun = threading.Semaphore(0)
    go = threading.Event()

    def it(turn: Turn) -> str:
        begun.release()
        assert go.wait(60)
        return "done"

    threads = DaemonThreadPool(2)
    turn_contexts = [RecordingTurnContext("go") for _ in range(5)]
    waiting = DeclaredAgent(it, AgentSpec(id="a", name="A", description=""), thread_pool=threads)
    turns = [asyncio.create_task(waiting.take_turn(turn_context)) for turn_context in turn_contexts]
    await asyncio.to_thread(lambda: (begun.acquire(), begun.acquire()))
    assert not begun.acquire(blocking=False)
    go.set()
    results = await asyncio.gather(*turns)
    assert [result.status.state for result in results] == [states.COMPLETED] * 5
    threads.shutdown()


# Wrong kinds -------------------------------------------------------------------------------------------------------


async def _inner() -> str:
    return "never awaited"


def _numbers() -> Iterator[int]:
    yield 1


WRONG: list[tuple[Callable[[Turn], object], str]] = [
    (lambda turn: _inner(), "an await is missing"),
    (lambda turn: _numbers(), "iterate over it and yield its values"),
]


@pytest.mark.parametrize(("call", "reason"), WRONG)
async def test_a_returned_coroutine_or_generator_fails_with_advice(call: Callable[[Turn], object], reason: str) -> None:
    @agent
    def sync(turn: Turn) -> object:
        return call(turn)

    @agent
    async def loop(turn: Turn) -> object:
        return call(turn)

    for one in (sync, loop):
        task, _ = await run_turn(one, "go")
        assert state_of(task) == "FAILED"
        assert "the returned value" in status_text(task)
        assert reason in status_text(task)


async def test_an_async_function_in_a_sync_wrapper_fails_with_advice() -> None:
    async def real(turn: Turn) -> str:
        return "x"

    @agent
    @functools.wraps(real)
    def wrapper(turn: Turn) -> object:
        return real(turn)

    task, _ = await run_turn(wrapper, "go")
    assert "an await is missing" in status_text(task)


# Failures ----------------------------------------------------------------------------------------------------------


def explode() -> None:
    raise LookupError("no such thing")


def kinds_of(body: Callable[[], None]) -> list[DeclaredAgent[Any, Any]]:
    @agent(id="async-function")
    async def one(turn: Turn) -> None:
        body()

    @agent(id="async-generator")
    async def two(turn: Turn) -> AsyncIterator[str]:
        yield "x"
        body()

    @agent(id="function")
    def three(turn: Turn) -> None:
        body()

    @agent(id="generator")
    def four(turn: Turn) -> Iterator[str]:
        yield "x"
        body()

    return [one, two, three, four]


@pytest.mark.parametrize("index", range(4))
async def test_an_exception_fails_the_task_and_its_traceback_is_logged(
    index: int, caplog: pytest.LogCaptureFixture
) -> None:
    it = kinds_of(explode)[index]
    task, _ = await run_turn(it, "go")
    assert (state_of(task), status_text(task)) == ("FAILED", "LookupError: no such thing")
    [record] = [one for one in caplog.records if one.name == "dragoman.agents"]
    assert record.levelno == logging.ERROR
    assert (record.__dict__["task"], record.__dict__["agent"]) == ("task-1", it.spec.id)
    assert f"{Path(__file__).name}, line {line_of_explode()}: agent {it.spec.id} failed" in record.getMessage()
    assert record.exc_info is not None
    assert "Traceback" not in status_text(task)


@pytest.mark.parametrize("index", range(4))
async def test_callers_of_a_server_that_hides_error_texts_see_an_id_that_the_log_has(
    index: int, caplog: pytest.LogCaptureFixture
) -> None:
    context = RecordingTurnContext("go")
    context.shows_error_texts = False
    task = context.task(await kinds_of(explode)[index].take_turn(context))
    [record] = [one for one in caplog.records if one.name == "dragoman.agents"]
    assert status_text(task) == generic_error_text(record.__dict__["error_id"])
    assert "LookupError: no such thing" in record.getMessage()
    assert record.__dict__["error_id"] in record.getMessage()


async def test_an_invalid_value_of_an_agent_is_hidden_like_an_exception() -> None:
    @agent
    async def it(turn: Turn) -> object:
        return {"secret": object()}

    context = RecordingTurnContext("go")
    context.shows_error_texts = False
    result = await it.take_turn(context)
    assert result.error is not None
    assert result.error.message.startswith("The agent failed.")
    assert status_text(context.task(result)) == f"InvalidAgentResponse: {result.error.message}"


async def test_the_retry_of_a_hidden_failure_names_its_id_only() -> None:
    @agent(retry=Retry(attempts=2, on=(OSError,)))
    async def it(turn: Turn) -> str:
        raise OSError("host.internal")

    context = RecordingTurnContext("go")
    context.shows_error_texts = False
    result = await it.take_turn(context)
    assert result.pause is not None
    assert result.pause.error == status_text(context.task(result))
    assert "host.internal" not in result.pause.error


async def test_a_failure_with_attempts_left_is_a_warning_that_says_when_the_next_one_begins(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @agent(retry=Retry(attempts=3, backoff=0.5))
    async def it(turn: Turn) -> str:
        raise ConnectionError("no model")

    for attempt in (1, 2, 3):
        context = RecordingTurnContext("go")
        context.attempt = attempt
        await it.take_turn(context)
    assert [(one.levelname, one.getMessage().partition("agent it ")[2]) for one in caplog.records] == [
        ("WARNING", "failed: ConnectionError: no model; attempt 2 of 3 begins in 0.5 s"),
        ("WARNING", "failed: ConnectionError: no model; attempt 3 of 3 begins in 1 s"),
        ("ERROR", "failed: ConnectionError: no model"),
    ]
    assert all(one.exc_info for one in caplog.records)


async def test_a_failure_of_a_stopped_turn_announces_no_attempt(caplog: pytest.LogCaptureFixture) -> None:
    @agent(retry=Retry(attempts=3))
    async def it(turn: Turn) -> str:
        raise ConnectionError("no model")

    context = RecordingTurnContext("go")
    context.canceled = True
    assert (await it.take_turn(context)).pause is None
    [record] = caplog.records
    assert (record.levelname, record.getMessage()[-8:]) == ("ERROR", "no model")


async def test_a_failure_without_a_line_of_the_author_names_the_declaration(caplog: pytest.LogCaptureFixture) -> None:
    @agent
    async def returns(turn: Turn) -> int:
        return 2**60

    @agent
    async def stores(turn: Turn) -> None:
        turn.state["x"] = (1, 2)

    for it in (returns, stores):
        await it.take_turn(RecordingTurnContext("go"))
        line = it.__wrapped__.__code__.co_firstlineno
        place = f"agent {it.spec.id}, declared at {__file__}, line {line}, failed: "
        assert caplog.records[-1].getMessage().startswith(place)


@pytest.mark.parametrize("shown", [True, False])
async def test_the_text_of_an_agent_error_is_for_the_caller(shown: bool) -> None:
    class Closed(AgentError):
        pass

    def fail() -> None:
        raise Closed("Closed until 8:00") from OSError("host.internal")

    for it in kinds_of(fail):
        context = RecordingTurnContext("go")
        context.shows_error_texts = shown
        task = context.task(await it.take_turn(context))
        assert (state_of(task), status_text(task)) == ("FAILED", "Closed until 8:00")


def line_of_explode() -> int:
    return explode.__code__.co_firstlineno + 1


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError(), "ValueError"),
        (SystemExit(3), "SystemExit: 3"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (StopIteration("x"), "RuntimeError: "),
        (BufferFull("257 events wait"), "BufferFull: 257 events wait"),
        (ValueError("\ud800"), "ValueError: \\ud800"),
        (ExceptionGroup("many", [ValueError("a"), KeyError("b")]), "ValueError: a (and 1 more)"),
    ],
    ids=repr,
)
async def test_every_kind_of_exception_has_an_error_text(error: BaseException, text: str) -> None:
    def fail() -> None:
        raise error

    for it in kinds_of(fail):
        task, _ = await run_turn(it, "go")
        assert state_of(task) == "FAILED"
        assert status_text(task).startswith(text)


async def test_a_long_error_text_is_truncated() -> None:
    @agent
    async def it(turn: Turn) -> None:
        raise ValueError("x" * 1_000_000)

    task, _ = await run_turn(it, "go")
    assert len(status_text(task)) < 5_000


async def test_an_invalid_value_raises_at_its_yield() -> None:
    @agent
    async def loop(turn: Turn) -> AsyncIterator[object]:
        try:
            yield object()
        except types.InvalidAgentResponse:
            yield "caught"

    @agent
    def sync(turn: Turn) -> Iterator[object]:
        try:
            yield object()
        except types.InvalidAgentResponse:
            yield "caught"

    for it in (loop, sync):
        task, _ = await run_turn(it, "go")
        assert state_of(task) == "COMPLETED"
        assert task.artifacts[0].parts[0].text == "caught"


@pytest.mark.parametrize("over", [LeaseLost("canceled"), AppendRejected(FENCED, None)])
async def test_a_turn_that_lost_its_lease_ends_without_an_error_and_closes_its_generator(
    over: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    closed: list[str] = []

    @agent
    async def loop(turn: Turn) -> AsyncIterator[str]:
        try:
            while True:
                try:
                    yield "x"
                except Exception:
                    closed.append("an author's except saw it")
        finally:
            closed.append("loop")

    @agent
    def sync(turn: Turn) -> Iterator[str]:
        try:
            yield "x"
        finally:
            closed.append("sync")

    @agent
    async def verb(turn: Turn) -> None:
        turn.chunk("x")

    for it in (loop, sync, verb):
        turn_context = RecordingTurnContext("go")
        turn_context.put_error = over
        result = await it.take_turn(turn_context)
        assert isinstance(result, TurnResult)
    assert closed == ["loop", "sync"]
    assert not caplog.records


# Exceptions that mean something to Python ---------------------------------------------------------------------------


def endless() -> Iterator[int]:
    while True:
        yield 1


async def test_a_generator_exit_of_the_agents_own_is_its_failure(caplog: pytest.LogCaptureFixture) -> None:
    @agent
    async def closes(turn: Turn) -> None:
        inner = endless()
        next(inner)
        inner.throw(GeneratorExit)  # type: ignore[attr-defined]  # it is a generator

    task, _ = await run_turn(closes, "go")
    assert (state_of(task), status_text(task)) == ("FAILED", "GeneratorExit")
    assert f"{__file__}, line " in caplog.text
    assert "agent closes failed: GeneratorExit" in caplog.text


async def test_a_turn_that_is_destroyed_has_no_result(caplog: pytest.LogCaptureFixture) -> None:
    @agent
    async def waits(turn: Turn) -> None:
        await asyncio.Event().wait()

    async def run() -> None:
        taken = waits.take_turn(RecordingTurnContext("go"))
        taken.send(None)
        await asyncio.create_task(close(taken))

    async def close(taken: Any) -> None:
        taken.close()

    await asyncio.create_task(run())
    assert "failed" not in caplog.text


async def test_a_process_wide_stop_that_an_agent_claims_is_its_failure() -> None:
    @agent
    async def abandons(turn: Turn) -> None:
        raise AgentStillRuns

    task, _ = await run_turn(abandons, "go")
    assert state_of(task) == "FAILED"


async def test_a_text_of_20_mb_is_neither_sent_nor_logged_whole(caplog: pytest.LogCaptureFixture) -> None:
    @agent
    async def floods(turn: Turn) -> None:
        raise AgentError("x" * 20_000_000)

    task, _ = await run_turn(floods, "go")
    assert status_text(task) == "x" * 4_000 + "…"
    assert len(caplog.text) < 20_000


@pytest.mark.parametrize("shown", [True, False])
async def test_a_failure_carries_what_operators_see_beside_what_the_caller_sees(shown: bool) -> None:
    @agent
    async def it(turn: Turn) -> str:
        async def book() -> str:
            return {"room": "x"}["bed"]

        await turn.step("book a bed", book)
        return "done"

    turn_context = RecordingTurnContext("go")
    turn_context.shows_error_texts = shown
    result = await it.take_turn(turn_context)
    failure = wk.Failure.FromString(result.status.failure)
    assert (failure.type, failure.text, failure.step) == ("KeyError", "'bed'", "book a bed")
    assert [(frame.function, frame.code) for frame in failure.frames] == [
        ("it", 'await turn.step("book a bed", book)'), ("book", 'return {"room": "x"}["bed"]'),
    ]  # fmt: skip
    assert (b"bed" in result.status.message) is shown
