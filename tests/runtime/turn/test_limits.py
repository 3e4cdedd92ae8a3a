"""Time limit and idle limit of a turn."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest
from tests.runtime.harness import open_harness, state, status_text

from dragoman import Turn


@pytest.mark.parametrize(("options", "reason"), [({"time_limit": 0.1}, "TIMED_OUT"), ({"idle_limit": 0.1}, "IDLE")])
async def test_a_turn_past_its_limit_ends_with_that_reason(
    tmp_path: Path, options: Any, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    why: list[str] = []

    async def slow(turn: Turn) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            why.append(turn.cancel_reason)

    async with open_harness(tmp_path, slow, **options) as here:
        ended = await here.send()
    assert (state(ended), status_text(ended).split(":")[0]) == ("FAILED", reason)
    assert why == ["deadline"]
    [warning] = [one for one in caplog.records if one.name == "dragoman.runtime"]
    assert warning.levelno == logging.WARNING
    assert warning.getMessage() == f"a limit ends the turn: {status_text(ended)}"
    assert warning.__dict__["task"] == ended.id


async def test_a_turn_with_output_is_not_idle(tmp_path: Path) -> None:
    async def talks(turn: Turn) -> str:
        for number in range(4):
            turn.status(str(number))
            here.at(f"said {number}").set()
            await here.at(f"limit {number}").wait()
        return "done"

    async with open_harness(tmp_path, talks, idle_limit=3600) as here:
        task = await here.start()
        (run,) = here.runtime.scheduler.runs
        for number in range(4):
            await here.at(f"said {number}").wait()
            run.deadlines.check_idle()  # as when the limit has passed since the last check
            here.at(f"limit {number}").set()
        assert state(await here.ended(task.id)) == "COMPLETED"
