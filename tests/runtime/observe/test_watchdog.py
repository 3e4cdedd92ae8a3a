"""The watchdog of the event loop."""

from __future__ import annotations

import logging
import time
from pathlib import Path

import pytest
from tests.runtime.harness import open_harness

from dragoman import Turn


async def test_a_blocked_loop_is_logged_with_agent_and_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def blocked_messages() -> list[str]:
        # A pause of the machine is not attributed to an agent.
        return [text for record in caplog.records if "by agent blocks" in (text := record.getMessage())]

    async def blocks(turn: Turn) -> str:
        until = time.monotonic() + 60
        while not blocked_messages() and time.monotonic() < until:
            time.sleep(0.01)  # noqa: ASYNC251 - what an agent must not do
        return "done"

    with caplog.at_level(logging.WARNING, "dragoman.runtime"):
        async with open_harness(tmp_path, blocks) as here:
            await here.send()
    assert "the event loop has been blocked for" in blocked_messages()[0]
    assert f"{Path(__file__)}, line" in blocked_messages()[0]
