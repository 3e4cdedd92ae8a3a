"""Sessions: hold claims, and end or repeat the turns of dead processes.

A process that runs agents holds one session row that expires, and renews it from a thread of its own: an agent may
block the loop for some seconds, but not for longer (`LoopCheck`). Every claim carries the session's number and a
fencing token. A reaper in every process ends or repeats the turns of expired sessions, and later writes of a process
that was only paused are rejected. (Dead workers are noticed in agents/workers.) No process can renew during an outage
of the store, and afterwards every session has expired: a process that could not renew in time trusts no expiry for one
lease.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from dragoman.core.errors import Unavailable
from dragoman.core.task import states
from dragoman.core.task.log import (
    ABSENT,
    Append,
    Appended,
    AppendRejected,
    ClaimHeld,
    Exists,
    StatusChange,
    TaskRecord,
    TaskRef,
)
from dragoman.ports import Agent, Bus, Job, Store, is_called, is_remote
from dragoman.runtime.lease import Lease, LeaseHold
from dragoman.runtime.log import EventLog, UnsettledClaims
from dragoman.runtime.scheduler import Scheduler
from dragoman.runtime.timings import DEFAULT_TIMINGS
from dragoman.runtime.turn.finish import OUTCOME_UNKNOWN, SERVER_STOPPED, has_retries_left, retry_status, system_status
from dragoman.supervision import Background, log_fault, start_thread

log = logging.getLogger("dragoman.runtime")

LEASE_SECONDS: Final = 10.0  # seconds after which a session expires that is not renewed
RETRY_INTERVAL: Final = 0.5  # seconds until a failed renewal is repeated: its lease is short
FAILURE_LOG_INTERVAL: Final = 60.0  # seconds between two lines of the log about renewals that fail again and again

BLOCKED_LOOP: Final = "the event loop is blocked"
"""The failure of renewals that are not made, because the process does not run its loop."""

ORPHAN_BATCH_SIZE: Final = 256


@dataclass(eq=False, repr=False)
class Heartbeat:
    """Renews one session from a thread of its own, between `start` and `stop`."""

    store: Store
    session: int
    lease: float = LEASE_SECONDS
    interval: float = DEFAULT_TIMINGS.renew_interval
    clock: Callable[[], float] = time.monotonic
    run_lease: Lease | None = None  # extended by each renewal
    has_jumped: Callable[[float, float], bool] = lambda progress, elapsed: False
    """Compares the progress of the store's clock since the last renewal with the elapsed seconds."""
    loop_answers: Callable[[], bool] = lambda: True  # the thread renews only while this is true
    _stop: threading.Event = field(default_factory=threading.Event, init=False)
    _renew_lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    _thread: threading.Thread | None = field(default=None, init=False)
    _failure: str = field(default="", init=False)  # why the last renewal failed; empty if it succeeded
    _next_failure_log: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        self._renewed = self.clock()
        self._renewed_since: float | None = self._renewed
        """Start of the unbroken series of renewals in time; None after a failed renewal."""

    @property
    def problem(self) -> str:
        """Why the store is not usable: no renewal for two intervals. Empty if it is usable."""
        # By the clock, because a renewal may hang for as long as a statement may.
        age = self.clock() - self._renewed
        why = self._failure or "the store does not respond"
        return f"the session was not renewed for {age:.0f} s: {why}" if age > 2 * self.interval else ""

    def start(self) -> None:
        self._thread = start_thread(Background.SESSION, self._run)

    def stop(self) -> None:
        """Ends the thread. The session then expires by itself."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        with self._renew_lock:  # waits for a renewal of another thread
            pass

    async def close(self) -> None:
        await asyncio.to_thread(self.stop)

    async def renew_in_thread(self) -> bool:
        """As `renew`, without blocking the loop."""
        return await asyncio.to_thread(self.renew)

    def renew(self) -> bool:
        """Renews the session. Blocks.

        True if every renewal was in time for one whole lease, so that expired sessions belong to dead processes.
        """
        with self._renew_lock:
            if self._stop.is_set():
                return False
            began = self.begin_renewal()
            try:
                remaining = self.store.renew_session(self.session, self.lease)
            except Exception as error:
                return self.note_failure(error)
            return self.note_renewal(began, remaining)

    @property
    def delay(self) -> float:
        """Seconds until the next renewal."""
        return self.interval if self._renewed_since is not None else RETRY_INTERVAL

    # The parts of a renewal, for one that does not block -------------------------------------------------------------

    def begin_renewal(self) -> float:
        """The time from which the lease counts, if the renewal that begins now succeeds."""
        return self.run_lease.now() if self.run_lease is not None else 0.0

    def note_failure(self, error: Exception) -> bool:
        """Notes that the store has not renewed the session, or not answered. Returns False, as `renew` does then."""
        now = self.clock()
        if not self._failure or now >= self._next_failure_log:
            self._next_failure_log = now + FAILURE_LOG_INTERVAL
            shared = "the session could not be renewed; other processes may take over its tasks"
            log_fault(log, shared if self.run_lease is not None else "the session could not be renewed", error)
        self._failure = str(error) if isinstance(error, Unavailable) else "see the log"
        self._renewed_since = None
        return False

    def note_renewal(self, began: float, remaining_ms: int) -> bool:
        """Notes the store's answer to a renewal that `began`. Returns what `renew` returns."""
        if self.run_lease is not None:
            self.run_lease.extend(began, self.lease)
        now, remaining = self.clock(), remaining_ms / 1000
        if remaining < 0:
            log.warning("the session had expired for %.1f s; other processes may have taken over its tasks", -remaining)
        # Measured by both clocks: this process or the store may have been paused, or a clock may have jumped.
        late = min(remaining, self.lease - (now - self._renewed)) < self.lease / 2
        # After a failed renewal nobody knows which one set the expiry. After a jump live sessions renew first.
        is_measured = self._renewed_since is not None
        jumped = is_measured and self.has_jumped(self.lease - remaining, now - self._renewed)
        if late or jumped or self._renewed_since is None:
            self._renewed_since = now
        self._renewed, self._failure = now, ""
        return now - self._renewed_since >= self.lease

    def _run(self) -> None:
        while not self._stop.wait(self.delay):
            if self.loop_answers():
                self.renew()
                continue
            if self._failure != BLOCKED_LOOP:
                log.error("the session is not renewed, so other processes take over its tasks: %s", BLOCKED_LOOP)
            self._failure, self._renewed_since = BLOCKED_LOOP, None


