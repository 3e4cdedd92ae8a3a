"""Sessions: who may hold a claim, and what becomes of the tasks of those who are gone.

A process that runs agents holds one session row that expires, and puts its end off from a thread of its own: a loop
that an agent blocks must not look like a dead process. Every claim carries the session's number and a token. A reaper
in every process looks for tasks whose session has expired, and ends their turn or has it begun again; what a process
that was only paused writes after that is refused, because the token has moved on.

While the store is away nobody can renew, and when it is back every session has expired, of the living too. So who could
not renew in time itself takes nobody for dead for a whole lease: those who live renew in that time.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Final

from dragoman.core import states
from dragoman.core.card import AgentSpec
from dragoman.core.log import Append, Head, Refused, Runner, StatusChange
from dragoman.ports import Bus, Job, Store
from dragoman.runtime.log import Log
from dragoman.runtime.notices import INTERRUPTED, again, notice

log = logging.getLogger("dragoman.runtime")

LEASE: Final = 10.0
"""Seconds after which a session ends that nobody renews."""

RENEWED: Final = 2.0
"""Seconds between two renewals, and between two looks for the tasks of the dead."""

BATCH: Final = 256


class Heartbeat:
    """Keeps one session alive, from a thread of its own, from `start` until it is stopped."""

    def __init__(
        self,
        store: Store,
        session: int,
        *,
        lease: float = LEASE,
        every: float = RENEWED,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._store = store
        self._session = session
        self._lease = lease
        self._every = every
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="dragoman-session", daemon=True)
        self._beating = threading.Lock()
        self._renewed = clock()
        self._steady: float | None = self._renewed
        """Since when it was renewed in time, each time; None after a time when it could not be."""

    def start(self) -> None:
        """Begins."""
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread. The session then expires by itself."""
        self._stop.set()
        self._thread.join()
        with self._beating:  # of whoever asked
            pass

    def beat(self) -> bool:
        """Renews the session. Whether for a whole lease now it could be renewed, each time well before its end, so that
        sessions which have expired are of the dead. Blocks."""
        with self._beating:
            if self._stop.is_set():
                return False
            try:
                left = self._store.renew(self._session, self._lease) / 1000
            except Exception:
                log.exception("the session could not be renewed; others may take its tasks over")
                self._steady = None
                return False
            now = self._clock()
            if left < 0:
                log.warning("the session was over for %.1f s; others may have taken its tasks", -left)
            # By the store's clock and by ours: either of us may have stood still, or the clock may have jumped.
            late = min(left, self._lease - (now - self._renewed)) < self._lease / 2
            if late or self._steady is None:
                self._steady = now
            self._renewed = now
            return now - self._steady >= self._lease

    def _run(self) -> None:
        while not self._stop.wait(self._every):
            self.beat()


class Reaper:
    """Looks after the tasks of sessions that have expired."""

    def __init__(
        self,
        store: Store,
        bus: Bus,
        appends: Log,
        session: int,
        agents: Mapping[str, AgentSpec],
        sure: Callable[[], bool],
    ) -> None:
        """`sure`: whether sessions that have expired are of the dead. It is called in a thread."""
        self._store = store
        self._bus = bus
        self._log = appends
        self._session = session
        self._agents = agents
        self._sure = sure

    async def watch(self) -> None:
        """Looks every RENEWED seconds. Runs until cancelled."""
        while True:
            await asyncio.sleep(RENEWED)
            try:
                await self.reap()
            except Exception:
                log.exception("could not look for the tasks of dead sessions")

    async def reap(self) -> int:
        """Ends every such task as FAILED, INTERRUPTED, or has its turn begun again. Gives how many there were.

        A task that nobody had seen yet, and that is not to be tried again, is taken away instead. One that was to be
        canceled is.
        """
        found = 0
        while heads := await self._orphans():
            canceled = await self._store.cancels.among([head.ref for head in heads])
            ends = (self._one(head, canceled=head.ref in canceled) for head in heads)
            results = await asyncio.gather(*ends, return_exceptions=True)
            for result in results:
                if isinstance(result, BaseException) and not isinstance(result, Refused):
                    raise result
            found += len(heads)
        if found:
            log.warning("tasks whose process is gone, ended or begun again: %d", found)
        return found

    async def _orphans(self) -> list[Head]:
        heads = await self._store.orphans(self._session, BATCH)
        # After the look: the store may have been away during it.
        if heads and not await asyncio.to_thread(self._sure):
            heads = await self._store.orphans(self._session, BATCH, expired=False)
        return heads

    async def _one(self, head: Head, *, canceled: bool) -> None:
        guard = Runner(head.session, head.token)
        spec = self._agents.get(head.agent)
        if canceled:
            end = [StatusChange(states.CANCELED)]
            await self._log.append(Append(task=head.ref, guard=guard, events=end, release=True))
        elif spec is not None and head.attempt <= spec.retries:
            events = [again(head.attempt + 1)] if head.visible else []
            await self._log.append(Append(task=head.ref, guard=guard, events=events, retry=True))
            self._bus.offer(Job(head.agent, head.ref))
        elif not head.visible:
            await self._log.append(Append(task=head.ref, guard=guard, discard=True))
        else:
            await self._log.append(Append(task=head.ref, guard=guard, events=[notice(INTERRUPTED)], release=True))
