"""Metadata of tasks and events that workers send."""

from __future__ import annotations

import asyncio

import pytest
from google.protobuf.json_format import MessageToDict
from tests.agents.workers.conftest import Open
from tests.agents.workers.tasks import status_text
from tests.agents.workers.test_turn import connected

from dragoman.client.calls import message
from dragoman.core.limits.message_limits import MAX_TASK_METADATA_BYTES
from dragoman_pb.dragoman.worker.v1 import worker_pb2 as wk
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

pytestmark = pytest.mark.long


def metadata_update(**metadata: object) -> wk.StateUpdate:
    return wk.StateUpdate(task_metadata=pb.Task(metadata=metadata).metadata)


async def test_metadata_in_notes_is_merged_and_sent_with_the_next_turn(opened: Open) -> None:
    async with opened() as app, connected(app) as (fake_worker, client):
        sending = asyncio.create_task(client.send(message("first")))
        turn = await fake_worker.receive("turn_start")
        assert not turn.HasField("task_metadata")
        working = wk.Event(status=wk.StatusChange(state=pb.TASK_STATE_WORKING))
        events = wk.Events(
            turn_id=turn.turn_id, number=1, events=[working], state_update=metadata_update(a={"x": 1}, b="kept")
        )
        await fake_worker.send(events=events)
        await fake_worker.receive("committed")
        status = wk.StatusChange(state=pb.TASK_STATE_INPUT_REQUIRED, message=pb.Message(parts=[pb.Part(text="and?")]))
        await fake_worker.send(
            turn_end=wk.TurnEnd(turn_id=turn.turn_id, status=status, state_update=metadata_update(a=[2]))
        )
        paused = (await sending).task
        expected = {"a": [2], "b": "kept"}
        assert MessageToDict(await client.get(paused.id))["metadata"] == expected
        await fake_worker.send(credit=wk.Credit(agent_id="desk", turns=1))
        sending = asyncio.create_task(client.send(message("second", task=paused.id)))
        turn = await fake_worker.receive("turn_start")
        assert MessageToDict(turn.task_metadata) == expected
        await fake_worker.end(turn.turn_id)
        assert MessageToDict((await sending).task)["metadata"] == expected


@pytest.mark.parametrize(
    ("frame", "error"),
    [
        (metadata_update(usage={"tokens": 1}), "state_update.task_metadata.usage: the server writes this key"),
        (metadata_update(x=float("nan")), "state_update.task_metadata holds NaN or infinity"),
        (metadata_update(x="a" * MAX_TASK_METADATA_BYTES), f"bytes; at most {MAX_TASK_METADATA_BYTES} are accepted"),
        (
            wk.StatusChange(state=pb.TASK_STATE_WORKING, metadata={"x": float("inf")}),
            "status.metadata holds NaN or infinity",
        ),
        (wk.TextChunk(artifact_id="a", text="x", metadata={"x": float("inf")}), "text.metadata holds NaN or infinity"),
    ],
)
async def test_invalid_metadata_of_a_worker_fails_its_turn_with_the_field(
    opened: Open, frame: wk.StateUpdate | wk.StatusChange | wk.TextChunk, error: str
) -> None:
    async with opened() as app, connected(app) as (fake_worker, client):
        sending = asyncio.create_task(client.send(message("go")))
        turn = await fake_worker.receive("turn_start")
        event = wk.Event(status=wk.StatusChange(state=pb.TASK_STATE_WORKING))
        if isinstance(frame, wk.StatusChange):
            event = wk.Event(status=frame)
        elif isinstance(frame, wk.TextChunk):
            event = wk.Event(text=frame)
        sent_update = frame if isinstance(frame, wk.StateUpdate) else None
        await fake_worker.send(
            events=wk.Events(turn_id=turn.turn_id, number=1, events=[event], state_update=sent_update)
        )
        task = (await sending).task
        assert task.status.state == pb.TASK_STATE_FAILED
        assert status_text(task).startswith("InvalidAgentResponse: agent desk: ")
        assert error in status_text(task)
        assert not (await client.get(task.id)).HasField("metadata")


async def test_the_limit_counts_all_metadata_that_a_turn_has_sent(opened: Open) -> None:
    async with opened() as app, connected(app) as (fake_worker, client):
        sending = asyncio.create_task(client.send(message("go")))
        turn = await fake_worker.receive("turn_start")
        working = wk.Event(status=wk.StatusChange(state=pb.TASK_STATE_WORKING))
        for number, key in enumerate(("one", "two"), 1):
            half = metadata_update(**{key: "a" * (MAX_TASK_METADATA_BYTES // 2)})
            await fake_worker.send(
                events=wk.Events(turn_id=turn.turn_id, number=number, events=[working], state_update=half)
            )
        task = (await sending).task
        assert "state_update.task_metadata: the task's metadata would have" in status_text(task)
