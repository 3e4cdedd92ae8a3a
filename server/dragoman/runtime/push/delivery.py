"""Delivering to one receiver: the log of a task from a cursor on, one event after the other, each until it is taken.

A carrier is a follower as every reader of a stream is; what makes it one of its own is that its cursor is in the store.
The next event is posted only when the cursor stands behind the last one, so a crash repeats one event for each receiver
at most. A failure ends it: when to try again is in the store, where somebody finds it, and nothing waits in memory.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

from dragoman.core.cards.agent_spec import resume_metadata
from dragoman.core.counters import Histogram
from dragoman.core.errors import TaskNotFound
from dragoman.core.push.delivery import (
    DeliveryAttempt,
    DeliveryOutcome,
    DeliveryReport,
    PushRecord,
    PushRetryPolicy,
    PushState,
    failure_reason,
    retry_after_seconds,
)
from dragoman.core.task import frames
from dragoman.core.task.log import Event, LogTruncated, TaskRef
from dragoman.core.task.projection import fold
from dragoman.core.trace import TRACE_HEADER, is_recorded
from dragoman.ports import (
    ConnectFailed,
    OutboundFailed,
    OutboundForbidden,
    OutboundHttp,
    OutboundResponse,
    PushStore,
    Store,
    TaskSnapshot,
    WebhookEncoder,
)
from dragoman.ports.tracing import Tracer
from dragoman.runtime.feeds import Subscriber, TaskFeeds
from dragoman.runtime.observe.tracing import task_trace_context
from dragoman.runtime.push.breaker import HostBreaker
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

log = logging.getLogger("dragoman.push")

CLAIM_HOLD_SECONDS: Final = 2.0
"""Seconds that a carrier waits for the next event before it lets go of its claim."""

MAX_ERROR_LENGTH: Final = 300
"""Characters that are kept of why a try failed."""


@dataclass(slots=True)
class DeliveryCounters:
    """What came of calls so far. Counters only grow."""

    outcomes: Counter[DeliveryOutcome] = field(default_factory=Counter)
    given_up: int = 0
    """Receivers that were given up."""
    seconds: Histogram = field(default_factory=Histogram)
    """How long receivers took to answer, or not to."""


@dataclass(frozen=True, slots=True)
class DeliveryDeps:
    """What carriers share. `dice` gives numbers from 0 to 1, `clock` seconds that only grow."""

    store: Store
    feeds: TaskFeeds
    outbound: OutboundHttp
    encoder: WebhookEncoder
    recorder: DeliveryRecorder
    retry_policy: PushRetryPolicy
    random: Callable[[], float]
    clock: Callable[[], float]
    now: Callable[[], datetime]
    host_limiter: Callable[[str], AbstractAsyncContextManager[None]]
    """A turn to call a host: so many calls at a time, and so many for each host."""
    breaker: HostBreaker
    claim_hold: float = CLAIM_HOLD_SECONDS
    counters: DeliveryCounters = field(default_factory=DeliveryCounters)
    tracer: Tracer | None = None


class PushDelivery:
    """Delivers what one push still has, as long as its claim holds and its receiver takes it."""

    def __init__(self, push: PushRecord, deps: DeliveryDeps) -> None:
        self.push = push
        self._deps = deps
        self._last_delivered = push.last_delivered
        self._last_state_sent = push.last_state_sent
        self._sends_task = deps.encoder.sends_task(push.config.dialect)
        self._snapshots = TaskSnapshots(deps.store, push.task)
        self._pending: Event | None = None
        """An event that was read, and that there was no turn for yet."""
        self._wait_timeout: asyncio.Timeout | None = None
        self._must_revalidate = False
        self._stopping = False
        self._parent_trace: str | None = None
        """The trace of the task, once it was looked up."""

    def revalidate(self) -> None:
        """The configuration may have changed: the claim is looked at before anything more is sent."""
        self._must_revalidate = True
        self._end_wait()

    def stop(self) -> None:
        """Ends it after the event that it is posting."""
        self._stopping = True
        self._end_wait()

    async def run(self) -> None:
        """Delivers. Returns when there is no more to do here."""
        means = self._deps
        async with means.feeds.subscribe(self.push.task) as subscriber:
            subscriber.resume_after(self._last_delivered, self.push.last_sequence)
            try:
                while not self._stopping and await self._deliver_next(subscriber):
                    pass
                if self._stopping and self.push.session:
                    await self._record(DeliveryOutcome.SKIPPED, hand_over=True)
            except TaskNotFound:  # erased, and its configurations with it
                return
            except Exception:
                log.exception("a push broke off; it is tried again", extra={"task": self.push.task_id})
                attempt = DeliveryAttempt(sequence=self._last_delivered + 1, error="this server could not do it")
                await self._record(
                    DeliveryOutcome.FAILED, attempt, retry_delay=means.retry_policy.delay(self.push.failures + 1, 1.0)
                )

    @property
    def _interrupted(self) -> bool:
        return self._must_revalidate or self._stopping

    def _end_wait(self) -> None:
        if self._wait_timeout is not None and not self._wait_timeout.expired():
            self._wait_timeout.reschedule(0)  # a deadline that is over

    # One event --------------------------------------------------------------------------------------------------

    async def _deliver_next(self, subscriber: Subscriber) -> bool:
        """Deals with the next event. False when there is nothing more to do here."""
        if self._must_revalidate:
            self._must_revalidate = False
            return await self._record(DeliveryOutcome.SKIPPED)
        try:
            event = self._pending
            if event is None:
                event = await self._next_event(subscriber)
            if event is None:
                return await self._record(DeliveryOutcome.SKIPPED, release=True)
            if event.sequence <= self._last_delivered:  # told already, with the Task that came after a gap
                return True
            if self._sends_task and not (event.state and event.state != self._last_state_sent):
                self._last_delivered = event.sequence  # nothing that this receiver is told
                return True
            self._pending = event
            if self._sends_task:
                event = await self._snapshots.task_at(event)
        except LogTruncated:
            event = subscriber.attach_cursor(
                await current_task_event(self._deps.store, self.push.task, self._last_delivered)
            )
            subscriber.position = event.sequence
        host = self.push.config.host
        async with self._deps.breaker.call(host) as why, self._deps.host_limiter(host):
            if self._interrupted:  # waiting for a turn may have taken long
                return True
            self._pending = None
            return await self._post(event, why)

    async def _next_event(self, subscriber: Subscriber) -> Event | None:
        """The next event; None when none comes for a while, or when there is something else to look at."""
        try:
            async with asyncio.timeout(self._deps.claim_hold) as self._wait_timeout:
                await subscriber.wait_for_events()
        except TimeoutError:
            return None
        finally:
            self._wait_timeout = None
        return await subscriber.next()

    async def _post(self, event: Event, skip_reason: str) -> bool:
        """Posts an event, unless there is a reason why that would be in vain."""
        means, config = self._deps, self.push.config
        began = means.clock()
        answer = self._call_receiver if means.tracer is None else self._call_traced
        reply, error = (None, skip_reason) if skip_reason else await answer(event)
        ms = round((means.clock() - began) * 1000)
        status = reply.status if reply else 0
        attempt = DeliveryAttempt(
            sequence=event.sequence, status=status, error=error[:MAX_ERROR_LENGTH], duration_ms=ms
        )
        if 200 <= status < 300:
            self._last_delivered, self._last_state_sent = event.sequence, event.state or self._last_state_sent
            self._count(DeliveryOutcome.DELIVERED, ms)
            return await self._record(DeliveryOutcome.DELIVERED, attempt)
        verdict = DeliveryOutcome.ENDED if status == 410 else DeliveryOutcome.FAILED
        self._count(verdict, ms)
        asked = retry_after_seconds(status, reply.headers, means.now()) if reply else 0.0
        wait = means.retry_policy.delay(self.push.failures + 1, means.random(), asked)
        await self._record(verdict, attempt, retry_delay=wait)
        self._log_attempt(config.host, attempt)
        return False

    def _count(self, outcome: DeliveryOutcome, ms: int) -> None:
        self._deps.counters.outcomes[outcome] += 1
        self._deps.counters.seconds.add(ms / 1000)

    async def _call_traced(self, event: Event) -> tuple[OutboundResponse | None, str]:
        """The same as `_answer`, as a span that the receiver is told of."""
        push, tracer = self.push, self._deps.tracer
        assert tracer is not None
        if self._parent_trace is None:
            self._parent_trace = await task_trace_context(self._deps.store, push.task)
        context, began = tracer.start_span(self._parent_trace), self._deps.clock()
        reply, error = await self._call_receiver(event, {TRACE_HEADER: context})
        status = reply.status if reply else 0
        if is_recorded(context):
            tracer.record_span(
                "push", "client", context, self._parent_trace, self._deps.clock() - began,
                ("server.address", "dragoman.agent", "dragoman.task", "dragoman.event", "dragoman.attempt",
                 "http.response.status"),
                (push.config.host, push.agent, push.task_id, event.sequence, push.failures + 1, status),
                "" if 200 <= status < 300 else error or f"answered with {status}",
            )  # fmt: skip
        return reply, error

    async def _call_receiver(
        self, event: Event, extra_headers: Mapping[str, str] | None = None
    ) -> tuple[OutboundResponse | None, str]:
        """What the receiver answers to an event, or why there is no answer. `more`: headers beside the letter's."""
        try:
            letter = await self._deps.encoder.encode(self.push, event)
            headers = {**letter.headers, **extra_headers} if extra_headers else letter.headers
            reply = await self._deps.outbound.post(self.push.config.url, letter.body, headers)
        except ConnectFailed as error:
            self._deps.breaker.record_failure(self.push.config.host, str(error))
            return None, str(error)
        except (OutboundForbidden, OutboundFailed) as error:
            return None, str(error)
        except ValueError as error:
            log.exception("an event cannot be written for its receiver")
            return None, f"the event cannot be written: {error}"
        self._deps.breaker.record_success(self.push.config.host)
        return reply, ""

    async def _record(
        self,
        outcome: DeliveryOutcome,
        attempt: DeliveryAttempt | None = None,
        *,
        retry_delay: float = 0.0,
        release: bool = False,
        hand_over: bool = False,
    ) -> bool:
        """Writes down how far it is. False when the claim is no longer held."""
        push, patience = self.push, self._deps.retry_policy
        said = DeliveryReport(
            task=push.task,
            id=push.config.id,
            session=push.session,
            token=push.token,
            outcome=outcome,
            last_delivered=self._last_delivered,
            last_state_sent=self._last_state_sent,
            attempt=attempt,
            retry_delay=round(retry_delay * 1000),
            give_up_after=round(patience.give_up_after * 1000),
            release=release,
            hand_over=hand_over,
        )
        after = await self._deps.recorder.record(said)
        self.push = replace(push, session=0) if after is None else after
        return bool(self.push.session)

    def _log_attempt(self, host: str, attempt: DeliveryAttempt) -> None:
        push = self.push
        about = {"task": push.task_id, "config": push.config.id, "host": host, "event": attempt.sequence}
        if push.state is PushState.DEAD:
            self._deps.counters.given_up += 1
            log.warning("gave up pushing to %s: %s", host, push.reason, extra=about)
        elif push.state is PushState.ENDED:
            log.info("%s wants no more pushes (410)", host, extra=about)
        else:
            log.info("a push to %s failed, try %d: %s", host, push.failures, failure_reason(attempt), extra=about)