@dataclass(frozen=True, slots=True)
class BlockedLoop:
    """Where the last process of a store blocked its event loop, until it ended itself."""

    agent: str  # empty if it is unknown
    location: str  # the name of a file of the agent's author, and the line

    def reason(self, agent: str) -> str:
        """The reason in the status of an agent's interrupted tasks. Names only its own code."""
        if agent == self.agent:
            return f'Its agent blocked the event loop of the server: "{agent}", {self.location}.'
        if self.agent:
            return "Another agent blocked the event loop of the server."
        return f"The event loop of the server was blocked: {self.location}."


@dataclass(eq=False, repr=False)
class Reaper:
    """Ends or repeats the turns of expired sessions."""

    store: Store
    bus: Bus
    event_log: EventLog
    session: int
    agents: Mapping[str, Agent]
    trusts_expiry: Callable[[], Awaitable[bool]]  # whether expired sessions belong to dead processes
    clock: Callable[[], float] = time.monotonic
    blocked: BlockedLoop | None = None  # why the last process ended, if that is known and no other uses the store
    left_cancels: bool = field(default=False, init=False)  # whether turns were repeated that have to be canceled
    _ended: dict[int, float] = field(default_factory=dict, init=False)
    """When sessions that were ended early were first seen: their workers may still run their tasks."""

    async def reap(self) -> int:
        """Ends each task that a dead session holds as FAILED (INTERRUPTED), or has its turn repeated. Returns how many.

        Nothing of that happens while a worker may still run the agent: it may outlive its server by a lease. A task
        that is not visible yet and not to be repeated is discarded. One with a cancel request ends as CANCELED, but an
        upstream agent is asked again, by another attempt.
        """
        count = 0
        seen: dict[TaskRef, int] = {}  # an append to a damaged record may be rejected again and again
        while True:
            limit = ORPHAN_BATCH_SIZE + len(seen) - count  # those that wait do not hide the others
            if not (records := [record for record in await self._orphans(limit) if record.ref not in seen]):
                break
            seen.update((record.ref, record.session) for record in records)
            records = await self._without_running_workers(records, limit)
            canceled = await self.store.cancel_requests.pending([record.ref for record in records])
            reaped = (self._end_or_retry(record, canceled=record.ref in canceled) for record in records)
            results = await asyncio.gather(*reaped, return_exceptions=True)
            for result in results:
                if isinstance(result, BaseException) and not isinstance(result, AppendRejected):
                    raise result
            count += len(records)
        self._ended = {session: since for session, since in self._ended.items() if session in seen.values()}
        if count:
            log.warning("tasks of dead processes, ended or repeated: %d", count)
        return count

    async def _without_running_workers(self, records: list[TaskRecord], limit: int) -> list[TaskRecord]:
        """The records without tasks whose workers may still run them."""
        if not any(self._is_worker_backed(one.agent) for one in records):
            return records
        # A worker's lease outlasts only a session that the store ended early, because its process died on its machine.
        # Then one lease has to pass.
        now = self.clock()
        for record in await self.store.orphaned_tasks(self.session, limit, expired=False):
            self._ended.setdefault(record.session, now)
        recent = {session for session, since in self._ended.items() if now - since < LEASE_SECONDS}
        return [one for one in records if one.session not in recent or not self._is_worker_backed(one.agent)]

    def _is_worker_backed(self, agent: str) -> bool:
        return is_remote(served := self.agents.get(agent)) and served.is_worker_backed

    async def _orphans(self, limit: int) -> list[TaskRecord]:
        records = await self.store.orphaned_tasks(self.session, limit)
        # After the query: the store may have been unavailable meanwhile.
        if records and not await self.trusts_expiry():
            records = await self.store.orphaned_tasks(self.session, limit, expired=False)
        return records

    async def _end_or_retry(self, record: TaskRecord, *, canceled: bool) -> None:
        guard = ClaimHeld(record.session, record.token)
        agent = self.agents.get(record.agent)
        if canceled and is_called(agent):
            self.left_cancels = True
            await self._repeat(record, guard)
        elif canceled:
            end = [StatusChange(states.CANCELED) if agent is not None else system_status(OUTCOME_UNKNOWN, record)]
            await self.event_log.append(Append(task=record.ref, guard=guard, events=end, release=True))
        elif agent is not None and has_retries_left(record, agent.spec.crash_retries):
            await self._repeat(record, guard)
        elif not record.visible:
            await self.event_log.append(Append(task=record.ref, guard=guard, discard=True))
        else:
            end = [system_status(SERVER_STOPPED, record, self._reason(record))]
            await self.event_log.append(Append(task=record.ref, guard=guard, events=end, release=True))

    def _reason(self, record: TaskRecord) -> str:
        return self.blocked.reason(record.agent) if self.blocked is not None else ""

    async def _repeat(self, record: TaskRecord, guard: ClaimHeld) -> None:
        events = [retry_status(record.attempt + 1, self._reason(record))] if record.visible else []
        await self.event_log.append(Append(task=record.ref, guard=guard, events=events, retry=True))
        self.bus.publish_job(Job(record.agent, record.ref))


