"""What a task uses while it runs: each report is written at once, and the sum decides whether it may go on.

A report is an append without events, so it is on disk some milliseconds later whatever the agent does next, and a run
that has lost its task reports for nothing. The store knows the sums, and which keys it has counted; the run shows the
sum with the end of each turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

from dragoman.core.log import Append, Appended, ArtifactChange, Guard, StatusChange, TaskRef
from dragoman.core.usage import KEY, NONE, Budget, Usage, Used
from dragoman.runtime.log import Log
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

Change = StatusChange | ArtifactChange


def on_loop(loop: asyncio.AbstractEventLoop, call: Callable[[Used], None], used: Used) -> None:
    """Makes a call on the loop: at once if that is where we are, and otherwise before whatever its thread does next
    is heard of there."""
    try:
        here = asyncio.get_running_loop() is loop
    except RuntimeError:
        here = False
    if here:
        call(used)
    else:
        loop.call_soon_threadsafe(call, used)


class Spending:
    """The reports of one run."""

    def __init__(
        self, log: Log, task: TaskRef, guard: Guard, budget: Budget, over: Callable[[str], None], before: Usage = NONE
    ) -> None:
        """`over` is told once when the task has used more than it may, and why. `before`: what earlier turns used."""
        self._log = log
        self._task = task
        self._guard = guard
        self._budget = budget
        self._over = over
        self._told = False
        self._delegates = before.own != before
        self._writing: set[asyncio.Future[Appended]] = set()
        self.before = before
        self.total = before
        self._sure = before
        """The sum of what is certain to count, written or not: reports without a key."""
        self._look(before)

    def add(self, used: Used) -> None:
        """One report; one of nothing says that another task may work for this one. On the event loop."""
        self._delegates = self._delegates or not used.amount
        if not used.key:
            self._sure = Usage(self._sure.tokens + used.tokens, self._sure.cost + used.cost)
            self._look(self._sure)
        writing = self._log.append(Append(task=self._task, guard=self._guard, used=used), self._written)
        self._writing.add(writing)
        writing.add_done_callback(self._writing.discard)

    def look_again(self) -> None:
        """Another turn begins. It is told as well when the task may use no more."""
        self._told = False
        self._look(self.total)

    async def settle(self) -> None:
        """Waits until every report is on disk, or refused, and is told of what other tasks have used for this one."""
        if self._delegates:
            self.add(Used())
        if self._writing:
            await asyncio.wait(self._writing)

    def shown(self, changes: Sequence[Change]) -> list[Change]:
        """The last changes of a turn, with the sum in the metadata of their status."""
        *others, last = changes
        if not self.total or not isinstance(last, StatusChange):
            return list(changes)
        holder = pb.Message()
        holder.metadata.MergeFromString(last.metadata)
        holder.metadata.update({KEY: self.total.shown})
        return [*others, replace(last, metadata=holder.metadata.SerializeToString())]

    def _written(self, appended: Appended | None) -> None:
        if appended is not None and appended.usage is not None:
            self.total = appended.usage
            self._look(self.total)

    def _look(self, usage: Usage) -> None:
        if not self._told and (why := self._budget.passed(usage)):
            self._told = True
            # Not at once: who reports may be the very task that is to be canceled, with its result in hand.
            asyncio.get_running_loop().call_soon(self._over, why)
