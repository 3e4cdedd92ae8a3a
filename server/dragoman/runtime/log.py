"""Committed before visible: the runtime's way to the store's one door.

Whoever waits for an append may be cancelled at any moment (a client goes away); what follows from the commit
must happen all the same. So the store's future is never handed out: its callback tells the bus, does what the
caller asked for, and only then wakes the caller.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeVar

from dragoman.core.backoff import Backoff
from dragoman.core.errors import Unavailable
from dragoman.core.task.log import Append, Appended, AppendRejected, Guard, TaskRef
from dragoman.ports import Bus, Store

log = logging.getLogger("dragoman.runtime")

T = TypeVar("T")

STORE_RETRY_BACKOFF: Final = Backoff(0.5, 30.0)
"""Between two tries to write the end of a turn, or to read its input."""


class EventLog:
    """Appends to tasks and publishes what was committed."""

    def __init__(self, store: Store, bus: Bus, on_push_due: Callable[[TaskRef], None] | None = None) -> None:
        """`pushed` is told of tasks that got events, and of which receivers are to be told."""
        self._store = store
        self._bus = bus
        self._on_push_due = on_push_due
        self.committed_events = 0
        """Events that were committed from here."""
        self.rejected: Counter[str] = Counter()
        """Appends that were refused, by reason."""
        self.on_unknown_outcome: Callable[[TaskRef], None] = lambda _: None
        """Is told of tasks whose claim may have been taken, or not: the store broke off in its commit."""

    def append(
        self, change: Append, on_result: Callable[[Appended | None], None] | None = None
    ) -> asyncio.Future[Appended]:
        """Writes `change`; after the commit publishes its events and calls `then`, in this order.

        `then` is called with None when nothing was written.

        The future may be abandoned or cancelled without any effect on that. It raises core.log.Refused, or what
        the store raised.
        """
        answer: asyncio.Future[Appended] = asyncio.get_running_loop().create_future()

        def committed(done: asyncio.Future[Appended]) -> None:
            error = done.exception()
            if error is None:
                appended = done.result()
                self.committed_events += len(appended.events)
                if appended.events and appended.record.visible:
                    self._bus.publish(change.task, appended.events)
                    if self._on_push_due is not None and appended.record.has_live_push:
                        self._on_push_due(change.task)
                if on_result is not None:
                    on_result(appended)
                if not answer.done():
                    answer.set_result(appended)
                return
            if isinstance(error, AppendRejected):
                self.rejected[error.reason] += 1
            elif change.claim_session and isinstance(error, Unavailable) and error.outcome_unknown:
                self.on_unknown_outcome(change.task)
            if on_result is not None:
                on_result(None)
            if not answer.done():
                answer.set_exception(error)
                answer.exception()  # counts as retrieved: nobody need be there to hear it
            elif not isinstance(error, AppendRejected):
                log.error("a write failed after its caller had gone", exc_info=error)

        self._store.append(change).add_done_callback(committed)
        return answer

    async def insist(
        self, change: Append, on_result: Callable[[Appended | None], None], log_fields: Callable[[], Mapping[str, str]]
    ) -> Appended:
        """Writes the end of a turn, as soon as the store can: the result is there, and a full disk may be emptied.

        `about` gives fields for the line that says that it waits. Raises core.log.Refused.
        """
        failures = 0
        while True:
            try:
                return await self.append(change, on_result)
            except Unavailable as error:
                log.error("the end of a turn waits for the store: %s", error, extra=log_fields())
            failures += 1
            await asyncio.sleep(STORE_RETRY_BACKOFF.delay(failures))

    async def read(
        self,
        query: Callable[[], Awaitable[T]],
        task: TaskRef,
        guard: Guard,
        log_fields: Callable[[], Mapping[str, str]],
    ) -> T:
        """What `read` gives the run of a task, as soon as the store can be asked. Raises what else `read` raises.

        Before the store is asked again, a change of nothing is written under the run's guard. It is refused
        (core.log.Refused) when others have taken the task over: the store may have been away for us alone.
        """
        failures = 0
        while True:
            try:
                if failures:
                    await self.append(Append(task=task, guard=guard))
                return await query()
            except Unavailable as error:
                log.error("a turn waits for the store: %s", error, extra=log_fields())
            failures += 1
            await asyncio.sleep(STORE_RETRY_BACKOFF.delay(failures))
