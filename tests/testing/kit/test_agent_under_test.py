"""The test kit: in-process agents, observed by plain asserts, and tasks that are followed, awaited and canceled."""

from __future__ import annotations

import asyncio
import logging
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.eventually import eventually
from tests.testing.agents import broken, direct, filer, fragile, listener, office, stubborn, threaded

from dragoman import Retry, Turn, agent, types
from dragoman.core.errors import TaskEnded, TaskNotCancelable, TaskNotFound
from dragoman.core.limits.quotas import Usage
from dragoman.core.names import Owner
from dragoman.core.task.log import Event, TaskRecord, TaskRef
from dragoman.testing import AgentUnderTest, Clock
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


async def test_a_conversation_is_observed_turn_by_turn() -> None:
    async with AgentUnderTest(office) as a:
        task_run = await a.send("a table")
        assert task_run.question == task_run.text == "On which day?"
        assert task_run.states == ["SUBMITTED", "WORKING", "INPUT_REQUIRED"]
        assert task_run.reports == ["looking at the book"]
        await task_run.answer("Friday")
        assert (task_run.state, task_run.text, task_run.question) == ("COMPLETED", "Booked: a table, Friday.", "")
        assert task_run.steps == [
            "SUBMITTED",
            "WORKING",
            "WORKING: looking at the book",
            "INPUT_REQUIRED: On which day?",
            "WORKING",
            f"{task_run.artifacts[0].id}: Booked: a table, Friday.",
            "COMPLETED",
        ]
        assert repr(task_run) == "<task of office: COMPLETED: 'Booked: a table, Friday.'>"
        with pytest.raises(AssertionError, match=r"COMPLETED.*no question to answer"):
            await task_run.answer("Saturday")
        with pytest.raises(TaskEnded):
            await task_run.send("Saturday")


async def test_a_message_can_name_a_skill() -> None:
    async def skilled(turn: Turn) -> str:
        return turn.skill

    async with AgentUnderTest(skilled) as a:
        assert (await a.send("x", skill="buy")).text == "buy"
        assert (await a.send("x")).text == ""
        assert (await a.send(message=types.message("x"), skill="buy")).text == "buy"


async def test_ids_and_times_are_deterministic() -> None:
    seen = []
    for _ in range(2):
        async with AgentUnderTest(office, clock=Clock(1_600_000_000_000)) as a:
            task_run = await a.send("a table")
            seen.append(task_run.task)
            assert task_run.id == "00000000-0000-7000-8000-000000000001"
            assert task_run.context_id == "context-1"
            assert task_run.task.status.timestamp.seconds == 1_600_000_000
    assert seen[0] == seen[1]


async def test_a_crashed_turn_restarts_or_ends_as_declared() -> None:
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


async def test_failures_name_the_agents_file_and_line() -> None:
    async with AgentUnderTest(broken, fragile, office, turn_timeout=0.5) as a:
        task_run = await a.send("x")
        line = broken.__wrapped__.__code__.co_firstlineno + 3
        assert task_run.failure == f"{Path(__file__).parents[1] / 'agents.py'}, line {line}: ValueError: no such table"
        assert isinstance(task_run.error, ValueError)
        assert repr(task_run) == f"<task of broken: FAILED: {task_run.failure}>"
        with pytest.raises(AssertionError, match=r"has not ended its turn within 0.5 s; agents.py is at line \d+"):
            await a.send("x", agent="fragile")
        with pytest.raises(AssertionError, match="has ended its turn and not reached 'COMPLETED'"):
            await (await a.send("a table", agent="office")).until("COMPLETED")


async def test_a_step_that_is_never_awaited_is_a_warning_at_its_line() -> None:
    async def forgets(turn: Turn) -> str:
        turn.step("charge", lambda: 1)
        return "ok"

    with pytest.warns(RuntimeWarning, match='agent forgets called the step "charge" without await') as warned:
        async with AgentUnderTest(forgets) as a:
            assert (await a.send("x")).text == "ok"
    [warning] = [one for one in warned if one.category is RuntimeWarning]
    assert (warning.filename, warning.lineno) == (__file__, forgets.__code__.co_firstlineno + 1)


async def test_a_message_can_have_every_field_of_the_protocol(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,b\n")
    async with AgentUnderTest(threaded, filer) as a:
        task_run = await a.send(
            "look", files=[tmp_path / "a.csv"], data={"n": 1}, metadata={"m": 2}, accepts=["text/plain"]
        )
        assert task_run.data == [{"files": ["a.csv"], "data": [{"n": 1}], "accepts": ["text/plain"], "m": 2}]
        task_run = await a.send("look", files={"b.txt": b"b", "c.bin": b"c"}, parts=[types.data([1])])
        assert task_run.data[0]["files"] == ["b.txt", "c.bin"]
        assert task_run.data[0]["data"] == [[1]]
        task_run = await a.send("x", agent="filer")
        assert [file.name for file in task_run.files] == ["table.csv", "dot.png", "x"]
        assert task_run.artifact(task_run.artifacts[0].id).text == "two\nlines"
        with pytest.raises(AssertionError, match='has no artifact "report"; its artifacts: "id-'):
            task_run.artifact("report")


async def test_callers_are_distinguished_and_can_be_rejected() -> None:
    async with AgentUnderTest(office, principal="alice") as a:
        task_run = await a.send("a table")
        head = await a.store.locate(task_run.id)
        assert head[0].principal == "alice"
        with pytest.raises(TaskNotFound):
            await a.send("x", task="nobody's")


async def test_usage_of_a_task_is_reported() -> None:
    async def spends(turn: Turn) -> str:
        turn.usage(tokens=3, cost=0.5)
        return turn.text

    async with AgentUnderTest(spends) as a:
        assert (await a.send("x")).usage == Usage(3, 500_000_000)


@pytest.mark.usefixtures("time_to_think")
async def test_a_direct_message_is_a_reply() -> None:
    async with AgentUnderTest(direct) as a:
        task_run = await a.send("hello")
        assert (task_run.state, task_run.states, task_run.text, task_run.ended) == ("", [], "you said hello", True)
        assert repr(task_run) == "<reply of direct: 'you said hello'>"


async def test_no_files_or_handlers_remain(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    async with AgentUnderTest(office) as a:
        await a.send("a table")
        assert list(tmp_path.glob("*/tasks.db"))
        assert logging.getLogger("dragoman.agents").handlers
    assert not list(tmp_path.iterdir())
    assert not logging.getLogger("dragoman.agents").handlers


async def test_pauses_end_at_once_and_steps_before_them_do_not_run_again() -> None:
    ran: list[str] = []

    @agent(retry=Retry(attempts=2, backoff=3600))
    async def patient(turn: Turn) -> str:
        await turn.step("first", lambda: ran.append("first"))
        await turn.sleep(hours=3)
        ran.append("woken")
        await turn.sleep(days=2)
        if turn.attempt == 1:
            raise ConnectionError("away")
        return f"in attempt {turn.attempt}"

    async with AgentUnderTest(patient, turn_timeout=20) as a:
        run = await a.send("go")
        assert (run.state, run.text) == ("COMPLETED", "in attempt 2")
        assert ran == ["first", "woken", "woken", "woken"]


# One task -----------------------------------------------------------------------------------------------------------


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
