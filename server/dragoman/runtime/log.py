"""Appends to task logs, published after the commit; and reads of one task.

A caller that waits for an append may be canceled at any moment (a client disconnects), but what follows from the
commit must still happen. So the store's future is never handed out: its callback publishes to the bus, calls
`on_result`, and only then wakes the caller.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, TypeVar

from dragoman.core.cards.agent_spec import resume_metadata
from dragoman.core.durations import Backoff
from dragoman.core.errors import OutOfMemory, TaskNotFound, Unavailable
from dragoman.core.names import Owner, task_id_of
from dragoman.core.task import frames
from dragoman.core.task.log import Append, Appended, AppendRejected, Event, Exists, Guard, TaskRecord, TaskRef
from dragoman.core.task.projection import fold
from dragoman.ports import Bus, Store, TaskSnapshot
from dragoman.runtime.lease import Lease
from dragoman.runtime.timings import DEFAULT_TIMINGS
from dragoman.supervision import RepeatedFailures, log_fault
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

log = logging.getLogger("dragoman.runtime")

T = TypeVar("T")

MEMORY_RETRIES: Final = 2
"""Retries of the end of a turn while the server is out of memory; then the turn ends without its result."""


@dataclass(eq=False, repr=False)
class UnsettledClaims:
    """Claims of this process that its appends left open: with unknown outcome, or answered after a lapse of the lease.

    `runtime.sessions.ClaimRecovery` settles them.
    """

    wait: float = DEFAULT_TIMINGS.claim_wait
    """Seconds for which a task of unknown outcome may still appear in the store."""
    deadlines: dict[TaskRef, float] = field(default_factory=dict, init=False)
    """Tasks with a claim of unknown outcome: the store failed during the commit. Each with the loop's time until
    which it may still appear."""
    late: list[TaskRecord] = field(default_factory=list, init=False)
    """Claims that succeeded, but whose answer came after the lease had lapsed. Callers see no claim."""
    waiting: asyncio.Event = field(default_factory=asyncio.Event, init=False)  # set while a claim is unsettled

    def add_unknown(self, task: TaskRef) -> None:
        self.deadlines[task] = asyncio.get_running_loop().time() + self.wait
        self.waiting.set()

    def add_late(self, record: TaskRecord) -> None:
        """Notes a claim whose turn must not begin here."""
        self.late.append(record)
        self.waiting.set()


MAX_FAILED_APPENDS: Final = 3  # failures in a row after which the store is a problem at once
PROBE_TASK: Final = TaskRef(Owner("", ""), bytes(16))  # no task has this id
PROBE_NAME: Final = "probe"
PROBE_BYTES: Final = 16 * 1024  # bytes of a probe: needs free pages, unlike the renewal of a session


class StoreHealth:
    """Whether the store takes appends, for `/readyz` and gRPC health: the notes of `EventLog`, on its event loop.

    The store is a problem when no append has succeeded for a while although some wait or fail, or when the last ones
    failed, whatever the cause. While they fail, a probe writes what an append writes, so that the server is ready again
    without traffic.
    """

    def __init__(self, *, max_wait: float = 5.0, clock: Callable[[], float] = time.monotonic) -> None:
        """max_wait: seconds without a successful append after which the store is a problem."""
        self._max_wait = max_wait
        self.clock = clock
        self.waiting = 0  # appends that the store has not answered
        self.since = 0.0  # since when, by the clock, no append has succeeded although one waits or the last one failed
        self.failures = 0  # failed appends and probes since the last success
        self._failed_appends = 0
        self._reason = ""
        self._failing = asyncio.Event()

    @property
    def problem(self) -> str:
        """Why the store is not usable; empty if it is."""
        if self.failures >= MAX_FAILED_APPENDS:
            return f"the last writes failed: {self._reason}"
        seconds = self.clock() - self.since
        if (self.waiting or self.failures) and seconds >= self._max_wait:
            return f"no write has succeeded for {seconds:.0f} s: {self._reason or 'the store does not respond'}"
        return ""

    def note_failure(self, error: BaseException) -> None:
        """Notes an append that failed for another reason than its guard."""
        self._failed_appends += 1
        self._note(error)

    def _note(self, error: BaseException) -> None:
        self.failures += 1
        self._reason = str(error) if isinstance(error, Unavailable) else "see the log"
        self._failing.set()

    async def probe_forever(self, store: Store, interval: float) -> None:
        """Probes the store every `interval` seconds while appends fail, until canceled."""
        failed_before = self._failed_appends
        while True:
            await self._failing.wait()
            await asyncio.sleep(interval)
            if self.failures:
                try:
                    await probe_store(store)
                except Exception as error:
                    self._note(error)
                else:
                    if self._failed_appends == failed_before:  # else real appends fail where the probe does not
                        self.failures = 0
                failed_before = self._failed_appends
            if not self.failures:
                self.since, self._reason = self.clock(), ""
                self._failing.clear()


async def probe_store(store: Store) -> None:
    """Locks what an append locks, and writes and removes PROBE_BYTES. Raises the store's error."""
    try:
        await store.append(Append(task=PROBE_TASK, guard=Exists()))
    except AppendRejected:
        pass
    before = await store.key_values.get(PROBE_NAME)
    text = secrets.token_hex(PROBE_BYTES // 2)
    if await store.key_values.compare_and_set(PROBE_NAME, text, expected=before):  # else another server probes
        await store.key_values.compare_and_set(PROBE_NAME, "", expected=text)


@dataclass(eq=False, repr=False)
class EventLog:
    """Appends to tasks and publishes committed events."""

    store: Store
    bus: Bus
    on_push_due: Callable[[TaskRef], None] | None = None
    """Called for tasks that got events and have live push configurations."""
    lease: Lease | None = None  # of this process; None if no other process uses the store
    retry: Backoff = DEFAULT_TIMINGS.store_retry  # while the store is unavailable
    claims: UnsettledClaims = field(default_factory=UnsettledClaims)  # where it notes claims that are left open
    health: StoreHealth = field(default_factory=StoreHealth)  # where it notes whether appends succeed
    committed_events: int = field(default=0, init=False)  # events committed by this process
    rejected: Counter[str] = field(default_factory=Counter, init=False)  # rejected appends, by reason
    _failures: RepeatedFailures = field(default_factory=partial(RepeatedFailures, log), init=False)

    def append(
        self,
        change: Append,
        on_result: Callable[[Appended | None], None] | None = None,
        is_over: Callable[[], bool] | None = None,
        attempt: int = 1,
        future: asyncio.Future[Appended] | None = None,
    ) -> asyncio.Future[Appended]:
        """Writes `change`; after the commit publishes its events, then calls `on_result`.

        `on_result` gets None when the append failed; after an unknown outcome it may have been written
        (`UnsettledClaims`). Abandoning or cancelling the future has no effect on the append. `is_over`: of a turn,
        whose change is tried again while the store is unavailable, until the turn is over; only such a retry passes its
        `attempt`, and the `future` of the first. The future raises core.task.log.AppendRejected or the store's error.
        """
        if future is None:
            future = asyncio.get_running_loop().create_future()
        hold = self.lease.hold() if self.lease is not None and change.claim_session else None
        health = self.health
        if not (health.waiting or health.failures):
            health.since = health.clock()
        health.waiting += 1

        def settle(outcome: asyncio.Future[Appended]) -> None:
            error = outcome.exception()
            health.waiting -= 1
            if error is None or isinstance(error, AppendRejected):
                if error is None:  # a rejected append has written nothing
                    health.failures = 0
                if not health.failures:
                    health.since = health.clock()
            else:
                health.note_failure(error)
                was_not_written = isinstance(error, Unavailable) and not error.outcome_unknown
                if is_over is not None and was_not_written and not isinstance(error, OutOfMemory) and not is_over():
                    self._failures.log(str(error), "events of a turn wait for the store: %s")
                    again = partial(self.append, change, on_result, is_over, attempt + 1, future)
                    asyncio.get_running_loop().call_later(self.retry.delay(attempt), again)
                    return
            if error is None:
                appended = outcome.result()
                if hold is not None and appended.claimed and hold.lost:
                    self.claims.add_late(appended.record)
                    appended = replace(appended, claimed=False)
                self._publish(appended)
                try:
                    if on_result is not None:
                        on_result(appended)
                except Exception as failure:
                    log_fault(log, "what follows from a commit failed", failure, task=appended.record.id)
                    if appended.claimed:  # the turn has to begin all the same
                        self.claims.add_unknown(change.task)
                    if not future.done():
                        future.set_exception(failure)
                        future.exception()
                if not future.done():
                    future.set_result(appended)
                return
            if isinstance(error, AppendRejected):
                self.rejected[error.reason] += 1
            elif change.claim_session and isinstance(error, Unavailable) and error.outcome_unknown:
                self.claims.add_unknown(change.task)
            try:
                if on_result is not None:
                    on_result(None)
            except Exception as failure:
                log_fault(log, "what follows from a failed commit failed", failure, task=task_id_of(change.task.key))
            if not future.done():
                future.set_exception(error)
                future.exception()  # marks it as retrieved: the caller may have disconnected
            elif isinstance(error, Unavailable):
                self._failures.log(str(error), "a write failed after its caller had disconnected: %s")
            elif not isinstance(error, AppendRejected):
                log.error("a write failed after its caller had disconnected", exc_info=error)

        self.store.append(change).add_done_callback(settle)
        return future

    def _publish(self, appended: Appended) -> None:
        """Tells subscribers and webhooks of committed events. What fails here, their polls of the store find."""
        self.committed_events += len(appended.events)
        if not (appended.events and appended.record.visible):
            return
        try:
            self.bus.publish(appended.record.ref, appended.events)
            if self.on_push_due is not None and appended.record.has_live_push:
                self.on_push_due(appended.record.ref)
        except Exception as error:
            log_fault(log, "events could not be published; subscribers get them later", error, task=appended.record.id)

    async def insist(
        self, change: Append, on_result: Callable[[Appended | None], None], log_fields: Callable[[], Mapping[str, str]]
    ) -> Appended:
        """Writes the end of a turn, retrying for as long as the store is unavailable.

        The agent's result must not be lost, and a full disk may be emptied. But a result that does not fit into memory
        is given up after MEMORY_RETRIES. `log_fields` gives the fields of the log line about waiting. Raises
        core.task.log.AppendRejected, OutOfMemory.
        """
        failures = 0
        while True:
            try:
                return await self.append(change, on_result)
            except Unavailable as error:
                if isinstance(error, OutOfMemory) and failures >= MEMORY_RETRIES:
                    raise
                self._failures.log(str(error), "the end of a turn waits for the store: %s", fields=log_fields())
            failures += 1
            await asyncio.sleep(self.retry.delay(failures))

    async def retry_read(
        self,
        query: Callable[[], Awaitable[T]],
        task: TaskRef,
        guard: Guard,
        log_fields: Callable[[], Mapping[str, str]],
    ) -> T:
        """Returns the result of `query`, retrying for as long as the store is unavailable.

        Before each retry an empty change is appended under the run's guard. It is rejected
        (core.task.log.AppendRejected) when another session has taken the task over: the store may have been unreachable
        for this process alone. Raises what `query` raises.
        """
        failures = 0
        while True:
            try:
                if failures:
                    await self.append(Append(task=task, guard=guard))
                return await query()
            except Unavailable as error:
                self._failures.log(str(error), "a turn waits for the store: %s", fields=log_fields())
            failures += 1
            await asyncio.sleep(self.retry.delay(failures))


async def read_task(store: Store, task: TaskRef, *, history: int | None = None, artifacts: bool = True) -> TaskSnapshot:
    """Reads one task, with its last `history` messages (None: all). Raises TaskNotFound."""
    snapshot = await store.read(task, history=history, artifacts=artifacts)
    if snapshot is None:
        raise TaskNotFound
    return snapshot


def task_event(snapshot: TaskSnapshot) -> Event:
    """The complete Task as one event, with the sequence of its last event."""
    return Event(snapshot.record.last_sequence, frames.frame(1, snapshot.task), snapshot.record.state)


def gap_event(snapshot: TaskSnapshot, after: int) -> Event:
    """The complete Task for a reader whose next event, the one after `after`, is no longer in the log."""
    event = task_event(snapshot)
    gap: dict[str, str | float | bool] = {"gap": True, "from": after, "sequence": event.sequence}
    return Event(event.sequence, event.data + resume_metadata(1, gap), event.state)


SNAPSHOT_READ_EVENTS: Final = 256  # events read from a log at a time
MAX_FOLDED_BYTES: Final = 16 * 1024 * 1024  # bytes of events that are folded in memory for a Task of an earlier state


@dataclass(eq=False, repr=False)
class TaskSnapshots:
    """One task as it was at several of its events, requested in order.

    Of a task with more than `max_bytes` of events, only the status is that of the event; artifacts and history are
    those of now, as GetTask shows them.
    """

    store: Store
    ref: TaskRef
    max_bytes: int = MAX_FOLDED_BYTES
    _task: pb.Task = field(default_factory=pb.Task, init=False)
    _sequence: int = field(default=0, init=False)
    _folded_bytes: int = field(default=0, init=False)

    async def task_at(self, event: Event) -> Event:
        """The Task at a status event. Raises TaskNotFound, and core.task.log.LogTruncated when events are missing."""
        snapshot = await read_task(self.store, self.ref)
        update = pb.StreamResponse.FromString(event.data)
        status = update.task.status if update.HasField("task") else update.status_update.status
        if (snapshot.record.state, snapshot.record.updated) == (status.state, status.timestamp.ToMilliseconds()):
            data = frames.frame(1, snapshot.task)  # it still has the status that the event brought
        else:
            await self._fold_to(event.sequence)
            response = pb.StreamResponse()
            response.task.CopyFrom(self._task)
            current = pb.Task.FromString(snapshot.task)
            if current.HasField("metadata"):  # the only part of a task that no event brings
                response.task.metadata.CopyFrom(current.metadata)
            if self._folded_bytes > self.max_bytes:
                response.task.artifacts.MergeFrom(current.artifacts)
                response.task.history.MergeFrom(current.history)
            if snapshot.record.last_received > 1:
                response.task.ClearField("history")
            data = response.SerializeToString()
        return Event(event.sequence, data, event.state, event.ends, event.cursor)

    async def _fold_to(self, sequence: int) -> None:
        while self._sequence < sequence:
            events = await self.store.events(self.ref, self._sequence, SNAPSHOT_READ_EVENTS)
            if not events:
                raise TaskNotFound
            for event in events:
                if self._sequence < event.sequence <= sequence:
                    self._fold(event)
                    self._sequence = event.sequence

    def _fold(self, event: Event) -> None:
        self._folded_bytes += len(event.data)
        if self._folded_bytes <= self.max_bytes or event.state:
            fold(self._task, pb.StreamResponse.FromString(event.data))
        if self._folded_bytes > self.max_bytes:
            self._task.ClearField("artifacts")
            self._task.ClearField("history")
