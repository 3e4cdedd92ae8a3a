"""Threads of sync functions, and the cancel of each kind of function."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tests.agents.turn_context import RecordingTurnContext, run_turn, state_of, status_text
from tests.eventually import eventually

from dragoman import Turn, agent
from dragoman.agents.functions.runner import DeclaredAgent
from dragoman.agents.functions.threads import DaemonThreadPool
from dragoman.core.cards.agent_spec import AgentSpec
from dragoman.ports import AgentStillRuns

SPEC = AgentSpec(id="a", name="A", description="")


async def canceled(it: DeclaredAgent[Any, Any]) -> RecordingTurnContext:
    """Cancels a run of `it` after its first event, and expects it to stop."""
    turn_context = RecordingTurnContext("go")
    run = asyncio.create_task(it.take_turn(turn_context))
    await turn_context.event_put.wait()
    turn_context.canceled = True
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    return turn_context


async def test_a_cancel_reaches_an_async_function_at_its_await() -> None:
    @agent
    async def it(turn: Turn) -> None:
        turn.status("waiting")
        try:
            await asyncio.Event().wait()
        finally:
            turn.status("cleaning up")

    assert len((await canceled(it)).changes) == 2


async def test_a_cancel_reaches_an_async_generator_even_at_its_yield() -> None:
    seen: list[str] = []

    @agent
    async def it(turn: Turn) -> AsyncIterator[str]:
        try:
            while True:
                yield "x"
        except asyncio.CancelledError:
            seen.append("canceled")
            raise

    await canceled(it)
    assert seen == ["canceled"]


async def test_a_cancel_waits_for_a_sync_function_which_sees_it() -> None:
    stopped = threading.Event()

    @agent
    def it(turn: Turn) -> None:
        turn.status("waiting")
        while True:
            try:
                turn.check()
            except asyncio.CancelledError:
                stopped.set()
                raise

    await canceled(it)
    assert stopped.is_set()


async def test_a_canceled_sync_generator_stops_at_its_yield() -> None:
    closed = threading.Event()

    @agent
    def it(turn: Turn) -> Iterator[str]:
        try:
            while True:
                yield "x"
        finally:
            closed.set()

    await canceled(it)
    assert closed.is_set()


async def test_a_result_before_the_stop_wins() -> None:
    @agent
    async def loop(turn: Turn) -> str:
        turn.status("waiting")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "done all the same"
        return "never"

    @agent
    def sync(turn: Turn) -> str:
        turn.status("waiting")
        while not turn.canceled:
            pass
        return "done all the same"

    for it in (loop, sync):
        turn_context = RecordingTurnContext("go")
        run = asyncio.create_task(it.take_turn(turn_context))
        await turn_context.event_put.wait()
        turn_context.canceled = True
        run.cancel()
        task = turn_context.task(await run)
        assert state_of(task) == "COMPLETED"
        assert task.artifacts[0].parts[0].text == "done all the same"


@pytest.mark.parametrize("stop_timeout", [0.0, 3600.0])
async def test_a_drained_thread_that_does_not_stop_counts_as_leaked_after_the_timeout_or_a_second_cancel(
    stop_timeout: float,
) -> None:
    release = threading.Event()

    def it(turn: Turn) -> None:
        turn.status("deaf")
        assert release.wait(60)
        raise ValueError("not reported")

    turn_context = RecordingTurnContext("go")
    with ThreadPoolExecutor(1) as threads:
        leaking = DeclaredAgent(it, SPEC, thread_pool=threads, stop_timeout=stop_timeout)
        run = asyncio.create_task(leaking.take_turn(turn_context))
        await turn_context.event_put.wait()
        run.cancel()
        await asyncio.sleep(0)
        if stop_timeout:
            assert not run.done()
            run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        assert leaking.leaked_threads == 1
        release.set()
    assert leaking.leaked_threads == 0


@pytest.mark.parametrize("reason", ["client", "lease_lost"])
async def test_a_canceled_turn_lasts_as_long_as_its_thread(reason: str) -> None:
    release = threading.Event()

    def it(turn: Turn) -> None:
        turn.status("deaf")
        assert release.wait(60)
        turn.check()

    turn_context = RecordingTurnContext("go")
    with ThreadPoolExecutor(1) as threads:
        leaking = DeclaredAgent(it, SPEC, thread_pool=threads, stop_timeout=0.0)
        run = asyncio.create_task(leaking.take_turn(turn_context))
        await turn_context.event_put.wait()
        turn_context.canceled, turn_context.cancel_reason = True, reason
        run.cancel()
        await eventually(lambda: leaking.leaked_threads == 1)
        assert not run.done()
        release.set()
        with pytest.raises(asyncio.CancelledError):
            await run
    assert leaking.leaked_threads == 0


async def test_a_shutdown_abandons_a_canceled_thread_without_the_claim_that_it_stopped() -> None:
    release = threading.Event()

    def it(turn: Turn) -> None:
        turn.status("deaf")
        assert release.wait(60)

    turn_context = RecordingTurnContext("go")
    with ThreadPoolExecutor(1) as threads:
        run = asyncio.create_task(DeclaredAgent(it, SPEC, thread_pool=threads).take_turn(turn_context))
        await turn_context.event_put.wait()
        turn_context.canceled, turn_context.cancel_reason = True, "client"
        run.cancel()
        await asyncio.sleep(0)
        run.cancel()
        await asyncio.sleep(0)
        assert not run.done(), "only a shutdown abandons it"
        turn_context.stopping = True
        run.cancel()
        with pytest.raises(AgentStillRuns):
            await run
        release.set()


async def test_a_turn_canceled_before_it_has_a_thread_never_runs() -> None:
    release = threading.Event()
    threads = DaemonThreadPool(1)
    threads.submit(release.wait, 30)
    ran: list[bool] = []
    it = DeclaredAgent(lambda turn: ran.append(True), SPEC, thread_pool=threads)
    run = asyncio.create_task(it.take_turn(RecordingTurnContext("go")))
    await asyncio.sleep(0)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    release.set()
    await asyncio.wrap_future(threads.submit(str))
    assert not ran


async def test_a_cancellation_without_a_request_fails_the_task() -> None:
    @agent
    async def it(turn: Turn) -> None:
        inner = asyncio.create_task(asyncio.Event().wait())
        inner.cancel()
        await inner

    task, _ = await run_turn(it, "go")
    assert (state_of(task), status_text(task)) == ("FAILED", "CancelledError")


def test_idle_threads_are_reused_and_stay_within_the_limit() -> None:
    threads = DaemonThreadPool(3)
    names = [threads.submit(lambda: threading.current_thread().name).result() for _ in range(20)]
    assert len(set(names)) <= 3
    assert all(thread.daemon for thread in threading.enumerate() if thread.name in names)
    assert threads.submit(int, "7").result() == 7
    with pytest.raises(ValueError, match="invalid literal"):
        threads.submit(int, "x").result()
    threads.shutdown()
