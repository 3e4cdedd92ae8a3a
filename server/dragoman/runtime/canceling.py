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

from dragoman.core import states
from dragoman.core.card import AgentSpec
from dragoman.core.errors import TaskNotCancelable, TaskNotFound
from dragoman.core.log import Append, Head, NotTerminal, Refused, StatusChange, TaskRef
from dragoman.ports import Bus, Signal, Snapshot, Store
from dragoman.runtime.dispatch import Dispatch
from dragoman.runtime.follow import Followers, Subscriber
from dragoman.runtime.log import Log
from dragoman.runtime.waits import Waits

log = logging.getLogger("dragoman.runtime")

CANCEL_WAIT: Final = 2.0
"""Seconds that CancelTask waits for a running agent to stop before it answers with the task as it is."""

LOOK: Final = 2.0
"""Seconds between two looks for cancels that the bus did not bring, where there may be other servers."""


class Canceling:
    """Cancels of one process: those that are asked for here, and those of what runs here."""

    def __init__(
        self,
        store: Store,
        bus: Bus,
        appends: Log,
        followers: Followers,
        dispatch: Dispatch,
        agents: Mapping[str, AgentSpec],
        waits: Waits,
    ) -> None:
        self._store = store
        self._bus = bus
        self._log = appends
        self._followers = followers
        self._dispatch = dispatch
        self._agents = agents
        self._waits = waits

    async def cancel(self, ref: TaskRef) -> bytes:
        """A serialized Task: CANCELED, or still active when the agent takes longer than CANCEL_WAIT to stop.

        Raises TaskNotCancelable when the task has ended, when a result came first, or when the agent does not
        let itself be canceled.
        """
        async with self._followers.subscribe(ref) as subscriber:
            head = (await self._snapshot(ref, 0)).head
            self._check(head)
            if head.running:
                subscriber.at = head.last
                await self._signal(ref, subscriber)
            else:
                await self._end(ref)
        after = await self._snapshot(ref, None)
        if after.head.running:
            await self._store.cancels.ask(ref)
            if (run := self._dispatch.run_of(ref)) is not None and not run.cancelled:
                await self.look()  # a turn ended meanwhile, and it goes on with the next message
        elif after.head.ready:  # whoever ran it gave it back
            await self._end(ref)
            after = await self._snapshot(ref, None)
        if states.is_terminal(after.head.state) and after.head.state != states.CANCELED:
            raise TaskNotCancelable("the task ended before it could be canceled")
        return after.task

    def _check(self, head: Head) -> None:
        if states.is_terminal(head.state):
            raise TaskNotCancelable
        if not self._agents[head.agent].cancelable and (head.running or head.ready):
            raise TaskNotCancelable("this agent does not let a running task be canceled")
        run = self._dispatch.run_of(head.ref)
        if run is not None and run.refusal:
            raise TaskNotCancelable(run.refusal)

    async def _signal(self, ref: TaskRef, subscriber: Subscriber) -> None:
        """Tells whoever runs the task to stop, and waits for a while."""
        deadline = asyncio.get_running_loop().time() + CANCEL_WAIT
        if (run := self._dispatch.run_of(ref)) is not None:
            run.cancel()
        else:  # it runs elsewhere, where the signal may not arrive
            await self._store.cancels.ask(ref)
            self._bus.signal(ref, Signal.CANCEL)
        await self._waits.until_turn_ends(subscriber, deadline)

    async def _end(self, ref: TaskRef) -> None:
        """Ends a task that nobody ran just now."""
        canceled = [StatusChange(states.CANCELED)]
        with suppress(Refused):  # it ended in this moment, which whoever asked is told
            change = Append(task=ref, guard=NotTerminal(), events=canceled, release=True)
            self._dispatch.let_go((await self._log.append(change)).head)

    async def _snapshot(self, ref: TaskRef, history: int | None) -> Snapshot:
        snapshot = await self._store.read(ref, history=history)
        if snapshot is None:
            raise TaskNotFound
        return snapshot

    # What runs here ---------------------------------------------------------------------------------------------

    async def keep_looking(self) -> None:
        """Looks every LOOK seconds. Runs until cancelled."""
        while True:
            await asyncio.sleep(LOOK)
            try:
                await self.look()
            except Exception:
                log.exception("could not look for cancels")

    async def look(self) -> None:
        """Asks what runs here, and is to stop, to do so."""
        for ref in await self._store.cancels.of(self._dispatch.session):
            if (run := self._dispatch.run_of(ref)) is not None:
                run.cancel()
