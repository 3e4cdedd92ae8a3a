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

from dragoman.core.cards.agent_spec import AgentSpec
from dragoman.core.errors import Unavailable
from dragoman.core.task import states
from dragoman.core.task.log import (
    ABSENT,
    Append,
    Appended,
    AppendRejected,
    ClaimHeld,
    NotTerminal,
    StatusChange,
    TaskRecord,
    TaskRef,
)
from dragoman.ports import Bus, Job, Store
from dragoman.runtime.log import EventLog
from dragoman.runtime.scheduler import Scheduler
from dragoman.runtime.turn.status import SERVER_STOPPED, retry_status, system_status

log = logging.getLogger("dragoman.runtime")

LEASE_SECONDS: Final = 10.0
"""Seconds after which a session ends that nobody renews."""

RENEW_INTERVAL: Final = 2.0
"""Seconds between two renewals, and between two looks for the tasks of the dead."""

ORPHAN_BATCH_SIZE: Final = 256


class Heartbeat:
    """Keeps one session alive, from a thread of its own, from `start` until it is stopped."""

    def __init__(
        self,
        store: Store,
        session: int,
        *,
        lease: float = LEASE_SECONDS,
        interval: float = RENEW_INTERVAL,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._store = store
        self._session = session
        self._lease = lease
        self._interval = interval
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="dragoman-session", daemon=True)
        self._renew_lock = threading.Lock()
        self._renewed = clock()
        self._renewed_since: float | None = self._renewed
        """Since when it was renewed in time, each time; None after a time when it could not be."""

    def start(self) -> None:
        """Begins."""
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread. The session then expires by itself."""
        self._stop.set()
        self._thread.join()
        with self._renew_lock:  # of whoever asked
            pass

    def renew(self) -> bool:
        """Renews the session. Whether for a whole lease now it could be renewed, each time well before its end, so that
        sessions which have expired are of the dead. Blocks."""
        with self._renew_lock:
            if self._stop.is_set():
                return False
            try:
                left = self._store.renew_session(self._session, self._lease) / 1000
            except Exception:
                log.exception("the session could not be renewed; others may take its tasks over")
                self._renewed_since = None
                return False
            now = self._clock()
            if left < 0:
                log.warning("the session was over for %.1f s; others may have taken its tasks", -left)
            # By the store's clock and by ours: either of us may have stood still, or the clock may have jumped.
            late = min(left, self._lease - (now - self._renewed)) < self._lease / 2
            if late or self._renewed_since is None:
                self._renewed_since = now
            self._renewed = now
            return now - self._renewed_since >= self._lease

    def _run(self) -> None:
        while not self._stop.wait(self._interval):
            self.renew()


class Reaper:
    """Looks after the tasks of sessions that have expired."""

    def __init__(
        self,
        store: Store,
        bus: Bus,
        event_log: EventLog,
        session: int,
        agents: Mapping[str, AgentSpec],
        trusts_expiry: Callable[[], bool],
    ) -> None:
        """`sure`: whether sessions that have expired are of the dead. It is called in a thread."""
        self._store = store
        self._bus = bus
        self._log = event_log
        self._session = session
        self._agents = agents
        self._trusts_expiry = trusts_expiry

    async def poll_forever(self) -> None:
        """Looks every RENEWED seconds. Runs until cancelled."""
        while True:
            await asyncio.sleep(RENEW_INTERVAL)
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
            canceled = await self._store.cancel_requests.pending([head.ref for head in heads])
            ends = (self._end_or_retry(head, canceled=head.ref in canceled) for head in heads)
            results = await asyncio.gather(*ends, return_exceptions=True)
            for result in results:
                if isinstance(result, BaseException) and not isinstance(result, AppendRejected):
                    raise result
            found += len(heads)
        if found:
            log.warning("tasks whose process is gone, ended or begun again: %d", found)
        return found

    async def _orphans(self) -> list[TaskRecord]:
        heads = await self._store.orphaned_tasks(self._session, ORPHAN_BATCH_SIZE)
        # After the look: the store may have been away during it.
        if heads and not await asyncio.to_thread(self._trusts_expiry):
            heads = await self._store.orphaned_tasks(self._session, ORPHAN_BATCH_SIZE, expired=False)
        return heads

    async def _end_or_retry(self, record: TaskRecord, *, canceled: bool) -> None:
        guard = ClaimHeld(record.session, record.token)
        spec = self._agents.get(record.agent)
        if canceled:
            end = [StatusChange(states.CANCELED)]
            await self._log.append(Append(task=record.ref, guard=guard, events=end, release=True))
        elif spec is not None and record.attempt <= spec.retries:
            events = [retry_status(record.attempt + 1)] if record.visible else []
            await self._log.append(Append(task=record.ref, guard=guard, events=events, retry=True))
            self._bus.publish_job(Job(record.agent, record.ref))
        elif not record.visible:
            await self._log.append(Append(task=record.ref, guard=guard, discard=True))
        else:
            await self._log.append(
                Append(task=record.ref, guard=guard, events=[system_status(SERVER_STOPPED)], release=True)
            )


CLAIM_POLL_INTERVAL: Final = 2.0
"""Seconds between two questions."""

CLAIM_BATCH_SIZE: Final = 64
"""Tasks that are asked for at the same time: what is known by then is begun before the next are asked for."""

CLAIM_WAIT_SECONDS: Final = 600.0
"""Seconds for which a task that is not there may still come: a commit that waits for a standby is not to be seen
meanwhile."""


class ClaimRecovery:
    """The claims of this process that nobody answered."""

    def __init__(self, event_log: EventLog, scheduler: Scheduler) -> None:
        self._log = event_log
        self._scheduler = scheduler
        self._deadlines: dict[TaskRef, float] = {}
        """For how long each is asked for while it is not there, on the loop's clock."""
        self._has_claims = asyncio.Event()
        event_log.on_unknown_outcome = self.add

    def add(self, task: TaskRef) -> None:
        """The store did not answer a claim of this task."""
        self._deadlines[task] = asyncio.get_running_loop().time() + CLAIM_WAIT_SECONDS
        self._has_claims.set()

    async def poll_forever(self) -> None:
        """Asks every AGAIN seconds while there is something to ask for. Runs until cancelled."""
        while True:
            await self._has_claims.wait()
            await asyncio.sleep(CLAIM_POLL_INTERVAL)
            try:
                await self.poll()
            except Exception:
                log.exception("could not ask what became of claims that the store did not answer")

    async def poll(self) -> None:
        """Asks for each once, and begins what is ours."""
        tasks = list(self._deadlines)
        for first in range(0, len(tasks), CLAIM_BATCH_SIZE):
            await asyncio.gather(*map(self._check, tasks[first : first + CLAIM_BATCH_SIZE]))
        if not self._deadlines:
            self._has_claims.clear()

    async def _check(self, task: TaskRef) -> None:
        # A change of nothing, no mere look: it waits for whoever is still writing the task.
        try:
            await self._log.append(Append(task=task, guard=NotTerminal()), self._on_result)
        except Unavailable:
            return
        except AppendRejected as no:
            if no.reason == ABSENT and asyncio.get_running_loop().time() < self._deadlines.get(task, 0.0):
                return
        self._deadlines.pop(task, None)

    def _on_result(self, appended: Appended | None) -> None:
        if appended is None:
            return
        head = appended.record
        if head.session == self._scheduler.session and self._scheduler.find_runner(head.ref) is None:
            log.warning("a task was claimed without an answer from the store; it begins now", extra={"task": head.id})
            self._scheduler.complete_reservation(0, head.agent, Appended(head, [], claimed=True), None)
