"""Which writes are handed over together, and when."""

from __future__ import annotations

import asyncio
import time

import pytest

from dragoman.stores.sqlite.hot import writer
from dragoman.stores.sqlite.hot.writer import WriteCoalescer


async def run_loop_turns(number: int) -> None:
    """Runs this many loop iterations."""
    for _ in range(number):
        await asyncio.sleep(0)


async def test_what_one_turn_of_the_loop_adds_is_handed_over_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "IDLE_TURN_SECONDS", 1000.0)  # on any machine each iteration counts as idle
    handed: list[list[int]] = []
    gathered = WriteCoalescer(handed.append, 100)
    for number in range(3):
        gathered.add(number)
    assert handed == []
    await run_loop_turns(writer.IDLE_TURNS + 1)
    assert handed == [[0, 1, 2]]
    gathered.add(3)
    await run_loop_turns(writer.IDLE_TURNS + 1)
    assert handed == [[0, 1, 2], [3]]


async def test_a_busy_loop_gathers_on_until_the_first_has_waited_long_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "IDLE_TURN_SECONDS", 0.0)  # no iteration counts as idle
    now = [100.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    handed: list[list[int]] = []
    gathered = WriteCoalescer(handed.append, 100)
    for number in range(4):
        gathered.add(number)
        await run_loop_turns(3)
    assert handed == []
    now[0] += writer.MAX_HOLD_SECONDS
    await run_loop_turns(1)
    assert handed == [[0, 1, 2, 3]]


async def test_no_more_are_gathered_than_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "IDLE_TURN_SECONDS", 0.0)
    monkeypatch.setattr(writer, "MAX_HOLD_SECONDS", 1000.0)
    handed: list[list[int]] = []
    gathered = WriteCoalescer(handed.append, 3)
    for number in range(3):
        gathered.add(number)
    await run_loop_turns(1)
    assert handed == [[0, 1, 2]]


async def test_what_was_flushed_is_handed_over_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "IDLE_TURN_SECONDS", 1000.0)
    handed: list[list[int]] = []
    gathered = WriteCoalescer(handed.append, 100)
    gathered.flush()
    gathered.add(1)
    gathered.flush()
    gathered.add(2)
    await run_loop_turns(writer.IDLE_TURNS + 1)
    assert handed == [[1], [2]]
