"""Usage of upstream tasks, counted here as well."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict
from tests.agents.turn_context import RecordingTurnContext, state_of
from tests.agents.upstream.conftest import Open
from tests.agents.upstream.scripted_transport import ScriptedTransport, run_turn, status, task
from tests.eventually import eventually

from dragoman import Turn, agent
from dragoman.client.calls import Client, message
from dragoman.core.limits.quotas import BILLION
from dragoman.settings.settings import Settings
from dragoman.wiring.app import open_app

pytestmark = pytest.mark.long


def using(event: Any, usage: Any) -> Any:
    """A status update with usage in its metadata."""
    event.metadata.update({"usage": usage})
    return event


async def test_cumulative_usage_is_counted_once() -> None:
    context = RecordingTurnContext("hi")
    events = [
        task("SUBMITTED"),
        using(status("WORKING", "one"), {"tokens": 10}),
        using(status("WORKING", "two"), {"tokens": 10}),
        using(status("INPUT_REQUIRED", "more?"), {"tokens": 15, "cost": 0.25}),
    ]
    found, result = await run_turn(context, ScriptedTransport({"SendStreamingMessage": [events]}))
    assert state_of(found) == "INPUT_REQUIRED"
    assert [(one.tokens, one.cost) for one in context.used] == [(10, 0), (5, BILLION // 4)]
    assert len({one.key for one in context.used}) == 2

    again = RecordingTurnContext("hi")  # a repeated attempt reports it under the same keys
    await run_turn(again, ScriptedTransport({"SendStreamingMessage": [events]}))
    assert again.used == context.used

    assert result.state_update.task_state is not None
    later = RecordingTurnContext(
        "more", task_state=result.state_update.task_state
    )  # the next turn of a task with usage counted so far
    last = [using(task("COMPLETED"), {"tokens": 18, "cost": 0.25})]
    await run_turn(later, ScriptedTransport({"SendStreamingMessage": [last]}))
    assert [(one.tokens, one.cost) for one in later.used] == [(3, 0)]


@pytest.mark.parametrize(
    "usage", ["much", {"tokens": -1}, {"tokens": "5"}, {"tokens": 1e30}, {"cost": -0.5}, {"prompt": 5}, [1], None]
)
async def test_metadata_in_another_form_is_not_counted(usage: Any) -> None:
    context, events = RecordingTurnContext("hi"), [task("WORKING"), using(status("COMPLETED"), usage)]
    found, _ = await run_turn(context, ScriptedTransport({"SendStreamingMessage": [events]}))
    assert state_of(found) == "COMPLETED"
    assert context.used == []


async def test_usage_reported_by_an_upstream_dragoman_is_counted(opened: Open, tmp_path: Any) -> None:
    @agent
    async def spends(turn: Turn) -> str:
        turn.usage(tokens=7, cost=0.5)
        return "done"

    behind_settings = {"store": f"sqlite:///{tmp_path}/behind.db", "http": "127.0.0.1:0", "grpc": "127.0.0.1:0"}
    async with (
        open_app(Settings.model_validate(behind_settings), [spends]) as behind,
        opened("front", behind.public_url) as front,
        Client(str(front.grpc)) as client,
    ):
        await eventually(lambda: front.agents)
        answered = (await client.send(message("go"))).task
        assert MessageToDict(answered.metadata) == {"usage": {"tokens": 7.0, "cost": 0.5}}
