"""One task of an agent under test: how its caller follows it, waits for it and cancels it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from tests.eventually import eventually
from tests.testing.agents import direct, fragile, listener, office, stubborn, threaded

from dragoman import Turn, agent
from dragoman.core.errors import TaskNotCancelable
from dragoman.core.names import Owner
from dragoman.core.task.log import Event, TaskRecord, TaskRef
from dragoman.testing import AgentUnderTest
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


async def test_a_task_that_changes_during_a_refresh_is_read_completely(monkeypatch: pytest.MonkeyPatch) -> None:
    go = asyncio.Event()

    @agent
    async def slow(turn: Turn) -> str:
        turn.status("waiting")
        await go.wait()
        return "done"

    async with AgentUnderTest(slow) as a:
        task_run = await (await a.send("x", wait=False)).until("waiting")
        find, events, over = a.store.find, a.store.events, list[bool]()

        async def find_and_let_it_end(owner: Owner, agent: str, task_id: str) -> TaskRecord | None:
            monkeypatch.setattr(a.store, "find", find)
            found = await find(owner, agent, task_id)
            go.set()
            request = pb.SubscribeToTaskRequest(id=task_id)
            async for _ in a.runtime.operations.read.subscribe_to_task(a.call(), request):
                pass
            monkeypatch.setattr(a.store, "events", read)
            return found

        async def read(ref: TaskRef, after: int, limit: int) -> Sequence[Event]:
            over.append(task_run.ended or not task_run._busy)
            return await events(ref, after, limit)

        monkeypatch.setattr(a.store, "find", find_and_let_it_end)
        await asyncio.gather(task_run.refresh(), task_run.refresh())
        assert (task_run.state, task_run.states[-1]) == ("COMPLETED", "COMPLETED")
        assert over == [False], "it is over for whoever waits before its last event is there"


async def test_messages_reach_a_working_agent() -> None:
    async with AgentUnderTest(listener) as a:
        task_run = await a.send("begin", wait=False)
        await task_run.until("listening")
        await task_run.send("one", wait=False)
        await task_run.until("heard one")
        await task_run.send("enough")
        assert task_run.text == "heard one\nheard enough\n\none enough"
        assert task_run.chunks[:2] == ["heard one\n", "heard enough\n"]
        assert "WORKING" not in task_run.steps[3:]


async def test_a_wait_that_begins_during_a_restart_sees_the_new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    async with AgentUnderTest(stubborn, turn_timeout=10) as a:
        task_run = await (await a.send("go", wait=False)).until("attempt 1")
        dead, open_session, waits = a.runtime, a.store.open_session, list[asyncio.Task[object]]()

        async def open_after_the_wait_began(*args: Any, **options: Any) -> int:
            waits.append(asyncio.create_task(task_run.until("attempt 2")))
            await eventually(lambda: dead.feeds.subscribers == 1)
            return await open_session(*args, **options)

        monkeypatch.setattr(a.store, "open_session", open_after_the_wait_began)
        await a.crash()
        await asyncio.gather(*waits)
        assert task_run.attempt == 2


async def test_a_task_is_canceled_and_its_agent_may_refuse() -> None:
    async def refuses(turn: Turn) -> None:
        turn.refuse_cancel("too late")
        turn.status("ready")
        async for _ in turn.messages():
            break

    async with AgentUnderTest(fragile, threaded, refuses) as a:
        for agent, text, until in (("fragile", "go", "hanging"), ("threaded", "wait", "in a thread")):
            task_run = await a.send(text, agent=agent, wait=False)
            await task_run.until(until)
            await task_run.cancel()
            assert task_run.states == ["SUBMITTED", "WORKING", "CANCELED"]
        task_run = await a.send(agent="refuses", wait=False, text="go")
        await task_run.until("ready")
        with pytest.raises(TaskNotCancelable, match="too late"):
            await task_run.cancel()
        await task_run.send("end")
        assert task_run.state == "COMPLETED"


async def test_a_condition_is_checked_after_each_event() -> None:
    seen: list[int] = []

    def has_two_chunks(run: Any) -> bool:
        seen.append(len(run.chunks))
        return len(run.chunks) == 2

    async with AgentUnderTest(listener) as a:
        task_run = await (await a.send("begin", wait=False)).until("listening")
        await task_run.send("one", wait=False)
        waiting = asyncio.create_task(task_run.until(has_two_chunks))
        await task_run.until("heard one")
        await task_run.send("two", wait=False)
        assert await waiting is task_run
        await task_run.send("enough")
    assert seen == sorted(seen)
    assert seen[-1] == 2


async def test_a_condition_that_the_turn_does_not_reach_lists_the_events() -> None:
    async with AgentUnderTest(office) as a:
        task_run = await a.send("a table")
        with pytest.raises(AssertionError) as caught:
            await task_run.until(lambda run: run.ended)
    assert str(caught.value).splitlines() == [
        f"{task_run!r} has ended its turn and not reached the condition of `until`:",
        "  1. SUBMITTED",
        "  2. WORKING",
        "  3. WORKING: looking at the book",
        "  4. INPUT_REQUIRED: On which day?",
    ]


async def test_the_end_of_the_turn_also_ends_a_wait_for_a_text() -> None:
    async with AgentUnderTest(office) as a:
        task_run = await a.send("a table", wait=False)
        await task_run.wait_or_text("never said")
        assert task_run.state == "INPUT_REQUIRED"
        await task_run.wait_or_text("ON WHICH DAY?", str.upper)


async def test_metadata_of_a_cancel_reaches_the_agent() -> None:
    @agent
    async def asks_why(turn: Turn) -> None:
        turn.status("ready")
        try:
            await asyncio.Event().wait()
        finally:
            found.update(turn.cancel_metadata)

    found: dict[str, Any] = {}
    async with AgentUnderTest(asks_why) as a:
        task_run = await (await a.send("x", wait=False)).until("ready")
        await task_run.cancel({"why": "late"})
    assert (task_run.state, found) == ("CANCELED", {"why": "late"})


@pytest.mark.usefixtures("time_to_think")
async def test_a_reply_has_nothing_to_wait_for() -> None:
    async with AgentUnderTest(direct) as a:
        task_run = await a.send("hello")
        assert await task_run.wait() is task_run
        assert await task_run.until("anything") is task_run


async def test_the_messages_of_both_sides_are_kept_with_their_requests() -> None:
    async with AgentUnderTest(office) as a:
        task_run = await (await a.send("a table", metadata={"m": 1})).answer("Friday")
    assert [(one.number, one.message.parts[0].text) for one in task_run.exchange] == [
        (1, "a table"),
        (2, "looking at the book"),
        (3, "On which day?"),
        (4, "Friday"),
    ]
    assert dict(task_run.exchange[0].request.metadata) == {"m": 1}
