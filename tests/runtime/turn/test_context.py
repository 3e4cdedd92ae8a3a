"""What an agent gets for its turn, what its calls become, and the state of its conversation."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.runtime.harness import collect, kinds, open_harness, state, status_text, texts
from tests.runtime.remote_agent import DONE, Far, served

from dragoman import Turn, retry
from dragoman.core.task.log import AppendRejected, ArtifactChange
from dragoman.core.task.maintenance import TaskSelection
from dragoman.ports import WorkerLost
from dragoman.runtime.turn.context import NO_MESSAGE, RunContext


async def test_the_first_write_of_a_repeated_turn_replaces_what_the_dead_attempt_wrote(tmp_path: Path) -> None:
    async with served(tmp_path, far := Far(crash_retries=1)) as here:
        task = await here.start()
        for text in ("dead", "one"):
            context, end = await far.turns.get()
            for chunk in (text, "two"):
                context.put(ArtifactChange("a", b"", text=chunk, append=True))
            await context.flush()
            if text == "dead":
                end.set_exception(WorkerLost())
        end.set_result(DONE)
        assert texts(await here.ended(task.id)) == ["onetwo"]


async def test_a_task_that_was_erased_before_its_input_was_read_is_no_fault(tmp_path: Path) -> None:
    async with served(tmp_path, far := Far()) as here:
        task = await here.start()
        context, _ = await far.turns.get()
        await here.runtime.maintenance.purge(TaskSelection(task=task.id))
        assert isinstance(context, RunContext)
        context.message = NO_MESSAGE
        with pytest.raises(AppendRejected, match="absent"):
            await context.load_input()


async def test_a_message_that_arrives_before_the_agent_asks_for_messages_is_not_lost(tmp_path: Path) -> None:
    async def listens(turn: Turn) -> str:
        here.at("begun").set()
        await here.at("sent").wait()
        async for message in turn.messages():
            return message.text
        return "none"

    async with asyncio.timeout(60), open_harness(tmp_path, listens) as here:
        task = await here.start("first")
        await here.at("begun").wait()
        await here.start("second", task_id=task.id)
        here.at("sent").set()
        assert texts(await here.ended(task.id)) == ["second"]


async def test_a_turn_knows_what_the_message_carries(tmp_path: Path) -> None:
    seen: list[object] = []

    async def looks(turn: Turn) -> str:
        seen.append((turn.text, len(turn.history), turn.attempt, turn.canceled, turn.cancel_reason))
        return turn.ask("more?") if not turn.history else "done"

    async with open_harness(tmp_path, looks, on_crash=retry(1)) as here:
        task = await here.send("first")
        assert kinds(await collect(here.stream("second", task_id=task.id)))[-1] == "COMPLETED"
    assert [entry[:2] for entry in seen] == [("first", 0), ("second", 2)]  # type: ignore[index]


async def test_the_state_of_a_conversation_passes_from_task_to_task(tmp_path: Path) -> None:
    async def counts(turn: Turn) -> str:
        turn.context.state["n"] = turn.context.state.get("n", 0) + 1
        return str(turn.context.state["n"])

    async with open_harness(tmp_path, counts) as here:
        first = await here.send()
        assert [texts(await here.send(context_id=first.context_id)) for _ in range(2)] == [["2"], ["3"]]
        assert texts(await here.send()) == ["1"], "another conversation"


async def test_a_task_does_not_overwrite_another_task_s_conversation_state(tmp_path: Path) -> None:
    async def races(turn: Turn) -> str:
        turn.context.state["who"] = turn.text
        if turn.text == "slow":
            turn.status("waiting")  # which does not write: nothing has changed yet
            turn.context.state["more"] = 1
            here.at("read").set()
            await here.at("go").wait()
        return "done"

    async with open_harness(tmp_path, races) as here:
        first = await here.send("first")
        slow = await here.start("slow", context_id=first.context_id)
        await here.at("read").wait()
        fast = await here.send("fast", context_id=first.context_id)
        here.at("go").set()
        ended = await here.ended(slow.id)
    assert {state(fast), state(ended)} == {"COMPLETED", "FAILED"}


@pytest.mark.parametrize("heeded", [True, False])
async def test_a_stale_conversation_state_fails_the_task_that_writes_it(tmp_path: Path, heeded: bool) -> None:
    async def races(turn: Turn) -> str:
        if turn.text == "slow":
            here.at("read").set()
            await here.at("go").wait()
        turn.context.state["who"] = turn.text
        turn.status("written before the end")
        if heeded:
            await turn.flush()
        return "done"

    async with open_harness(tmp_path, races) as here:
        first = await here.send("first")
        slow = await here.start("slow", context_id=first.context_id)
        await here.at("read").wait()
        fast = await here.send("fast", context_id=first.context_id)
        here.at("go").set()
        await here.idle()
        ended = await here.get(slow.id)
    assert (state(fast), state(ended)) == ("COMPLETED", "FAILED")
    assert "changed the conversation's state" in status_text(ended)
