"""What a turn produces, as frames for the server."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from dragoman.core import states
from dragoman.core.log import ArtifactChange, StatusChange
from dragoman.ports import NOTHING, Ending, Notes
from dragoman_pb.dragoman.worker.v1 import worker_pb2 as wk
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

EVENTS: Final = 256
BYTES: Final = 1024 * 1024
"""About as much as one frame of events holds; a single event may be larger."""

SPARE: Final = 256
"""Bytes of a frame beside its events."""


class EventTooLarge(ValueError):
    """An event is larger than a frame may be."""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(
            f"an event of {size} bytes is more than this server takes at once, {limit - SPARE}: "
            "give it in several chunks, or have the server run with a larger --message-bytes"
        )


def events(
    turn: str, number: int, changes: Sequence[StatusChange | ArtifactChange], notes: Notes, limit: int
) -> list[wk.Events]:
    """Frames with these changes, from `number` on; the notes are in the last one.

    `limit`: bytes of a frame. Raises EventTooLarge, and then nothing may be sent.
    """
    found = [
        wk.Events(turn_id=turn, number=number + index, events=few)
        for index, few in enumerate(_cut([event(change) for change in changes], limit))
    ]
    if notes is not NOTHING:
        found[-1].notes.CopyFrom(written(notes))
        if found[-1].ByteSize() > limit:
            raise EventTooLarge(found[-1].ByteSize(), limit)
    return found


def _cut(told: list[wk.Event], limit: int) -> Iterator[list[wk.Event]]:
    few: list[wk.Event] = []
    bytes = 0
    for one in told:
        size = one.ByteSize()
        if size > limit - SPARE:
            raise EventTooLarge(size, limit)
        if few and (len(few) == EVENTS or bytes + size > min(BYTES, limit - SPARE)):
            yield few
            few, bytes = [], 0
        few.append(one)
        bytes += size + 8
    yield few


def event(change: StatusChange | ArtifactChange) -> wk.Event:
    """One event."""
    if isinstance(change, StatusChange):
        return wk.Event(status=status(change))
    if change.text is not None and not change.metadata:
        text = wk.TextChunk(
            artifact_id=change.artifact_id, text=change.text, append=change.append, last_chunk=change.last_chunk
        )
        return wk.Event(text=text)
    return wk.Event(artifact=artifact(change))


def status(change: StatusChange) -> wk.StatusChange:
    """A change of state."""
    made = wk.StatusChange(state=pb.TaskState.Name(change.state))
    if change.message:
        made.message.MergeFromString(change.message)
    if change.metadata:
        made.metadata.MergeFromString(change.metadata)
    return made


def artifact(change: ArtifactChange) -> wk.ArtifactChange:
    """An artifact or a piece of one."""
    made = wk.ArtifactChange(append=change.append, last_chunk=change.last_chunk)
    made.artifact.MergeFromString(change.head + change.parts + change.tail)
    if change.text is not None:
        made.artifact.parts.add(text=change.text)
    if change.metadata:
        made.metadata.MergeFromString(change.metadata)
    return made


def end(turn: str, ending: Ending, limit: int) -> wk.TurnEnd:
    """How a turn ended. Raises EventTooLarge."""
    made = wk.TurnEnd(turn_id=turn, artifacts=map(artifact, ending.artifacts))
    if ending.reply is not None:
        made.reply.CopyFrom(ending.reply)
    else:
        made.status.CopyFrom(status(ending.status))
    if ending.notes is not NOTHING:
        made.notes.CopyFrom(written(ending.notes))
    if made.ByteSize() > limit - SPARE:
        raise EventTooLarge(made.ByteSize(), limit)
    return made


def failed(turn: str, text: str) -> wk.TurnEnd:
    """The end of a turn whose own end cannot be told."""
    message = pb.Message(parts=[pb.Part(text=text)])
    return wk.TurnEnd(turn_id=turn, status=wk.StatusChange(state=pb.TaskState.Name(states.FAILED), message=message))


def written(notes: Notes) -> wk.Notes:
    """What the agent keeps."""
    made = wk.Notes()
    if notes.task is not None:
        made.task_state = notes.task.decode()
    if notes.context is not None:
        made.context_state = notes.context.decode()
    return made
