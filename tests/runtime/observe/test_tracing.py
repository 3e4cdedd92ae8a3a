"""Tracing of turns: traces never delay or fail a turn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.conftest import set_timings
from tests.runtime.harness import open_harness, texts
from tests.runtime.unavailable_store import UnavailableStore

from dragoman import Turn
from dragoman.core.durations import Backoff
from dragoman.core.errors import Unavailable


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retries of store reads come soon."""
    set_timings(monkeypatch, store_retry=Backoff(0.001, 0.01))


async def asks(turn: Turn) -> str:
    if len(turn.history) == 0:
        turn.ask("and?")
    return f"{turn.text} of {len(turn.references)} after {len(turn.history)}"


class Parents:
    """A tracer that records the parent of each span. Implements `dragoman.ports.tracing.Tracer`."""

    def __init__(self) -> None:
        self.begun: list[str] = []

    def start_span(self, parent: str) -> str:
        self.begun.append(parent)
        return ""

    def activate(self, context: str) -> None:
        pass

    def record_span(self, *_: Any) -> None:
        pass


@pytest.mark.parametrize("error", [Unavailable("the store does not answer"), RuntimeError("no such column")])
async def test_a_turn_does_not_wait_for_its_trace_context(tmp_path: Path, error: Exception) -> None:
    store: Any = UnavailableStore(tmp_path / "tasks.db")
    store.error = lambda: error
    tracer = Parents()
    async with open_harness(tmp_path, asks, store=store, tracer=tracer) as here:
        task = await here.send()
        store.unavailable.add("envelope")
        await here.start("more", task_id=task.id)
        assert texts(await here.ended(task.id)) == ["more of 0 after 2"]
    assert store.refused["envelope"] > 0
    assert len(tracer.begun) == 2
