"""The Task at an event: for those who are told the Task whenever its state changes.

While its receiver keeps up, that is the Task as GetTask gives it. A receiver that was away is told the states it missed
one after another, each with status and artifacts as they were then, from the log. The log does not hold what the user
said after the first message, so a task with such messages is told without its history then.
"""

from __future__ import annotations

from typing import Final

from dragoman.core import frames
from dragoman.core.errors import TaskNotFound
from dragoman.core.extensions import overlay
from dragoman.core.fold import fold
from dragoman.core.log import Event, TaskRef
from dragoman.ports import Snapshot, Store
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

EVENTS: Final = 256
"""Events of a log that are read at a time."""


class Past:
    """Gives one task at several of its events, asked for in order."""

    def __init__(self, store: Store, ref: TaskRef) -> None:
        self._store = store
        self._ref = ref
        self._task = pb.Task()
        self._at = 0

    async def at(self, event: Event) -> Event:
        """The Task at a status event. Raises TaskNotFound, and core.log.Cut for one that the log cannot tell."""
        snapshot = await _read(self._store, self._ref)
        if _same_status(snapshot, event):
            data = frames.frame(1, snapshot.task)
        else:
            await self._go_to(event.sequence)
            then = pb.StreamResponse()
            then.task.CopyFrom(self._task)
            if snapshot.head.inbox > 1:
                then.task.ClearField("history")
            data = then.SerializeToString()
        return Event(event.sequence, data, event.state, event.ends, event.cursor)

    async def _go_to(self, sequence: int) -> None:
        while self._at < sequence:
            events = await self._store.events(self._ref, self._at, EVENTS)
            if not events:
                raise TaskNotFound
            for event in events:
                if self._at < event.sequence <= sequence:
                    fold(self._task, pb.StreamResponse.FromString(event.data))
                    self._at = event.sequence


async def present(store: Store, ref: TaskRef, after: int) -> Event:
    """The Task as it is, for those whose next event, the one after `after`, is gone. Raises TaskNotFound."""
    snapshot = await _read(store, ref)
    head = snapshot.head
    gap = overlay(1, {"gap": True, "from": after, "sequence": head.last})
    return Event(head.last, frames.frame(1, snapshot.task) + gap, head.state)


async def _read(store: Store, ref: TaskRef) -> Snapshot:
    snapshot = await store.read(ref)
    if snapshot is None:
        raise TaskNotFound
    return snapshot


def _same_status(snapshot: Snapshot, event: Event) -> bool:
    """Whether the status is still the one that the event brought."""
    told = pb.StreamResponse.FromString(event.data)
    status = told.task.status if told.HasField("task") else told.status_update.status
    return (snapshot.head.state, snapshot.head.updated) == (status.state, status.timestamp.ToMilliseconds())