class HostLimiter:
    """Turns to call: `most` at a time, and `each` of them for one host, who comes first is first."""

    def __init__(self, total: int, per_host: int) -> None:
        self._total = asyncio.Semaphore(total)
        self._per_host = per_host
        self._hosts: dict[str, tuple[asyncio.Semaphore, list[None]]] = {}

    @asynccontextmanager
    async def __call__(self, host: str) -> AsyncIterator[None]:
        """A turn for one call."""
        one, users = self._hosts.setdefault(host, (asyncio.Semaphore(self._per_host), []))
        users.append(None)
        try:
            async with one, self._total:
                yield
        finally:
            users.pop()
            if not users:
                self._hosts.pop(host, None)


RECORD_RETRY_SECONDS: Final = 1.0
"""Seconds after which what could not be written is written again: it happened, and must not be forgotten."""


class DeliveryRecorder:
    """The way of deliveries into the store."""

    def __init__(self, pushes: PushStore) -> None:
        self._pushes = pushes
        self._waiting: list[tuple[DeliveryReport, asyncio.Future[PushRecord | None]]] = []
        self._writing: asyncio.Task[None] | None = None

    def record(self, report: DeliveryReport) -> asyncio.Future[PushRecord | None]:
        """The push after that, once it is on disk; None when the claim no longer holds."""
        answer: asyncio.Future[PushRecord | None] = asyncio.get_running_loop().create_future()
        self._waiting.append((report, answer))
        if self._writing is None:
            self._writing = asyncio.create_task(self._write(), name="push ledger")
        return answer

    async def close(self) -> None:
        """Writes what waits, if the store lets it."""
        if self._writing is not None:
            await asyncio.wait([self._writing], timeout=RECORD_RETRY_SECONDS)
        if self._writing is not None:
            self._writing.cancel()

    async def _write(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting, []
                after = await self._commit([said for said, _ in batch])
                for (_, answer), push in zip(batch, after, strict=True):
                    if not answer.done():
                        answer.set_result(push)
        finally:
            self._writing = None

    async def _commit(self, batch: list[DeliveryReport]) -> list[PushRecord | None]:
        while True:
            try:
                return await self._pushes.apply_reports(batch)
            except Exception:
                log.exception("what was delivered could not be written down; trying again")
                await asyncio.sleep(RECORD_RETRY_SECONDS)


SNAPSHOT_READ_EVENTS: Final = 256
"""Events of a log that are read at a time."""


class TaskSnapshots:
    """Gives one task at several of its events, asked for in order."""

    def __init__(self, store: Store, ref: TaskRef) -> None:
        self._store = store
        self._ref = ref
        self._task = pb.Task()
        self._sequence = 0

    async def task_at(self, event: Event) -> Event:
        """The Task at a status event. Raises TaskNotFound, and core.log.Cut for one that the log cannot tell."""
        snapshot = await _read_snapshot(self._store, self._ref)
        if _same_status(snapshot, event):
            data = frames.frame(1, snapshot.task)
        else:
            await self._fold_to(event.sequence)
            then = pb.StreamResponse()
            then.task.CopyFrom(self._task)
            if snapshot.record.last_received > 1:
                then.task.ClearField("history")
            data = then.SerializeToString()
        return Event(event.sequence, data, event.state, event.ends, event.cursor)

    async def _fold_to(self, sequence: int) -> None:
        while self._sequence < sequence:
            events = await self._store.events(self._ref, self._sequence, SNAPSHOT_READ_EVENTS)
            if not events:
                raise TaskNotFound
            for event in events:
                if self._sequence < event.sequence <= sequence:
                    fold(self._task, pb.StreamResponse.FromString(event.data))
                    self._sequence = event.sequence


async def current_task_event(store: Store, ref: TaskRef, after: int) -> Event:
    """The Task as it is, for those whose next event, the one after `after`, is gone. Raises TaskNotFound."""
    snapshot = await _read_snapshot(store, ref)
    head = snapshot.record
    gap = resume_metadata(1, {"gap": True, "from": after, "sequence": head.last_sequence})
    return Event(head.last_sequence, frames.frame(1, snapshot.task) + gap, head.state)


async def _read_snapshot(store: Store, ref: TaskRef) -> TaskSnapshot:
    snapshot = await store.read(ref)
    if snapshot is None:
        raise TaskNotFound
    return snapshot


def _same_status(snapshot: TaskSnapshot, event: Event) -> bool:
    """Whether the status is still the one that the event brought."""
    told = pb.StreamResponse.FromString(event.data)
    status = told.task.status if told.HasField("task") else told.status_update.status
    return (snapshot.record.state, snapshot.record.updated) == (status.state, status.timestamp.ToMilliseconds())
