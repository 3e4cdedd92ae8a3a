"""Calls that ask while they are open."""

from __future__ import annotations

import asyncio
from typing import Any

import mcp_types as types
import pytest

from dragoman.extensions.mcp.servers.open_calls import OpenCall, OpenCalls, ServerQuestion

FORM = types.ElicitRequestFormParams(message="Who?", requested_schema={})
DONE = types.CallToolResult(content=[])


async def no_progress(progress: float, total: float | None, message: str | None) -> None:
    raise AssertionError("no progress is expected")


def answered(text: str) -> types.ElicitResult:
    return types.ElicitResult(action="accept", content={"text": text})


def asking(calls: OpenCalls, log: list[Any], *, times: int = 1) -> OpenCall:
    """A call that asks, with its answers in the log."""

    async def call(on_progress: Any) -> types.Result:
        log.extend([await calls.elicit(FORM) for _ in range(times)])
        return DONE

    return calls.start(call, "call", no_progress)


async def question_of(call: OpenCall) -> ServerQuestion:
    question = await call.step()
    assert isinstance(question, ServerQuestion)
    return question


async def test_a_call_asks_and_goes_on_with_the_answer() -> None:
    calls = OpenCalls()
    log: list[Any] = []
    call = asking(calls, log, times=2)
    assert (await question_of(call)).params is FORM
    call.answer(answered("a"))
    await question_of(call)
    call.answer(answered("b"))
    assert await call.step() is DONE
    assert log == [answered("a"), answered("b")]


async def test_questions_of_the_same_call_at_once_are_asked_one_after_the_other() -> None:
    calls = OpenCalls()
    log: list[Any] = []

    async def call(on_progress: Any) -> types.Result:
        log.extend(await asyncio.gather(calls.elicit(FORM), calls.elicit(FORM)))
        return DONE

    opened = calls.start(call, "call", no_progress)
    for text in "ab":
        await question_of(opened)
        opened.answer(answered(text))
    assert await opened.step() is DONE
    assert log == [answered("a"), answered("b")]


async def test_questions_of_a_call_that_has_ended_are_canceled() -> None:
    calls, release = OpenCalls(), asyncio.Event()

    async def call(on_progress: Any) -> types.Result:
        await release.wait()
        return DONE

    opened = calls.start(call, "call", no_progress)
    questions = [asyncio.create_task(opened.ask(FORM)) for _ in range(3)]
    await question_of(opened)
    release.set()
    async with asyncio.timeout(60):
        answers = await asyncio.gather(*questions)
    assert [one.action for one in answers] == ["cancel"] * 3
    assert await opened.step() is DONE


async def test_a_question_finds_its_call_by_the_context_of_its_request() -> None:
    calls = OpenCalls()
    log: list[Any] = []
    opened = [asking(calls, log) for _ in range(3)]
    for call in opened:
        await question_of(call)
    opened[1].answer(answered("b"))
    assert await opened[1].step() is DONE
    assert log == [answered("b")]
    await calls.close()


async def test_a_question_without_a_context_belongs_to_the_only_call_that_does_not_wait() -> None:
    calls = OpenCalls()
    release = asyncio.Event()

    async def call(on_progress: Any) -> types.Result:
        await release.wait()
        return DONE

    first = calls.start(call, "first", no_progress)
    elsewhere = asyncio.create_task(calls.elicit(FORM))
    await question_of(first)
    second, third = calls.start(call, "second", no_progress), calls.start(call, "third", no_progress)
    refused = await calls.elicit(FORM)
    assert isinstance(refused, types.ErrorData)
    assert refused.message == "2 calls are open, and the question does not say which of them asks"
    first.answer(answered("a"))
    assert await elsewhere == answered("a")
    release.set()
    assert [await one.step() for one in (first, second, third)] == [DONE] * 3


async def test_a_parked_call_is_taken_once_and_has_no_progress() -> None:
    calls = OpenCalls()
    log: list[Any] = []
    call = asking(calls, log)
    await question_of(call)
    calls.park("id", call)
    assert call.on_progress is None
    assert calls.take("id") is call
    assert calls.take("id") is None
    await call.cancel()


async def test_too_many_parked_calls_and_old_ones_are_canceled() -> None:
    calls = OpenCalls(max_waiting=1, seconds=0.01)
    log: list[Any] = []
    first, second = asking(calls, log), asking(calls, log)
    for name, call in (("first", first), ("second", second)):
        await question_of(call)
        calls.park(name, call)
    await asyncio.wait([first.task, second.task])
    assert first.task.cancelled()
    assert second.task.cancelled()
    assert (calls.take("first"), calls.take("second")) == (None, None)


async def test_progress_reaches_whoever_follows_the_call() -> None:
    seen: list[Any] = []

    async def follow(progress: float, total: float | None, message: str | None) -> None:
        seen.append((progress, total, message))

    async def call(on_progress: Any) -> types.Result:
        await on_progress(1, 2, "half")
        return DONE

    await OpenCalls().start(call, "call", follow).step()
    assert seen == [(1, 2, "half")]


async def test_the_error_of_a_call_is_raised_and_close_cancels_what_runs() -> None:
    calls = OpenCalls()
    log: list[Any] = []

    async def call(on_progress: Any) -> types.Result:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await calls.start(call, "call", no_progress).step()
    running, parked = asking(calls, log), asking(calls, log)
    await question_of(parked)
    calls.park("id", parked)
    await calls.close()
    assert (running.task.cancelled(), parked.task.cancelled()) == (True, True)
