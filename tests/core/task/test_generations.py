"""Generations of a task (draft of A2A 1.1): in tasks and events, and as the guard of a message."""

from __future__ import annotations

from dataclasses import replace

import pytest
from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet

from dragoman.core.cards.agent_spec import RESUME_EXTENSION, with_cursor
from dragoman.core.task import states
from dragoman.core.task.generations import (
    AtGeneration,
    generation_mismatch,
    with_generation,
    with_task_generation,
)
from dragoman.core.task.log import (
    ABSENT,
    CHANGED,
    ENDED,
    RUNNING,
    AppendRejected,
    Event,
    Exists,
    Guard,
    NoOpenTurn,
    TaskRecord,
)
from dragoman.ports import TaskSnapshot
from dragoman.runtime.log import gap_event
from dragoman.testing.fixtures import new_ref
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

IDLE = TaskRecord(new_ref(), "echo", "id", "context", states.INPUT_REQUIRED, updated=1, last_sequence=5)
TASK = pb.Task(id="id", context_id="context", status=pb.TaskStatus(state=pb.TASK_STATE_WORKING))
EVENTS = {
    "task": (pb.StreamResponse(task=TASK), 7),
    "status_update": (pb.StreamResponse(status_update=pb.TaskStatusUpdateEvent(task_id="id")), 5),
    "artifact_update": (pb.StreamResponse(artifact_update=pb.TaskArtifactUpdateEvent(task_id="id", append=True)), 7),
}


def added(message: Message) -> list[tuple[int, int]]:
    """The fields of a message that 1.0 does not know: number and value."""
    unknown = UnknownFieldSet(message)
    return [(unknown[index].field_number, unknown[index].data) for index in range(len(unknown))]


def test_a_task_has_the_sequence_of_its_last_event_as_generation() -> None:
    task = pb.Task.FromString(with_task_generation(TASK.SerializeToString(), 5))
    assert added(task) == [(7, 5)]
    task.DiscardUnknownFields()
    assert task == TASK


@pytest.mark.parametrize("member", EVENTS)
@pytest.mark.parametrize("sequence", [1, 127, 128, 2**40])
def test_an_event_gets_its_sequence_as_generation_and_keeps_the_rest(member: str, sequence: int) -> None:
    response, number = EVENTS[member]
    event = Event(sequence, response.SerializeToString(), states.WORKING, ends=True, cursor="a.b.9")
    data = with_generation(event).data
    changed = pb.StreamResponse.FromString(data)
    assert added(getattr(changed, member)) == [(number, sequence)]
    assert added(changed) == []
    changed.DiscardUnknownFields()
    assert changed == response
    assert replace(with_generation(event), data=event.data, encodings=event.encodings) == event
    assert with_generation(event) is with_generation(event)


def test_an_event_has_its_member_once_also_with_metadata_of_an_extension() -> None:
    event = with_cursor(with_generation(Event(3, EVENTS["status_update"][0].SerializeToString(), cursor="a.b.3")))
    update = pb.StreamResponse.FromString(event.data).status_update
    assert (added(update), RESUME_EXTENSION.uri in update.metadata) == ([(5, 3)], True)

    gap = with_generation(gap_event(TaskSnapshot(IDLE, TASK.SerializeToString()), 1))
    task = pb.StreamResponse.FromString(gap.data).task
    assert (added(task), RESUME_EXTENSION.uri in task.metadata) == ([(7, 5)], True)


def test_a_message_has_no_generation() -> None:
    reply = pb.StreamResponse(message=pb.Message(message_id="m")).SerializeToString()
    assert with_generation(Event(0, reply)).data == reply


@pytest.mark.parametrize(
    ("guard", "record", "reason"),
    [
        (AtGeneration(5, Exists()), IDLE, None),
        (AtGeneration(4, Exists()), IDLE, CHANGED),
        (AtGeneration(6, Exists()), IDLE, CHANGED),
        (AtGeneration(-1, Exists()), IDLE, CHANGED),
        (AtGeneration(5, NoOpenTurn()), replace(IDLE, session=7), RUNNING),
        (AtGeneration(4, NoOpenTurn()), replace(IDLE, session=7), CHANGED),
        (AtGeneration(5, Exists()), None, ABSENT),
    ],
)
def test_a_generation_is_a_further_condition(guard: Guard, record: TaskRecord | None, reason: str | None) -> None:
    assert guard.rejection(record) == reason


@pytest.mark.parametrize("reason", [CHANGED, ENDED, RUNNING])
def test_another_generation_is_the_reason_whatever_else_holds(reason: str) -> None:
    error = generation_mismatch(AtGeneration(3, Exists()), AppendRejected(reason, IDLE))
    assert error is not None
    assert error.metadata == {"taskId": "id", "expectedGeneration": "3", "currentGeneration": "5"}


@pytest.mark.parametrize(
    ("guard", "record"),
    [(AtGeneration(5, Exists()), IDLE), (AtGeneration(3, Exists()), None), (Exists(), IDLE)],
)
def test_other_rejections_are_no_mismatch(guard: Guard, record: TaskRecord | None) -> None:
    assert generation_mismatch(guard, AppendRejected(ENDED, record)) is None
