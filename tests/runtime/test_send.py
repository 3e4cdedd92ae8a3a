"""SendMessage on a store that becomes unavailable after the write."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.runtime.harness import by_event, collect, kinds, open_harness, request, state, texts
from tests.runtime.unavailable_store import UnavailableStore

from dragoman import Turn
from dragoman.core.errors import Unavailable
from dragoman.core.task.log import IDEMPOTENCY_KEY_TTL_MS
from dragoman.runtime import Call
from dragoman.stores.sqlite.store import open_store
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


async def asks(turn: Turn) -> str:
    if len(turn.history) == 0:
        turn.ask("and?")
    return f"{turn.text} of {len(turn.references)} after {len(turn.history)}"


# Sends whose task cannot be read ------------------------------------------------------------------------------------


@pytest.mark.parametrize("history", [None, 0, 1])
async def test_a_send_is_answered_with_the_created_task_if_it_cannot_be_read(
    tmp_path: Path, history: int | None
) -> None:
    """Sends that return immediately, at the end of their wait, and as the first event of a stream."""

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
        operations, call = here.runtime.operations, here.call
        store.unavailable.add("read")
        at_once = send_request("at once")
        at_once.configuration.return_immediately = True
        answers = [
            pb.SendMessageResponse.FromString(await operations.send.send_message(call, at_once)),
            pb.SendMessageResponse.FromString(
                await operations.send.send_message(Call(call.caller, 0), send_request("waits"))
            ),
        ]
        stream = by_event(operations.send.send_streaming_message(call, send_request("streams")))
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


# Sends of clients that name their tasks (0.1) -----------------------------------------------------------------------


async def test_the_same_content_restarts_an_ended_task_once_the_lifetime_of_a_key_is_over(tmp_path: Path) -> None:
    """Seven days: within them it is the send of a client that lost the answer, which must not pay twice."""
    now, runs = 1_700_000_000_000, 0

    async def counts(_: Turn) -> str:
        nonlocal runs
        runs += 1
        return f"run {runs}"

    store = open_store(tmp_path / "tasks.db", clock=lambda: now)
    async with open_harness(tmp_path, counts, store=store) as here:
        call = replace(here.call, dialect="0.1", names_tasks=True)

        async def send() -> tuple[str, list[str]]:
            answer = await here.runtime.operations.send.send_message(call, request("pay", task_id="t1"))
            task = pb.SendMessageResponse.FromString(answer).task
            return task.id, texts(task)

        ended = now
        assert await send() == ("t1", ["run 1"])
        now = ended + IDEMPOTENCY_KEY_TTL_MS
        assert await send() == ("t1", ["run 1"])
        now = ended + IDEMPOTENCY_KEY_TTL_MS + 1000  # a task may have ended some milliseconds after it began
        assert await send() == ("t1", ["run 2"])
        assert len((await here.list()).tasks) == 2
    assert IDEMPOTENCY_KEY_TTL_MS == 7 * 86_400_000
