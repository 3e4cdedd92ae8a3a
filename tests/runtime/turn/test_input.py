"""State of a conversation, as turns read and write it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.runtime.harness import open_harness, state, status_text, texts

from dragoman import Turn


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
