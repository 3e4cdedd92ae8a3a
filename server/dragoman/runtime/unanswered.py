"""Claims that the store did not answer: whether they were taken is not known, and nobody else may go on with them.

A store that breaks off in the middle of a commit may have made it. Whoever sent is told that the store is away; but the
task, where it was written, is claimed by this session, which goes on living: no reaper takes it for left behind, and it
has no run here. So the store is asked for each until it answers, and what is ours begins.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from dragoman.core.errors import Unavailable
from dragoman.core.log import ABSENT, Append, Appended, NotTerminal, Refused, TaskRef
from dragoman.runtime.dispatch import Dispatch
from dragoman.runtime.log import Log

log = logging.getLogger("dragoman.runtime")

AGAIN: Final = 2.0
"""Seconds between two questions."""

AT_ONCE: Final = 64
"""Tasks that are asked for at the same time: what is known by then is begun before the next are asked for."""

LATE: Final = 600.0
"""Seconds for which a task that is not there may still come: a commit that waits for a standby is not to be seen
meanwhile."""


class Unanswered:
    """The claims of this process that nobody answered."""

    def __init__(self, appends: Log, dispatch: Dispatch) -> None:
        self._log = appends
        self._dispatch = dispatch
        self._until: dict[TaskRef, float] = {}
        """For how long each is asked for while it is not there, on the loop's clock."""
        self._some = asyncio.Event()
        appends.unanswered = self.add

    def add(self, task: TaskRef) -> None:
        """The store did not answer a claim of this task."""
        self._until[task] = asyncio.get_running_loop().time() + LATE
        self._some.set()

    async def watch(self) -> None:
        """Asks every AGAIN seconds while there is something to ask for. Runs until cancelled."""
        while True:
            await self._some.wait()
            await asyncio.sleep(AGAIN)
            try:
                await self.ask()
            except Exception:
                log.exception("could not ask what became of claims that the store did not answer")

    async def ask(self) -> None:
        """Asks for each once, and begins what is ours."""
        tasks = list(self._until)
        for first in range(0, len(tasks), AT_ONCE):
            await asyncio.gather(*map(self._ask, tasks[first : first + AT_ONCE]))
        if not self._until:
            self._some.clear()

    async def _ask(self, task: TaskRef) -> None:
        # A change of nothing, no mere look: it waits for whoever is still writing the task.
        try:
            await self._log.append(Append(task=task, guard=NotTerminal()), self._answered)
        except Unavailable:
            return
        except Refused as no:
            if no.reason == ABSENT and asyncio.get_running_loop().time() < self._until.get(task, 0.0):
                return
        self._until.pop(task, None)

    def _answered(self, appended: Appended | None) -> None:
        if appended is None:
            return
        head = appended.head
        if head.session == self._dispatch.session and self._dispatch.run_of(head.ref) is None:
            log.warning("a task was claimed without an answer from the store; it begins now", extra={"task": head.id})
            self._dispatch.settle(0, head.agent, Appended(head, [], claimed=True), None)