CLAIM_BATCH_SIZE: Final = 64  # tasks checked at the same time; claims found are begun before the next batch
CLOSE_RETRY_SECONDS: Final = 0.25  # between checks at the end of the process, while the store does not respond


@dataclass(eq=False, repr=False)
class ClaimRecovery:
    """Settles claims of this process that its appends left open."""

    claims: UnsettledClaims  # of this event log
    event_log: EventLog
    scheduler: Scheduler
    lease: Lease | None = None  # of this process; None if no other process uses the store
    poll_interval: float = DEFAULT_TIMINGS.claim_poll_interval  # seconds between polls

    async def close(self, seconds: float) -> None:
        """Gives back the claims that it finds, for at most so many seconds. The scheduler has to be draining.

        Tries again while the store does not respond.
        """
        if not self.claims.waiting.is_set():
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while True:
                    answered = await self.poll()
                    await self.give_back_late()
                    if answered:
                        return
                    await asyncio.sleep(CLOSE_RETRY_SECONDS)

    async def poll_forever(self) -> None:
        """Gives late claims back, and polls while there are claims of unknown outcome, until canceled."""
        while True:
            await self.claims.waiting.wait()
            await self.give_back_late()
            if self.claims.deadlines:
                await asyncio.sleep(self.poll_interval)
                await self.poll()

    async def give_back_late(self) -> None:
        """Releases the claims whose turns must not begin here: the lease has lapsed since."""
        await asyncio.gather(*map(self._give_back, self.claims.late))
        self._clear_if_settled()

    async def poll(self) -> bool:
        """Checks each claim of unknown outcome once, and begins the turns that it has, unless it is draining.

        Returns whether the store responded to all checks.
        """
        tasks = list(self.claims.deadlines)
        answers: list[bool] = []
        for first in range(0, len(tasks), CLAIM_BATCH_SIZE):
            answers += await asyncio.gather(*map(self._check, tasks[first : first + CLAIM_BATCH_SIZE]))
        self._clear_if_settled()
        return all(answers)

    def _clear_if_settled(self) -> None:
        if not (self.claims.late or self.claims.deadlines):
            self.claims.waiting.clear()

    async def _check(self, task: TaskRef) -> bool:
        """Settles a claim, unless its task may still appear. Returns whether the store responded."""
        # An empty append instead of a read: it waits for a pending write of the task.
        hold = self.lease.hold() if self.lease is not None else None
        try:
            await self.event_log.append(
                Append(task=task, guard=Exists()), lambda appended: self._on_result(appended, hold)
            )
        except Unavailable:
            return False
        except AppendRejected as rejection:
            if rejection.reason == ABSENT and asyncio.get_running_loop().time() < self.claims.deadlines.get(task, 0.0):
                return True
        self.claims.deadlines.pop(task, None)
        return True

    async def _give_back(self, record: TaskRecord) -> None:
        # It has not begun, so the next run of it is no further attempt.
        change = Append(task=record.ref, guard=ClaimHeld(record.session, record.token), suspend=True)
        try:
            fields = {"task": record.id, "agent": record.agent}
            await self.event_log.insist(change, self._on_returned, lambda: fields)
        except AppendRejected:
            pass  # another process has taken it over
        except Exception as error:
            log_fault(log, "a late claim could not be released", error, task=record.id)
            self.claims.add_unknown(record.ref)
        # Not when it is canceled: then `close` gives it back.
        self.claims.late = [late for late in self.claims.late if late is not record]

    def _on_returned(self, appended: Appended | None) -> None:
        if appended is not None:
            self.scheduler.follow_up(appended)

    def _on_result(self, appended: Appended | None, hold: LeaseHold | None) -> None:
        if appended is None:
            return
        record = appended.record
        runner = self.scheduler.runs.find(record.ref)  # perhaps of an earlier claim, whose end has no answer yet
        if record.session != self.scheduler.session or (runner and runner.context.record.token >= record.token):
            return
        if self.scheduler.draining or (hold is not None and hold.lost):  # a drain does not wait for what begins now
            self.claims.add_late(record)
        else:
            log.warning("a claim of unknown outcome had succeeded; the turn begins now", extra={"task": record.id})
            self.scheduler.follow_up(Appended(record, [], claimed=True))
