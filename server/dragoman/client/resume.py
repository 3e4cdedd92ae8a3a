"""Taking up a stream where it broke: what a follower has to remember, without any I/O."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from dragoman.client.failure import ClientError
from dragoman.core import states
from dragoman.core.extensions import RESUME
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

FIRST_PAUSE: Final = 0.1
LONGEST_PAUSE: Final = 5.0
"""Seconds between two attempts, doubled from the first to the longest."""


class Following:
    """How far one stream was read, and whether it is over.

    `over` once the task or the turn has ended. A stream that ends before that was cut: servers that stop close their
    streams without a word.
    """

    def __init__(
        self, cursor: str, *, to_the_end: bool, patience: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.cursor = cursor
        self.over = False
        self.pause = FIRST_PAUSE
        self._to_the_end = to_the_end
        self._patience = patience
        self._clock = clock
        self._broken = 0.0
        self._last = False

    def take(self, event: pb.StreamResponse) -> pb.StreamResponse:
        """Notes one event and gives it without the mark of its cursor, which is nobody else's business."""
        self._broken, self.pause = 0.0, FIRST_PAUSE
        match event.WhichOneof("payload"):
            case "task":
                self._note(event.task)
                self._last = self._is_last(event.task.status.state)
            case "status_update":
                self._note(event.status_update)
                self._last = self._is_last(event.status_update.status.state)
            case "artifact_update":
                self._note(event.artifact_update)
            case _:
                self._last = True
        return event

    def ended(self) -> None:
        """The stream ended without an error. Without cursors (another server) that is the end in any case."""
        self.over = self._last or not self.cursor
        self._count()

    def failed(self, error: ClientError) -> None:
        """The stream broke. Raises what broke it when there is no use or no patience in trying again: a server that
        was never there is not waited for."""
        if not self.cursor or "UNAVAILABLE" not in (error.code, error.reason) or self._count():
            raise error

    def _count(self) -> bool:
        """Whether patience is at its end."""
        now = self._clock()
        if not self._broken:
            self._broken = now
        else:
            self.pause = min(self.pause * 2, LONGEST_PAUSE)
        out = now - self._broken + self.pause > self._patience
        self.over = self.over or out
        return out

    def _is_last(self, state: int) -> bool:
        return state in states.TERMINAL or (not self._to_the_end and state in states.INTERRUPTED)

    def _note(self, holder: pb.Task | pb.TaskStatusUpdateEvent | pb.TaskArtifactUpdateEvent) -> None:
        self.cursor = unmarked(holder) or self.cursor


def unmarked(holder: pb.Task | pb.TaskStatusUpdateEvent | pb.TaskArtifactUpdateEvent) -> str:
    """Takes the mark of its cursor off an event, and gives the cursor; empty when it had none."""
    if not holder.HasField("metadata") or RESUME.uri not in holder.metadata.fields:
        return ""
    mark = holder.metadata.fields[RESUME.uri].struct_value.fields
    cursor = mark["cursor"].string_value if "cursor" in mark else ""
    del holder.metadata.fields[RESUME.uri]
    if not holder.metadata.fields:
        holder.ClearField("metadata")
    return cursor
