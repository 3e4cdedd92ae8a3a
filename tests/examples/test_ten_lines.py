"""The ten lines of the README."""

from __future__ import annotations

from tests.agents.turn_context import run_turn, state_of

from dragoman.agents.functions.declaration import agents_in
from examples import ten_lines


async def test_echo_returns_and_counter_streams() -> None:
    echo, counter = agents_in(ten_lines)
    assert [echo.spec.id, counter.spec.id] == ["echo", "counter"]

    task, _ = await run_turn(echo, "hi")
    assert (state_of(task), task.artifacts[0].parts[0].text) == ("COMPLETED", "hi")

    task, _ = await run_turn(counter, "go")
    assert "".join(part.text for part in task.artifacts[0].parts).split() == [str(n) for n in range(1, 11)]
