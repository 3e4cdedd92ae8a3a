"""Receivers that are down, slow, flapping or faulty, and a killed server: every receiver gets every event."""

from __future__ import annotations

import io
from collections import Counter
from pathlib import Path

import pytest
from tests.chaos.history import Delivered, Recorder
from tests.chaos.load.clients import RandomClient
from tests.chaos.load.followers import Stage
from tests.chaos.load.receivers import Receivers
from tests.chaos.run import RETRY_OPTIONS, pushed
from tests.chaos.targets.server import running
from tests.chaos_checker.push_checker import judge_pushes
from tests.load.characters import CHARACTERS

pytestmark = pytest.mark.long

ENOUGH = 60.0
EACH = 3


async def send_to_all(stage: Stage) -> list[str]:
    """Three tasks for each kind of receiver."""
    customer = RandomClient(stage, 1, keys=False)
    customer._hook = stage.number  # type: ignore[method-assign]  # every one of them has a receiver
    tasks = []
    for _ in range(EACH * len(CHARACTERS)):
        task = await customer.send(customer._message("stream 20 10"), "", "at once")
        assert task is not None
        tasks.append(task.id)
    return tasks


async def test_every_receiver_gets_every_event_in_order_across_kills(tmp_path: Path) -> None:
    recorder = Recorder(io.StringIO())
    async with running(tmp_path, *RETRY_OPTIONS) as victim:
        stage = Stage(victim, recorder, 7)
        receivers = Receivers(stage)
        async with receivers.open():
            stage.hook = receivers.url
            tasks = await send_to_all(stage)
            await receivers.until(lambda: receivers.deliveries > 20)
            await victim.restart(stage)  # during turns and deliveries
            tasks += await send_to_all(stage)
            await receivers.until(lambda: receivers.deliveries > 200)
            await victim.restart(stage)
            stage.over.set()  # from here on all receivers work
            assert await pushed(stage, ENOUGH) == 0
            assert not victim.errors
        kept = await victim.kept(stage.began)
    assert set(kept) == set(tasks)
    assert list(judge_pushes(recorder.entries, kept)) == []
    delivereds = [entry for entry in recorder.entries if isinstance(entry, Delivered)]
    answers = Counter(delivered.status for delivered in delivereds)
    assert answers[503] > 0  # down, and flapping
    assert answers[500] + answers[0] + answers[302] > 0  # faulty
    assert {delivered.task for delivered in delivereds} == set(tasks)
