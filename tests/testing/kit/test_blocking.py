"""The test kit without asyncio: `run`, agents on a loop of their own thread, and servers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.testing.agents import counter, fragile, listener, office, stubborn, threaded

from dragoman import Turn, agent, types
from dragoman.client.calls import Client, message
from dragoman.client.sync import LoopThread
from dragoman.core.errors import TaskNotCancelable
from dragoman.testing import AgentUnderTest, run
from dragoman.testing.kit.blocking import BlockingAgent, serving


def test_a_plain_function_runs_an_agent_through_its_turns() -> None:
    assert run(office, "a table", "Friday").text == "Booked: a table, Friday."
    assert run(counter, "2").chunks[1:] == ["chunk 0\n", "chunk 1\n"]
    assert run(threaded, data=[1]).data[0]["data"] == [[1]]
    with pytest.raises(AssertionError, match="accepts no further message: 'Saturday'"):
        run(office, "a table", "Friday", "Saturday")


def test_turns_are_data_files_and_complete_messages_like_texts(tmp_path: Path) -> None:
    @agent
    async def booking(turn: Turn) -> dict[str, object]:
        if turn.question is None:
            turn.ask("For how many?")
        return {"data": turn.data, "files": [file.name for file in turn.files], "text": turn.text}

    (plan := tmp_path / "plan.txt").write_text("two tables")
    assert run(booking, "a table", {"guests": 3}).data == [{"data": [{"guests": 3}], "files": [], "text": ""}]
    assert run(booking, [], plan).data == [{"data": [], "files": ["plan.txt"], "text": ""}]
    whole = types.Message(role="ROLE_USER", parts=[types.text("four"), types.data({"guests": 4})])
    assert run(booking, "a table", whole).data == [{"data": [{"guests": 4}], "files": [], "text": "four"}]


async def test_run_inside_an_event_loop_names_the_alternative() -> None:
    with pytest.raises(RuntimeError, match="async with AgentUnderTest"):
        run(office, "x")
    with pytest.raises(RuntimeError, match="inside `async with`"):
        await AgentUnderTest(office).send("x")


@pytest.fixture
def loop() -> Iterator[LoopThread]:
    loop = LoopThread("dragoman-testing")
    yield loop
    loop.close()


def test_a_run_is_followed_with_blocking_calls(loop: LoopThread) -> None:
    kit = BlockingAgent(loop, AgentUnderTest(office, listener))
    task_run = kit.send("a table")
    assert (task_run.question, task_run.id) == ("On which day?", "00000000-0000-7000-8000-000000000001")
    assert task_run.answer("Friday") is task_run
    assert (task_run.state, task_run.text) == ("COMPLETED", "Booked: a table, Friday.")
    with pytest.raises(AssertionError, match="no question to answer"):
        task_run.answer("Saturday")
    heard = kit.send("begin", agent="listener", wait=False).until("listening").send("one", wait=False)
    assert heard.until("heard one").send("enough").wait().chunks[:2] == ["heard one\n", "heard enough\n"]


def test_a_crash_and_a_cancel_are_seen_by_the_run(loop: LoopThread) -> None:
    kit = BlockingAgent(loop, AgentUnderTest(stubborn, fragile))
    task_run = kit.send("go", wait=False).until("attempt 1").crash()
    assert (task_run.wait().state, task_run.attempt) == ("COMPLETED", 2)
    hanging = kit.send("go", agent="fragile", wait=False).until("hanging")
    assert hanging.cancel({"why": "late"}).state == "CANCELED"
    with pytest.raises(TaskNotCancelable):
        hanging.cancel()
    hanging = kit.send("go", agent="fragile", wait=False).until("hanging")
    kit.crash()
    assert hanging.wait().state == "FAILED"


def test_a_server_is_at_its_addresses(loop: LoopThread, tmp_path: Path) -> None:
    server = loop.open(serving([office], str(tmp_path), public_url="https://desk.example", insecure=True))

    async def send() -> str:
        async with Client(server.grpc) as client:
            return (await client.send(message("a table"))).task.status.message.parts[0].text

    assert asyncio.run(send()) == "On which day?"
    assert (server.url, server.card_url) == (
        "https://desk.example",
        "https://desk.example/.well-known/agent-card.json",
    )
    assert (tmp_path / "tasks.db").exists()
