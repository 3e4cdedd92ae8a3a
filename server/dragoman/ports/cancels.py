"""What a cancel needs of a store, so that it outlives whoever was asked for it, and whoever runs the task."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from dragoman.core.log import TaskRef


class Cancels(Protocol):
    """Cancels that were asked for of tasks that somebody runs, on disk.

    A cancel holds for what the task had been asked to do until then: until its turn has ended, however often it is
    begun again, and for no message that comes later.
    """

    async def ask(self, task: TaskRef) -> None:
        """Keeps that the task is to stop, if somebody runs it or it waits for that."""
        ...

    async def of(self, session: int) -> list[TaskRef]:
        """The tasks that a session runs and that are to stop."""
        ...

    async def among(self, tasks: Collection[TaskRef]) -> set[TaskRef]:
        """Those of these tasks that are to stop."""
        ...
