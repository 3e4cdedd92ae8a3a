"""The operations, on a real store and with real agents."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.conftest import timings
from tests.eventually import eventually
from tests.runtime.harness import collect, kinds, open_harness, request, state, status_text, texts

from dragoman import Turn
from dragoman.core.errors import (
    InvalidAgentResponse,
    TaskEnded,
    TaskNotCancelable,
    TaskNotFound,
    Unavailable,
    UnsupportedOperation,
)
from dragoman.core.task.log import Append, ClaimHeld
from dragoman.ports import LeaseLost
from dragoman.runtime.turn.finish import Stop
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


async def echo(turn: Turn) -> str:
    return turn.text


async def asker(turn: Turn) -> str:
    count = turn.state["count"] = turn.state.get("count", 0) + 1
    if turn.text != "enough":
        turn.ask(f"question {count}")
    return " ".join("".join(part.text for part in message.parts) for message in turn.history)


# Sending -----------------------------------------------------------------------------------------------------------


async def test_a_blocking_send_answers_with_the_finished_task(tmp_path: Path) -> None:
    async with open_harness(tmp_path, echo) as here:
        task = await here.send("hello")
        assert (state(task), texts(task)) == ("COMPLETED", ["hello"])
        assert await here.get(task.id) == task


async def test_a_send_that_does_not_wait_answers_at_once(tmp_path: Path) -> None:
    async def waits(turn: Turn) -> str:
        await here.at("go").wait()
        return "done"

    async with open_harness(tmp_path, waits) as here:
        task = await here.start()
        assert state(task) == "SUBMITTED"
        here.at("go").set()
        assert texts(await here.ended(task.id)) == ["done"]


async def test_a_blocking_send_returns_at_its_timeout_and_the_task_continues(tmp_path: Path) -> None:
    async def waits(turn: Turn) -> str:
        await here.at("go").wait()
        return "done"

    async with open_harness(tmp_path, waits) as here:
        task = (await here.answer(seconds=0.1)).task
        assert state(task) in ("SUBMITTED", "WORKING")
        here.at("go").set()
        assert texts(await here.ended(task.id)) == ["done"]


@pytest.mark.parametrize(("history", "left"), [(None, 1), (0, 0), (1, 1)])
async def test_the_response_has_the_requested_history(tmp_path: Path, history: int | None, left: int) -> None:
    async with open_harness(tmp_path, echo) as here:
        send_request = request()
        if history is not None:
            send_request.configuration.history_length = history
        answer = pb.SendMessageResponse.FromString(
            await here.runtime.operations.send.send_message(here.call, send_request)
        )
        assert len(answer.task.history) == left


async def test_a_follow_up_needs_only_the_task_id(tmp_path: Path) -> None:
    async with open_harness(tmp_path, asker) as here:
        task = await here.send("first")
        for number in (2, 3, 4):
            task = await here.send(f"again {number}", task_id=task.id)
            assert (state(task), status_text(task)) == ("INPUT_REQUIRED", f"question {number}")
        task = await here.send("enough", task_id=task.id)
        assert {message.context_id for message in task.history if message.role == pb.ROLE_USER} == {task.context_id}
        assert texts(task) == ["first question 1 again 2 question 2 again 3 question 3 again 4 question 4"]


async def test_the_agent_knows_its_question(tmp_path: Path) -> None:
    async def remembers(turn: Turn) -> str:
        if turn.question is None:
            turn.ask("what colour?")
        return f"{turn.question.parts[0].text} {turn.text}"

    async with open_harness(tmp_path, remembers) as here:
        task = await here.send("hello")
        assert texts(await here.send("blue", task_id=task.id)) == ["what colour? blue"]


async def test_a_message_to_a_finished_task_is_rejected(tmp_path: Path) -> None:
    async with open_harness(tmp_path, echo) as here:
        task = await here.send()
        with pytest.raises(TaskEnded):
            await here.send("more", task_id=task.id)
        with pytest.raises(TaskNotFound):
            await here.send("more", task_id="no such task")


# Messages while working --------------------------------------------------------------------------------------------


async def test_a_running_agent_receives_messages_as_they_arrive(tmp_path: Path) -> None:
    async def listens(turn: Turn) -> str:
        received = []
        here.at("listening").set()
        async for message in turn.messages():
            received.append(message.text)
            if message.text == "stop":
                return " ".join(received)
        raise AssertionError

    async with open_harness(tmp_path, listens) as here:
        task = await here.start()
        await here.at("listening").wait()
        for text in ("one", "two", "stop"):
            await here.start(text, task_id=task.id)
        assert texts(await here.ended(task.id)) == ["one two stop"]


async def test_an_unread_message_starts_another_turn(tmp_path: Path) -> None:
    async def slow(turn: Turn) -> str:
        if turn.text == "first":
            here.at("working").set()
            await here.at("go").wait()
        return turn.text

    async with open_harness(tmp_path, slow) as here:
        task = await here.start("first")
        await here.at("working").wait()
        await here.start("second", task_id=task.id)
        here.at("go").set()
        assert texts(await here.ended(task.id)) == ["first", "second"]


async def test_a_cancel_stops_the_turn_of_an_unread_message(tmp_path: Path) -> None:
    async def answers(turn: Turn) -> str:
        here.at(turn.text).set()
        await here.at(f"end {turn.text}").wait()
        return turn.text

    async with open_harness(tmp_path, answers) as here:
        task = await here.start("first")
        await here.at("first").wait()
        await here.start("second", task_id=task.id)
        here.at("end first").set()
        await here.at("second").wait()
        await here.cancel(task.id)
        assert state(await here.ended(task.id)) == "CANCELED"


async def test_an_agent_may_refuse_messages_while_it_works(tmp_path: Path) -> None:
    async def busy(turn: Turn) -> None:
        await here.at("go").wait()

    async with open_harness(tmp_path, busy, while_working="refuse") as here:
        task = await here.start()
        with pytest.raises(UnsupportedOperation, match="while it works"):
            await here.start("more", task_id=task.id)
        here.at("go").set()
        assert len((await here.ended(task.id)).history) == 1


# Direct agents -----------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("time_to_think")
async def test_a_direct_reply_is_a_message_without_a_task(tmp_path: Path) -> None:
    async def replies(turn: Turn) -> None:
        turn.reply("hi")

    async with open_harness(tmp_path, replies, direct=True) as here:
        answer = await here.answer()
        assert answer.message.parts[0].text == "hi"
        assert (await here.list()).total_size == 0
        assert kinds(await collect(here.stream())) == ["message"]


@pytest.mark.usefixtures("time_to_think")
async def test_a_direct_reply_after_a_step_is_a_message_without_a_task(tmp_path: Path) -> None:
    async def replies(turn: Turn) -> None:
        await turn.step("look up", asyncio.sleep, 0)
        turn.reply("hi")

    async with open_harness(tmp_path, replies, direct=True) as here:
        assert (await here.answer()).message.parts[0].text == "hi"
        assert kinds(await collect(here.stream())) == ["message"]
        assert (await here.list()).total_size == 0


@pytest.mark.usefixtures("time_to_think")
async def test_an_invalid_first_response_of_a_direct_agent_is_an_error(tmp_path: Path) -> None:
    async def returns_object(turn: Turn) -> object:
        return object()

    async with open_harness(tmp_path, returns_object, direct=True) as here:
        with pytest.raises(InvalidAgentResponse, match=r"test_operations\.py line \d+: .* is not content") as raised:
            await here.answer()
        with pytest.raises(InvalidAgentResponse):
            await collect(here.stream())
        tasks = (await here.list()).tasks
        assert [state(task) for task in tasks] == ["FAILED", "FAILED"]
        assert raised.value.metadata["task"] == tasks[-1].id


@pytest.mark.parametrize("direct", [True, False])
async def test_an_invalid_response_after_the_task_was_shown_fails_it(tmp_path: Path, direct: bool) -> None:
    async def returns_object(turn: Turn) -> object:
        turn.status("thinking")
        return object()

    async with open_harness(tmp_path, returns_object, direct=direct) as here:
        task = (await here.answer()).task
        assert state(task) == "FAILED"
        assert status_text(task).startswith("InvalidAgentResponse: ")


async def test_a_reply_after_the_task_was_shown_completes_it(tmp_path: Path) -> None:
    async def replies(turn: Turn) -> None:
        turn.status("thinking")
        await turn.flush()
        turn.reply("hi")

    async with open_harness(tmp_path, replies, direct=True) as here:
        task = (await here.answer()).task
        assert (state(task), status_text(task)) == ("COMPLETED", "hi")


async def test_a_reply_of_another_agent_completes_its_task(tmp_path: Path) -> None:
    async def replies(turn: Turn) -> None:
        turn.reply("hi")

    async with open_harness(tmp_path, replies) as here:
        task = (await here.answer()).task
        assert (state(task), status_text(task)) == ("COMPLETED", "hi")


async def test_a_slow_direct_agent_becomes_visible_as_a_task(tmp_path: Path) -> None:
    async def thinks(turn: Turn) -> str:
        await here.at("go").wait()
        return "done"

    async with open_harness(tmp_path, thinks, direct=True, timings=timings(direct_reply_timeout=0.05)) as here:
        task = await here.start()
        assert state(task) == "WORKING"
        here.at("go").set()
        assert texts(await here.ended(task.id)) == ["done"]


@pytest.mark.parametrize("streaming", [False, True])
async def test_a_task_that_its_process_lost_before_it_was_visible_is_no_answer(tmp_path: Path, streaming: bool) -> None:
    async def replies(turn: Turn) -> None:
        await here.at("go").wait()
        turn.reply("hi")

    async with open_harness(tmp_path, replies, direct=True) as here:
        sending = asyncio.create_task(anext(here.stream()) if streaming else here.answer())
        await eventually(lambda: len(here.runtime.scheduler.runs) == 1)
        (runner,) = here.runtime.scheduler.runs
        record = runner.context.record
        guard = ClaimHeld(record.session, record.token)
        await here.store.append(Append(task=record.ref, guard=guard, discard=True))
        here.at("go").set()
        with pytest.raises(Unavailable, match="lost the task"):
            await sending


# Ends --------------------------------------------------------------------------------------------------------------


async def test_an_exception_fails_the_task_without_its_traceback(tmp_path: Path) -> None:
    async def breaks(turn: Turn) -> None:
        raise ZeroDivisionError("no")

    async with open_harness(tmp_path, breaks) as here:
        task = await here.send()
        assert (state(task), status_text(task)) == ("FAILED", "ZeroDivisionError: no")


async def test_a_waiting_task_is_canceled_in_one_append(tmp_path: Path) -> None:
    async with open_harness(tmp_path, asker) as here:
        task = await here.send()
        assert state(await here.cancel(task.id)) == "CANCELED"
        with pytest.raises(TaskNotCancelable):
            await here.cancel(task.id)
        with pytest.raises(TaskNotFound):
            await here.cancel("no such task")


async def test_a_cancel_reaches_the_agent_and_its_followers(tmp_path: Path) -> None:
    async def sleeps(turn: Turn) -> None:
        turn.status("sleeping")
        try:
            await here.at("never").wait()
        finally:
            here.at("cleaned up").set()

    async with open_harness(tmp_path, sleeps) as here:
        task = await here.start()
        following = here.follow(task.id)
        seen = [await anext(following)]
        assert state(await here.cancel(task.id)) == "CANCELED"
        assert here.at("cleaned up").is_set()
        seen += [event async for event in following]
        assert kinds(seen)[-1] == "CANCELED"


async def test_a_result_before_the_cancel_wins(tmp_path: Path) -> None:
    async def finishes(turn: Turn) -> str:
        try:
            await here.at("never").wait()
        except asyncio.CancelledError:
            return "too late to cancel"
        raise AssertionError

    async with open_harness(tmp_path, finishes) as here:
        task = await here.start()
        with pytest.raises(TaskNotCancelable):
            await here.cancel(task.id)
        assert texts(await here.get(task.id)) == ["too late to cancel"]


async def test_an_agent_that_ignores_a_cancel_is_canceled_when_it_has_stopped(tmp_path: Path) -> None:
    async def stubborn(turn: Turn) -> str:
        while not here.at("go").is_set():
            try:
                await here.at("go").wait()
            except asyncio.CancelledError:
                here.at("asked").set()
        with pytest.raises(LeaseLost):
            turn.chunk("too late")
        return "result of a run that was muted"

    async with open_harness(tmp_path, stubborn, timings=timings(mute_timeout=0.05, cancel_timeout=0.01)) as here:
        task = await here.start()
        assert state(await here.cancel(task.id)) in ("SUBMITTED", "WORKING")
        await here.at("asked").wait()
        (runner,) = here.runtime.scheduler.runs
        await eventually(lambda: runner.stop.state is Stop.MUTED)
        assert state(await here.cancel(task.id)) in ("SUBMITTED", "WORKING")
        here.at("go").set()
        assert state(await here.ended(task.id)) == "CANCELED"
        assert texts(await here.get(task.id)) == []


async def test_an_agent_may_not_let_itself_be_canceled(tmp_path: Path) -> None:
    async def important(turn: Turn) -> str:
        await here.at("go").wait()
        return "done"

    async with open_harness(tmp_path, important, cancelable=False) as here:
        task = await here.start()
        with pytest.raises(TaskNotCancelable, match="does not let"):
            await here.cancel(task.id)
        here.at("go").set()
        assert texts(await here.ended(task.id)) == ["done"]


async def test_messages_are_rejected_while_draining(tmp_path: Path) -> None:
    async with open_harness(tmp_path, echo) as here:
        await here.runtime.scheduler.drain(1)
        with pytest.raises(Unavailable):
            await here.send()
        assert (await here.list()).total_size == 0
