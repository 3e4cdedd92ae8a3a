"""`Task.metadata` of upstream tasks, kept in ours."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict
from tests.agents.turn_context import RecordingTurnContext, state_of, status_text
from tests.agents.upstream.conftest import Open
from tests.agents.upstream.scripted_transport import ScriptedTransport, chunk, run_turn, status, task
from tests.eventually import eventually

from dragoman import Turn, agent
from dragoman.agents.values import struct_of, struct_to_json
from dragoman.client.calls import Client, message
from dragoman.core.limits.message_limits import MAX_TASK_METADATA_BYTES
from dragoman.settings.settings import Settings
from dragoman.wiring.app import open_app

pytestmark = pytest.mark.long


def labeled(event: Any, **metadata: object) -> Any:
    """An event with metadata."""
    event.metadata.update(metadata)
    return event


async def test_metadata_of_tasks_and_status_updates_is_merged_and_written_once() -> None:
    context = RecordingTurnContext("hi")
    events = [
        labeled(task("WORKING"), first={"a": 1}, both=1),
        chunk("a", append=False),
        labeled(status("WORKING", "one"), both=2),
        labeled(task("WORKING", "a"), first={"a": 1}, both=2, quiet=True),
        chunk("b"),
        labeled(status("COMPLETED", "done"), both=2, last=None),
    ]
    found, result = await run_turn(context, ScriptedTransport({"SendStreamingMessage": [events]}))
    assert state_of(found) == "COMPLETED"
    assert context.metadata_updates == [{"first": {"a": 1}, "both": 1}, {"both": 2}, {"quiet": True}]
    assert struct_to_json(struct_of(result.state_update.task_metadata)) == {"last": None}


async def test_metadata_of_a_polled_task_is_written_when_only_that_has_changed() -> None:
    script = ScriptedTransport(
        {
            "SendMessage": [[labeled(task("WORKING"), percent=0)]],
            "GetTask": [
                [labeled(task("WORKING"), percent=50)],
                [labeled(task("WORKING"), percent=50)],
                [labeled(task("COMPLETED"), percent=100, usage={"tokens": 5})],
            ],
        }
    )
    context = RecordingTurnContext("hi")
    _, result = await run_turn(context, script, streams=False)
    assert context.metadata_updates == [{"percent": 0}, {"percent": 50}]
    assert struct_to_json(struct_of(result.state_update.task_metadata)) == {"percent": 100}
    assert [report.tokens for report in context.used] == [5]


async def test_metadata_beyond_the_limit_fails_the_task_with_a_reason() -> None:
    context = RecordingTurnContext("hi")
    events = [labeled(task("WORKING"), big="a" * MAX_TASK_METADATA_BYTES)]
    found, _ = await run_turn(context, ScriptedTransport({"SendStreamingMessage": [events]}))
    assert state_of(found) == "FAILED"
    assert "Task.metadata: the task's metadata would have" in status_text(found)
    assert context.metadata_updates == []


async def test_metadata_of_an_upstream_dragoman_is_shown_here(opened: Open, tmp_path: Any) -> None:
    @agent
    async def labels(turn: Turn) -> str:
        turn.metadata["early"] = {"n": 1}
        turn.chunk("x")
        await turn.flush()
        turn.metadata["late"] = True
        return "done"

    behind_settings = {"store": f"sqlite:///{tmp_path}/behind.db", "http": "127.0.0.1:0", "grpc": "127.0.0.1:0"}
    async with (
        open_app(Settings.model_validate(behind_settings), [labels]) as behind,
        opened("front", behind.public_url) as front,
        Client(str(front.grpc)) as client,
    ):
        await eventually(lambda: front.agents)
        result = await client.send(message("go"))
        assert MessageToDict(await client.get(result.task.id))["metadata"] == {"early": {"n": 1}, "late": True}
