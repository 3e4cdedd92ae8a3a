"""The test kit: agents in memory, seen by plain asserts."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.testing.agents import broken, counter, desk, direct, filer, fragile, listener, stubborn, threaded

from dragoman import Turn, agent, types
from dragoman.core.errors import TaskEnded, TaskNotCancelable, TaskNotFound
from dragoman.core.limits.quotas import Usage
from dragoman.core.names import Owner
from dragoman.core.task.log import Event, TaskRecord, TaskRef
from dragoman.testing import AgentUnderTest, Clock, run
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


async def test_a_conversation_is_seen_turn_for_turn() -> None:
    async with AgentUnderTest(desk) as a:
        told = await a.send("a table")
        assert told.question == told.text == "On which day?"
        assert told.states == ["SUBMITTED", "WORKING", "INPUT_REQUIRED"]
        assert told.reports == ["looking at the book"]
        await told.answer("Friday")
        assert (told.state, told.text, told.question) == ("COMPLETED", "Booked: a table, Friday.", "")
        assert told.steps == [
            "SUBMITTED",
            "WORKING",
            "WORKING: looking at the book",
            "INPUT_REQUIRED: On which day?",
            "WORKING",
            f"{told.artifacts[0].id}: Booked: a table, Friday.",
            "COMPLETED",
        ]
        assert repr(told) == "<task of desk: COMPLETED: 'Booked: a table, Friday.'>"
        with pytest.raises(AssertionError, match=r"COMPLETED.*asks nothing"):
            await told.answer("Saturday")
        with pytest.raises(TaskEnded):
            await told.send("Saturday")


async def test_each_run_of_a_test_sees_the_same_ids_and_times() -> None:
    seen = []
    for _ in range(2):
        async with AgentUnderTest(desk, clock=Clock(1_600_000_000_000)) as a:
            told = await a.send("a table")
            seen.append(told.task)
            assert told.id == "00000000-0000-7000-8000-000000000001"
            assert told.context_id == "context-1"
            assert told.task.status.timestamp.seconds == 1_600_000_000
    assert seen[0] == seen[1]


async def test_a_task_that_goes_on_while_it_is_looked_at_is_seen_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    go = asyncio.Event()

    @agent
    async def slow(turn: Turn) -> str:
        turn.status("waiting")
        await go.wait()
        return "done"

    async with AgentUnderTest(slow) as a:
        told = await (await a.send("x", wait=False)).until("waiting")
        find, events, over = a.store.find, a.store.events, list[bool]()

        async def find_and_let_it_end(owner: Owner, agent: str, task_id: str) -> TaskRecord | None:
            monkeypatch.setattr(a.store, "find", find)
            found = await find(owner, agent, task_id)
            go.set()
            asked = pb.SubscribeToTaskRequest(id=task_id)
            async for _ in a.runtime.service.subscribe_to_task(a.call(), asked):
                pass
            monkeypatch.setattr(a.store, "events", read)
            return found

        async def read(ref: TaskRef, after: int, limit: int) -> Sequence[Event]:
            over.append(told.ended or not told._busy)
            return await events(ref, after, limit)

        monkeypatch.setattr(a.store, "find", find_and_let_it_end)
        await asyncio.gather(told.refresh(), told.refresh())
        assert (told.state, told.states[-1]) == ("COMPLETED", "COMPLETED")
        assert over == [False], "it is over for whoever waits before its last event is there"


async def test_messages_reach_an_agent_in_the_midst_of_its_work() -> None:
    async with AgentUnderTest(listener) as a:
        told = await a.send("begin", wait=False)
        await told.until("listening")
        await told.send("one", wait=False)
        await told.until("heard one")
        await told.send("enough")
        assert told.text == "heard one\nheard enough\n\none enough"
        assert told.chunks[:2] == ["heard one\n", "heard enough\n"]
        assert "WORKING" not in told.steps[3:]


async def test_a_turn_that_crashed_is_begun_again_or_ends_as_its_author_said() -> None:
    async with AgentUnderTest(stubborn, fragile, threaded) as a:
        again = await a.send("go", wait=False)
        over = await a.send("go", agent="fragile", wait=False)
        thread = await a.send("wait", agent="threaded", wait=False)
        await again.until("attempt 1")
        await over.until("hanging")
        await thread.until("in a thread")
        waiting = asyncio.create_task(again.until("attempt 2"))
        await a.crash()
        assert (await waiting) is again
        await again.wait()
        assert (again.state, again.attempt, again.text) == ("COMPLETED", 2, "attempt 2")
        assert "WORKING (attempt 2)" in again.steps
        for one in (over, thread):
            assert one.state == "FAILED"
            assert one.status_text.startswith("INTERRUPTED")
            assert one.error is None


async def test_a_task_is_canceled_and_its_agent_may_refuse() -> None:
    async def refuses(turn: Turn) -> None:
        turn.refuse_cancel("too late")
        turn.status("ready")
        async for _ in turn.messages():
            break

    async with AgentUnderTest(fragile, threaded, refuses) as a:
        for agent, text, until in (("fragile", "go", "hanging"), ("threaded", "wait", "in a thread")):
            told = await a.send(text, agent=agent, wait=False)
            await told.until(until)
            await told.cancel()
            assert told.states == ["SUBMITTED", "WORKING", "CANCELED"]
        told = await a.send(agent="refuses", wait=False, text="go")
        await told.until("ready")
        with pytest.raises(TaskNotCancelable, match="too late"):
            await told.cancel()
        await told.send("end")
        assert told.state == "COMPLETED"


async def test_what_fails_shows_the_author_s_file_and_line() -> None:
    async with AgentUnderTest(broken, fragile, desk, turn_timeout=0.5) as a:
        told = await a.send("x")
        line = broken.__wrapped__.__code__.co_firstlineno + 3
        assert told.failure == f"{Path(__file__).parent / 'agents.py'}, line {line}: ValueError: no such table"
        assert isinstance(told.error, ValueError)
        assert repr(told) == f"<task of broken: FAILED: {told.failure}>"
        with pytest.raises(AssertionError, match=r"has not ended its turn within 0.5 s; agents.py is at line \d+"):
            await a.send("x", agent="fragile")
        with pytest.raises(AssertionError, match="has ended its turn, and has not come to 'COMPLETED'"):
            await (await a.send("a table", agent="desk")).until("COMPLETED")


async def test_a_message_may_carry_everything_that_the_protocol_knows(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,b\n")
    async with AgentUnderTest(threaded, filer) as a:
        told = await a.send(
            "look", files=[tmp_path / "a.csv"], data={"n": 1}, metadata={"m": 2}, accepts=["text/plain"]
        )
        assert told.data == [{"files": ["a.csv"], "data": [{"n": 1}], "accepts": ["text/plain"], "m": 2}]
        told = await a.send("look", files={"b.txt": b"b", "c.bin": b"c"}, parts=[types.data([1])])
        assert told.data[0]["files"] == ["b.txt", "c.bin"]
        assert told.data[0]["data"] == [[1]]
        told = await a.send("x", agent="filer")
        assert [file.name for file in told.files] == ["table.csv", "dot.png", "x"]
        assert told.artifact(told.artifacts[0].id).text == "two\nlines"
        with pytest.raises(AssertionError, match='gave no artifact "report"; there are: "id-'):
            told.artifact("report")


async def test_callers_are_told_apart_and_may_be_refused() -> None:
    async with AgentUnderTest(desk, principal="alice") as a:
        told = await a.send("a table")
        head = await a.store.locate(told.id)
        assert head[0].principal == "alice"
        with pytest.raises(TaskNotFound):
            await a.send("x", task="nobody's")


async def test_what_a_task_used_is_seen() -> None:
    async def spends(turn: Turn) -> str:
        turn.usage(tokens=3, cost=0.5)
        return turn.text

    async with AgentUnderTest(spends) as a:
        assert (await a.send("x")).usage == Usage(3, 500_000_000)


@pytest.mark.usefixtures("time_to_think")
async def test_a_direct_answer_is_a_reply() -> None:
    async with AgentUnderTest(direct) as a:
        told = await a.send("hello")
        assert (told.state, told.states, told.text, told.ended) == ("", [], "you said hello", True)
        assert repr(told) == "<reply of direct: 'you said hello'>"


def test_a_plain_function_runs_an_agent_through_its_turns() -> None:
    assert run(desk, "a table", "Friday").text == "Booked: a table, Friday."
    assert run(counter, "2").chunks[1:] == ["chunk 0\n", "chunk 1\n"]
    assert run(threaded, data=[1]).data[0]["data"] == [[1]]
    with pytest.raises(AssertionError, match="has ended, and takes no 'Saturday'"):
        run(desk, "a table", "Friday", "Saturday")


async def test_a_plain_run_in_an_async_test_says_what_to_do_instead() -> None:
    with pytest.raises(RuntimeError, match="async with AgentUnderTest"):
        run(desk, "x")
    with pytest.raises(RuntimeError, match="inside `async with`"):
        await AgentUnderTest(desk).send("x")


async def test_nothing_is_left_behind() -> None:
    async with AgentUnderTest(desk) as a:
        await a.send("a table")
        folder = Path(a._folder.name)  # type: ignore[union-attr]
        assert (folder / "tasks.db").exists()
    assert not folder.exists()
