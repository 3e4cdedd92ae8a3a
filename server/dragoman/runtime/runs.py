"""The running turns of a process, and how many more may begin."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator

from dragoman.core.task.log import TaskRef
from dragoman.runtime.turn.runner import TurnRunner


class RunRegistry:
    """The running turns of a process, by task, and its slots."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        """The maximum of concurrent turns."""
        self.reserved = 0
        """Slots for tasks that are being written."""
        self.by_task: dict[TaskRef, TurnRunner] = {}
        self.idle_waiters: list[asyncio.Future[None]] = []
        """Those in `wait_idle`."""

    def __len__(self) -> int:
        return len(self.by_task)

    def __iter__(self) -> Iterator[TurnRunner]:
        """The runners at this moment. The registry may change meanwhile."""
        return iter(tuple(self.by_task.values()))

    def find(self, ref: TaskRef) -> TurnRunner | None:
        """The runner of this task, if it runs here."""
        return self.by_task.get(ref)

    def clear(self) -> None:
        """Removes all turns."""
        self.by_task.clear()
        self.wake_if_idle()

    @property
    def free_slots(self) -> int:
        """Turns that may still begin here."""
        return self.slots - len(self.by_task) - self.reserved

    @property
    def idle(self) -> bool:
        """Whether no turn runs and no slot is reserved."""
        return not (self.by_task or self.reserved)

    async def wait_idle(self) -> None:
        """Returns when no turn runs and no slot is reserved."""
        while not self.idle:
            waiter = asyncio.get_running_loop().create_future()
            self.idle_waiters.append(waiter)
            await waiter

    def wake_if_idle(self) -> None:
        """Wakes those in `wait_idle`. Call it after a removal or the end of a reservation."""
        if self.idle_waiters and self.idle:
            waiters, self.idle_waiters = self.idle_waiters, []
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)

    @property
    def busiest(self) -> tuple[str, int]:
        """The agent with the most running turns, and their number."""
        return next(iter(Counter(runner.record.agent for runner in self).most_common(1)), ("", 0))
