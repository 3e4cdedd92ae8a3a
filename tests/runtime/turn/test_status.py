"""Strict transitions of a turn."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.runtime.harness import collect, kinds, open_harness, state, status_text, texts

from dragoman import Turn


async def echo(turn: Turn) -> str:
    return turn.text


async def test_strict_transitions_put_working_before_the_result(tmp_path: Path) -> None:
    async with open_harness(tmp_path, echo, strict=True) as here:
        assert kinds(await collect(here.stream())) == ["task SUBMITTED", "WORKING", "hello", "COMPLETED"]


@pytest.mark.parametrize("end", ["COMPLETED", "INPUT_REQUIRED", "REJECTED"])
async def test_strict_transitions_accept_an_end_after_working_written_by_the_server(tmp_path: Path, end: str) -> None:
    """A silent agent is shown as WORKING by the server, which permits every end."""

    async def thinks(turn: Turn) -> str:
        await here.at("go").wait()
        if end == "INPUT_REQUIRED":
            turn.ask("which?")
        if end == "REJECTED":
            turn.reject("not this")
        return turn.text

    async with open_harness(tmp_path, thinks, strict=True) as here:
        following = here.follow((await here.start()).id)
        async for event in following:
            if kinds([event])[0].endswith("WORKING"):
                break
        here.at("go").set()
        assert kinds([await anext(following) for _ in range(2 if end == "COMPLETED" else 1)])[-1] == end


async def test_strict_transitions_fail_an_agent_that_violates_them(tmp_path: Path) -> None:
    async def repeats(turn: Turn) -> str:
        turn.status("one")
        turn.status("two")
        return "never"

    async def rejects_late(turn: Turn) -> None:
        turn.status("working")
        turn.reject("no")

    async with open_harness(tmp_path, repeats, strict=True) as here:
        task = await here.send()
        assert (state(task), texts(task)) == ("FAILED", [])
        assert "TASK_STATE_WORKING may not be followed by TASK_STATE_WORKING" in status_text(task)
    (tmp_path / "other").mkdir()
    async with open_harness(tmp_path / "other", rejects_late, strict=True) as here:
        assert "TASK_STATE_REJECTED" in status_text(await here.send())
