"""Generations for callers of the draft of A2A 1.1: in answers, as a long poll, and as the guard of a message."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet
from tests.runtime.harness import Harness, kinds, open_harness, request, state

from dragoman import Turn
from dragoman.core.errors import RateLimited, TaskEnded, TaskGenerationMismatch, TaskNotFound, UnsupportedOperation
from dragoman.core.limits.quotas import Quotas
from dragoman.core.names import task_key_of
from dragoman.core.task.generations import GenerationTerms
from dragoman.core.task.log import TaskRef
from dragoman.runtime import Call
from dragoman.runtime.access import Limits
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


def generation(task: Message) -> int:
    """The generation in a Task, 0 for none."""
    unknown = UnknownFieldSet(task)
    return sum(unknown[index].data for index in range(len(unknown)) if unknown[index].field_number == 7)


def draft(here: Harness, current: int | None = None, if_match: int | None = None) -> Call:
    """A call of a caller of the draft."""
    return replace(here.call, generations=GenerationTerms(current, if_match))


async def get(here: Harness, task_id: str, current: int | None = None, history: int | None = None) -> pb.Task:
    get_request = pb.GetTaskRequest(id=task_id, history_length=history)
    return pb.Task.FromString(await here.runtime.operations.read.get_task(draft(here, current), get_request))


async def send(here: Harness, text: str, if_match: int | None = None, **message: str) -> pb.Task:
    """A blocking send."""
    response = await here.runtime.operations.send.send_message(draft(here, None, if_match), request(text, **message))
    return pb.SendMessageResponse.FromString(response).task


async def last_sequence(here: Harness, task_id: str) -> int:
    key = task_key_of(task_id)
    assert key is not None
    ref = TaskRef(here.call.caller.owner, key)
    return (await here.store.last_sequences([ref]))[key]


async def ask(turn: Turn) -> str:
    """Asks once more until the text is `done`."""
    while turn.text != "done":
        turn = await turn.ask("what next?")
    return turn.text


async def waiter_of(here: Harness, reading: asyncio.Task[pb.Task]) -> None:
    """Returns when the only reader waits for an event."""
    while not any(feed.waiting for feed in here.runtime.feeds.by_task.values()):
        assert not reading.done()
        await asyncio.sleep(0)


async def two_chunks(turn: Turn) -> AsyncIterator[str]:
    yield "one"
    yield "two"


async def test_every_answer_has_the_sequence_of_the_tasks_last_event(tmp_path: Path) -> None:
    async with open_harness(tmp_path, two_chunks) as here:
        task = await send(here, "hello")
        expected = await last_sequence(here, task.id)
        assert expected > 3
        page = await here.runtime.operations.read.list_tasks(draft(here), pb.ListTasksRequest())
        listed = pb.ListTasksResponse.FromString(page).tasks
        answers = [task, await get(here, task.id), await get(here, task.id, history=0), *listed]
        assert [generation(answer) for answer in answers] == [expected] * 4


async def test_answers_to_other_callers_have_none(tmp_path: Path) -> None:
    async with open_harness(tmp_path, ask) as here:
        task = await here.send()
        tasks = [task, await here.get(task.id), *(await here.list()).tasks, await here.cancel(task.id)]
        assert [generation(answer) for answer in tasks] == [0] * 4


async def test_a_send_that_does_not_wait_and_a_cancel_have_it_too(tmp_path: Path) -> None:
    async with open_harness(tmp_path, ask) as here:
        at_once = request()
        at_once.configuration.return_immediately = True
        response = await here.runtime.operations.send.send_message(draft(here), at_once)
        task = pb.SendMessageResponse.FromString(response).task
        assert generation(task) >= 1
        await here.idle()
        canceled = await here.runtime.operations.cancel.cancel_task(draft(here), pb.CancelTaskRequest(id=task.id))
        assert generation(pb.Task.FromString(canceled)) == await last_sequence(here, task.id)


async def test_a_long_poll_answers_at_once_when_the_task_is_past_the_generation(tmp_path: Path) -> None:
    async with open_harness(tmp_path, ask) as here:
        task = await send(here, "hello")
        for passed in (-1, 0, generation(task) - 1):
            assert generation(await get(here, task.id, passed)) == generation(task)
        assert here.runtime.feeds.subscribers == 0


async def test_a_long_poll_waits_for_the_next_event(tmp_path: Path) -> None:
    async with open_harness(tmp_path, ask) as here, asyncio.timeout(60):
        task = await send(here, "hello")
        reading = asyncio.create_task(get(here, task.id, generation(task)))
        await waiter_of(here, reading)
        await send(here, "more", task_id=task.id)
        assert generation(await reading) > generation(task)


async def test_a_long_poll_for_a_later_generation_waits_until_it_is_passed(tmp_path: Path) -> None:
    async with open_harness(tmp_path, ask) as here, asyncio.timeout(60):
        task = await send(here, "hello")
        later = generation(task) + 3
        reading = asyncio.create_task(get(here, task.id, later))
        while not reading.done():
            await send(here, "more", task_id=task.id)
        assert generation(await reading) > later


async def test_a_long_poll_of_a_task_that_ends_or_has_ended_does_not_wait_for_more(tmp_path: Path) -> None:
    async with open_harness(tmp_path, ask) as here, asyncio.timeout(60):
        task = await send(here, "hello")
        reading = asyncio.create_task(get(here, task.id, 1_000_000))
        await waiter_of(here, reading)
        await here.cancel(task.id)
        assert state(await reading) == "CANCELED"
        assert state(await get(here, task.id, 1_000_000)) == "CANCELED"


@pytest.mark.parametrize(("limit", "seconds"), [(0.0, None), (300.0, 0.0)])
async def test_a_long_poll_ends_at_the_wait_limit_and_at_the_callers_deadline(
    tmp_path: Path, limit: float, seconds: float | None
) -> None:
    async with open_harness(tmp_path, ask, limits=Limits(blocking_wait=limit)) as here, asyncio.timeout(60):
        task = await here.start()
        await here.idle()
        call = replace(draft(here, 1_000_000), timeout=seconds)
        answer = await here.runtime.operations.read.get_task(call, pb.GetTaskRequest(id=task.id))
        assert generation(pb.Task.FromString(answer)) == await last_sequence(here, task.id)


async def test_a_long_poll_ends_when_the_server_stops(tmp_path: Path) -> None:
    async with open_harness(tmp_path, ask) as here, asyncio.timeout(60):
        task = await send(here, "hello")
        reading = asyncio.create_task(get(here, task.id, generation(task)))
        await waiter_of(here, reading)
        here.runtime.feeds.release_waits()
        assert generation(await reading) == generation(task)


async def test_a_long_poll_of_an_erased_task_ends_as_not_found(tmp_path: Path) -> None:
    async with open_harness(tmp_path, ask) as here, asyncio.timeout(60):
        task = await send(here, "hello")
        reading = asyncio.create_task(get(here, task.id, generation(task)))
        await waiter_of(here, reading)
        (ref,) = here.runtime.feeds.by_task
        here.runtime.feeds.mark_deleted(ref)
        with pytest.raises(TaskNotFound):
            await reading


async def test_a_long_poll_is_an_open_stream_of_its_caller(tmp_path: Path) -> None:
    quotas = Quotas({"open_streams": 1})
    async with open_harness(tmp_path, ask, quotas=quotas) as here, asyncio.timeout(60):
        task = await send(here, "hello")
        reading = asyncio.create_task(get(here, task.id, generation(task)))
        await waiter_of(here, reading)
        with pytest.raises(RateLimited):
            await get(here, task.id, generation(task))
        assert generation(await get(here, task.id)) == generation(task)
        reading.cancel()
        with suppress(asyncio.CancelledError):
            await reading
        assert here.runtime.operations.admission.open_streams == {}


async def test_a_message_for_another_generation_changes_nothing(tmp_path: Path) -> None:
    async with open_harness(tmp_path, ask) as here:
        task = await send(here, "hello")
        now = generation(task)
        for other in (now - 1, now + 1, 0, -5):
            with pytest.raises(TaskGenerationMismatch) as caught:
                await send(here, "late", other, task_id=task.id)
            assert caught.value.metadata == {
                "taskId": task.id,
                "expectedGeneration": str(other),
                "currentGeneration": str(now),
            }
        assert await get(here, task.id) == task
        assert generation(await send(here, "more", now, task_id=task.id)) > now


async def test_of_two_messages_for_one_generation_one_is_stored(tmp_path: Path) -> None:
    async with open_harness(tmp_path, ask) as here:
        task = await send(here, "hello")
        sends = (send(here, text, generation(task), task_id=task.id) for text in ("a", "b", "c"))
        results = await asyncio.gather(*sends, return_exceptions=True)
        assert sorted(type(result).__name__ for result in results) == ["Task", *["TaskGenerationMismatch"] * 2]
        assert [part.text for message in (await get(here, task.id)).history for part in message.parts] == [
            "hello",
            "what next?",
            *[text for text, result in zip("abc", results, strict=True) if isinstance(result, pb.Task)],
        ]


async def test_a_stream_is_rejected_before_its_first_event(tmp_path: Path) -> None:
    async with open_harness(tmp_path, ask) as here:
        task = await send(here, "hello")
        stream = here.runtime.operations.send.send_streaming_message
        with pytest.raises(TaskGenerationMismatch):
            await anext(stream(draft(here, None, 1), request("late", task_id=task.id)))
        events = [
            event
            async for batch in stream(draft(here, None, generation(task)), request("done", task_id=task.id))
            for event in batch
        ]
        assert kinds(events)[-1] == "COMPLETED"


async def test_the_generation_of_a_message_without_a_task_is_ignored(tmp_path: Path) -> None:
    async with open_harness(tmp_path, ask) as here:
        assert state(await send(here, "hello", 77)) == "INPUT_REQUIRED"


async def test_a_mismatch_goes_before_the_end_of_the_task(tmp_path: Path) -> None:
    async with open_harness(tmp_path, ask) as here:
        task = await send(here, "done")
        with pytest.raises(TaskGenerationMismatch):
            await send(here, "late", 1, task_id=task.id)
        with pytest.raises(TaskEnded):
            await send(here, "late", generation(task), task_id=task.id)


async def test_a_mismatch_goes_before_a_refusal_while_working(tmp_path: Path) -> None:
    async def works(turn: Turn) -> None:
        turn.chunk("begun")
        await turn.flush()
        here.at("working").set()
        await here.at("go").wait()

    async with open_harness(tmp_path, works, while_working="refuse") as here, asyncio.timeout(60):
        task = await here.start()
        await here.at("working").wait()
        with pytest.raises(TaskGenerationMismatch):
            await send(here, "late", 1, task_id=task.id)
        with pytest.raises(UnsupportedOperation):
            await send(here, "late", await last_sequence(here, task.id), task_id=task.id)
        here.at("go").set()


async def test_a_repeated_send_gets_the_first_ones_result_although_the_generation_has_passed(tmp_path: Path) -> None:
    async with open_harness(tmp_path, ask) as here:
        task = await send(here, "hello")
        call = replace(draft(here, None, generation(task)), idempotency_key="once")
        results = [
            pb.SendMessageResponse.FromString(
                await here.runtime.operations.send.send_message(call, request("more", task_id=task.id))
            ).task
            for _ in range(2)
        ]
        assert results[0] == results[1]
        assert [message.parts[0].text for message in results[1].history] == ["hello", "what next?", "more"]
