"""Cancels that outlive whoever was asked, and whoever runs the task.

Whoever runs the task hears of a cancel by the bus, in milliseconds. Nobody is told that a task is being canceled before
that is on disk as well: the server that was asked may die, the bus may be away, and the task may be begun again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from dragoman.core.cards.agent_spec import AgentSpec
from dragoman.core.errors import TaskNotCancelable, TaskNotFound
from dragoman.core.task import states
from dragoman.core.task.log import Append, AppendRejected, NotTerminal, StatusChange, TaskRecord, TaskRef
from dragoman.ports import Bus, Store, TaskSignal, TaskSnapshot
from dragoman.runtime.feeds import Subscriber, TaskFeeds
from dragoman.runtime.log import EventLog
from dragoman.runtime.scheduler import Scheduler

log = logging.getLogger("dragoman.runtime")

CANCEL_TIMEOUT: Final = 2.0
"""Seconds that CancelTask waits for a running agent to stop before it answers with the task as it is."""

CANCEL_POLL_INTERVAL: Final = 2.0
"""Seconds between two looks for cancels that the bus did not bring, where there may be other servers."""


class CancelOperation:
    """Cancels of one process: those that are asked for here, and those of what runs here."""

    def __init__(
        self,
        store: Store,
        bus: Bus,
        event_log: EventLog,
        feeds: TaskFeeds,
        scheduler: Scheduler,
        agents: Mapping[str, AgentSpec],
        pending_waits: PendingWaits,
    ) -> None:
        self._store = store
        self._bus = bus
        self._log = event_log
        self._feeds = feeds
        self._scheduler = scheduler
        self._agents = agents
        self._pending_waits = pending_waits

    async def cancel(self, ref: TaskRef) -> bytes:
        """A serialized Task: CANCELED, or still active when the agent takes longer than CANCEL_WAIT to stop.

        Raises TaskNotCancelable when the task has ended, when a result came first, or when the agent does not
        let itself be canceled.
        """
        async with self._feeds.subscribe(ref) as subscriber:
            head = (await self._snapshot(ref, 0)).record
            self._check_cancelable(head)
            if head.running:
                subscriber.position = head.last_sequence
                await self._signal(ref, subscriber)
            else:
                await self._end_idle_task(ref)
        after = await self._snapshot(ref, None)
        if after.record.running:
            await self._store.cancel_requests.request(ref)
            if (run := self._scheduler.find_runner(ref)) is not None and not run.cancelled:
                await self.poll()  # a turn ended meanwhile, and it goes on with the next message
        elif after.record.ready:  # whoever ran it gave it back
            await self._end_idle_task(ref)
            after = await self._snapshot(ref, None)
        if states.is_terminal(after.record.state) and after.record.state != states.CANCELED:
            raise TaskNotCancelable("the task ended before it could be canceled")
        return after.task

    def _check_cancelable(self, record: TaskRecord) -> None:
        if states.is_terminal(record.state):
            raise TaskNotCancelable
        if not self._agents[record.agent].cancelable and (record.running or record.ready):
            raise TaskNotCancelable("this agent does not let a running task be canceled")
        run = self._scheduler.find_runner(record.ref)
        if run is not None and run.cancel_refusal:
            raise TaskNotCancelable(run.cancel_refusal)

    async def _signal(self, ref: TaskRef, subscriber: Subscriber) -> None:
        """Tells whoever runs the task to stop, and waits for a while."""
        deadline = asyncio.get_running_loop().time() + CANCEL_TIMEOUT
        if (run := self._scheduler.find_runner(ref)) is not None:
            run.cancel()
        else:  # it runs elsewhere, where the signal may not arrive
            await self._store.cancel_requests.request(ref)
            self._bus.publish_signal(ref, TaskSignal.CANCEL)
        await self._pending_waits.until_turn_ends(subscriber, deadline)

    async def _end_idle_task(self, ref: TaskRef) -> None:
        """Ends a task that nobody ran just now."""
        canceled = [StatusChange(states.CANCELED)]
        with suppress(AppendRejected):  # it ended in this moment, which whoever asked is told
            change = Append(task=ref, guard=NotTerminal(), events=canceled, release=True)
            self._scheduler.notify_canceled((await self._log.append(change)).record)

    async def _snapshot(self, ref: TaskRef, history: int | None) -> TaskSnapshot:
        snapshot = await self._store.read(ref, history=history)
        if snapshot is None:
            raise TaskNotFound
        return snapshot

    # What runs here ---------------------------------------------------------------------------------------------

    async def poll_forever(self) -> None:
        """Looks every LOOK seconds. Runs until cancelled."""
        while True:
            await asyncio.sleep(CANCEL_POLL_INTERVAL)
            try:
                await self.poll()
            except Exception:
                log.exception("could not look for cancels")

    async def poll(self) -> None:
        """Asks what runs here, and is to stop, to do so."""
        for ref in await self._store.cancel_requests.of_session(self._scheduler.session):
            if (run := self._scheduler.find_runner(ref)) is not None:
                run.cancel()


class PendingWaits:
    """Those of one process."""

    def __init__(self) -> None:
        self._timeouts: set[asyncio.Timeout] = set()
        self._released = False

    async def until_turn_ends(self, subscriber: Subscriber, deadline: float) -> None:
        """Follows until the turn ends, or until the loop's clock shows `deadline`, or `end`."""
        if self._released:
            return
        limit = asyncio.timeout_at(deadline)
        try:
            async with limit:
                self._timeouts.add(limit)
                while not (await subscriber.next()).ends:
                    pass
        except TimeoutError:
            return
        finally:
            self._timeouts.discard(limit)

    def release_all(self) -> None:
        """All are over as if their limit had come: the turn goes on elsewhere, and this process does not."""
        self._released = True
        now = asyncio.get_running_loop().time()
        for limit in self._timeouts:
            limit.reschedule(now)
