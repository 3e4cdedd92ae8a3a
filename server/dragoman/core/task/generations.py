"""Generations of a task: DRAFT of A2A 1.1 (`dev-1.1` at 28491879 of 2026-08-12, §3.2.7).

The generation of a task is the sequence of its last event. The draft demands what sequences are: 1 for the task as
created, then one more for each status or artifact update, and no two events with the same number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dragoman.core.errors import TaskGenerationMismatch
from dragoman.core.task import frames
from dragoman.core.task.log import ABSENT, CHANGED, AppendRejected, Event, Guard, TaskRecord

TASK_GENERATION: Final = 7
"""The number of `Task.generation`."""

_EVENT_GENERATION: Final = {1: TASK_GENERATION, 3: 5, 4: 7}
"""The number of `generation` in each member of a StreamResponse that has one: task, status and artifact update."""


@dataclass(frozen=True, slots=True)
class GenerationTerms:
    """What a caller of the draft says about generations in its request. None: nothing."""

    current: int | None = None
    """`GetTaskRequest.current_generation`: the answer may wait until the task's generation is greater."""
    if_match: int | None = None
    """`SendMessageConfiguration.if_generation_match`: the message is for the task at this generation only."""


def with_task_generation(task: bytes, last_sequence: int) -> bytes:
    """A serialized Task with its generation."""
    return task + frames.integer(TASK_GENERATION, last_sequence)


def with_generation(event: Event) -> Event:
    """The event with its generation inside, encoded once and shared. A Message has none.

    The field is put into the member itself: some readers do not merge two occurrences of a message field.
    """
    with_field = event.encodings.get(with_generation)
    if with_field is None:
        with_field = event.encodings[with_generation] = Event(
            event.sequence, _insert(event.data, event.sequence), event.state, event.ends, event.cursor
        )
    assert isinstance(with_field, Event)
    return with_field


def _insert(data: bytes, generation: int) -> bytes:
    key, at = frames.read_varint(data, 0)
    number = _EVENT_GENERATION.get(key >> 3)
    if number is None:
        return data
    length, begin = frames.read_varint(data, at)
    end = begin + length
    # What may follow the member, such as metadata of an extension, stays.
    return frames.frame(key >> 3, data[begin:end] + frames.integer(number, generation)) + data[end:]


@dataclass(frozen=True, slots=True)
class AtGeneration:
    """The task is still at this generation, and another guard holds: the guard of a message with `if_match`."""

    generation: int
    guard: Guard

    def rejection(self, record: TaskRecord | None) -> str | None:
        if record is None:
            return ABSENT
        return self.guard.rejection(record) if record.last_sequence == self.generation else CHANGED


def generation_mismatch(guard: Guard, rejected: AppendRejected) -> TaskGenerationMismatch | None:
    """The error for a message that came too late for its generation; None for other rejections.

    Terminal is final under every guard, so a task that has ended since is rejected as ended; this error goes before.
    """
    record = rejected.record
    if not isinstance(guard, AtGeneration) or record is None or record.last_sequence == guard.generation:
        return None
    return TaskGenerationMismatch(
        f"configuration.ifGenerationMatch: is {guard.generation}, but the task is at generation "
        f"{record.last_sequence}; read the task, then decide whether to send again",
        metadata={
            "taskId": record.id,
            "expectedGeneration": str(guard.generation),
            "currentGeneration": str(record.last_sequence),
        },
    )
