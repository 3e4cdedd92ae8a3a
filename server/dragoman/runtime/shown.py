"""The task as its run has shown it: what a blocking send answers with, without reading it back.

Only for a task that began and ended here, in a few small events: they are its whole log, and a Task is the fold of
its log (core/fold.py). Whatever is larger, older or touched by somebody else is read from the store.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dragoman.core.fold import fold
from dragoman.core.log import Event, Head
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

EVENTS: Final = 16
BYTES: Final = 32 * 1024
"""More is kept for nobody: parts that stores keep elsewhere are larger, too."""


class Shown:
    """The events of a run, as they are committed. `first`: those of the append that made the task, if one did."""

    def __init__(self, first: Sequence[Event]) -> None:
        self._events = list(first)
        self._bytes = sum(len(event.data) for event in first)
        self._whole = bool(first) and first[0].sequence == 1

    def add(self, events: Sequence[Event]) -> None:
        """Takes what the run wrote."""
        if not self._whole:
            return
        self._events += events
        for event in events:
            self._bytes += len(event.data)
        if self._bytes > BYTES or len(self._events) > EVENTS:
            self._whole = False
            self._events.clear()

    def task(self, head: Head, history: int | None) -> bytes | None:
        """A serialized Task at `head`, with the last `history` messages (None: all); None when it has to be read."""
        if not self._whole or [event.sequence for event in self._events] != list(range(1, head.last + 1)):
            return None
        task, update = pb.Task(), pb.StreamResponse()
        for event in self._events:
            update.ParseFromString(event.data)
            if update.artifact_update.append:  # neighbouring chunks of text are shown as one part
                return None
            fold(task, update)
        if history is not None:
            del task.history[: max(len(task.history) - history, 0)]
        return task.SerializeToString()
