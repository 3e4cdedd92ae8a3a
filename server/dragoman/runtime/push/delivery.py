"""Delivery to one receiver: the events of a task from a cursor on, in order, each until it is accepted.

A delivery follows the task's feed like any stream; only its cursor is in the store. The next event is posted after the
cursor has moved past the last one, so a crash repeats at most one event per receiver. Nothing is sent without the lease
under which the configuration was claimed (runtime.lease): another process may send as soon as it has ended. A failure
ends the delivery: core.push.delivery.apply_report decides whether and when it is retried, and the store keeps that
time. Every response but 2xx and 410 is retried; an event that is rejected too often is given up, and the next one sent.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import ExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property, partial
from typing import Final
from weakref import WeakValueDictionary

from dragoman.core.counters import DeliveryCounters
from dragoman.core.errors import TaskNotFound
from dragoman.core.push.delivery import (
    DEFAULT_PUSH_RETRY_POLICY,
    DeliveryAttempt,
    DeliveryOutcome,
    DeliveryReport,
    PushRecord,
    PushRetryPolicy,
    PushState,
    Share,
    failure_reason,
    retry_after_seconds,
)
from dragoman.core.task.log import Event, LogTruncated
from dragoman.core.trace import TRACE_HEADER, is_recorded
from dragoman.ports import (
    ConnectFailed,
    OutboundFailed,
    OutboundForbidden,
    OutboundHttp,
    OutboundResponse,
    PushStore,
    Store,
    WebhookEncoder,
)
from dragoman.ports.tracing import Span, Tracer
from dragoman.runtime.feeds import Subscriber, TaskFeeds
from dragoman.runtime.lease import LeaseHold
from dragoman.runtime.log import TaskSnapshots, gap_event, read_task
from dragoman.runtime.observe.tracing import task_trace_context
from dragoman.runtime.timings import DEFAULT_TIMINGS, Timings
from dragoman.supervision import Background, log_fault, start_task

log = logging.getLogger("dragoman.push")

MAX_ERROR_LENGTH: Final = 300  # stored characters of the reason of a failed attempt
BREAKER_THRESHOLD: Final = 3  # consecutive failed connections that open the breaker
MAX_FAILING_HOSTS: Final = 1024  # hosts remembered, the most recently failed


@dataclass(slots=True)
class HostState:
    """State of a host with failed connections."""

    failures: int = 0
    reason: str = ""  # of the last failure
    probe: asyncio.Future[str] | None = None
    """The probe under way; its result is the error, empty for success or an unknown outcome."""


class HostBreaker:
    """The circuit breakers of all hosts. `on_closed` is called when one closes.

    After three failed connections, one request at a time probes the host until it responds, and other deliveries share
    its result: calling a host that is down costs as much as calling a healthy one, for every webhook of every new task.
    Only failed connections count; a connection that is taken closes the breaker, whatever follows on it, which may
    concern one path only. State is per process and lost with it, which costs a few requests.
    """

    def __init__(
        self, on_closed: Callable[[], None] = lambda: None, *, threshold: int = BREAKER_THRESHOLD, waits: bool = True
    ) -> None:
        """`waits`: for the result of the probe under way. Else the last one is taken."""
        self._on_closed = on_closed
        self._threshold = threshold
        self._waits = waits
        self._hosts: OrderedDict[str, HostState] = OrderedDict()

    def __contains__(self, host: str) -> bool:
        """Whether the breaker of a host is open."""
        state = self._hosts.get(host)
        return state is not None and state.failures >= self._threshold

    def record_failure(self, host: str, reason: str) -> None:
        state = self._hosts.setdefault(host, HostState())
        self._hosts.move_to_end(host)
        state.failures += 1
        state.reason = reason or "no response"
        if state.probe is not None and not state.probe.done():
            state.probe.set_result(reason)
        while len(self._hosts) > MAX_FAILING_HOSTS:
            self._hosts.popitem(last=False)

    def record_success(self, host: str) -> None:
        """Records a request that was not a failure: for a host, one whose connection was taken."""
        was_open = host in self
        self._hosts.pop(host, None)
        if was_open:
            self._on_closed()

    @asynccontextmanager
    async def call(self, host: str) -> AsyncIterator[str]:
        """Wraps a request: gives the reason to skip it, or empty. Waits for the probe while the breaker is open."""
        state = self._hosts.get(host)
        while host in self and state is not None and state.probe is not None:
            if error := await asyncio.shield(state.probe) if self._waits else state.reason:
                yield error
                return
            state = self._hosts.get(host)
        if host not in self or state is None:
            yield ""
            return
        state.probe = probe = asyncio.get_running_loop().create_future()
        try:
            yield ""
        finally:
            state.probe = None
            if not probe.done():
                probe.set_result("")


MAX_CALLS: Final = 256  # concurrent webhook requests that have a place
MAX_CALLS_PER_SHARE: Final = 8
MAX_SLOW_CALLS: Final = 256  # concurrent webhook requests that go on without a place
MAX_SLOW_CALLS_PER_SHARE: Final = 32


class CallLimiter:
    """Limits concurrent requests, in total and for each share of a host, in order of arrival.

    A request that lasts longer than its place goes on without one, so receivers that hang delay others only briefly.
    If too many do so already, a request to a receiver that failed before is ended, and any other keeps its place.
    """

    def __init__(self) -> None:
        self._total = asyncio.Semaphore(MAX_CALLS)
        self._shares: WeakValueDictionary[Share, asyncio.Semaphore] = WeakValueDictionary()
        self._slow: list[Share] = []

    @asynccontextmanager
    async def __call__(self, share: Share, seconds: float, end_call: Callable[[], None]) -> AsyncIterator[None]:
        """Holds a place for one request, for at most so many seconds."""

        def leave_place() -> None:
            if len(self._slow) < MAX_SLOW_CALLS and self._slow.count(share) < MAX_SLOW_CALLS_PER_SHARE:
                place.close()
                self._slow.append(share)
                place.callback(self._slow.remove, share)
            elif share[1]:
                end_call()

        own = self._shares.setdefault(share, asyncio.Semaphore(MAX_CALLS_PER_SHARE))
        with ExitStack() as place:
            for semaphore in (own, self._total):
                await semaphore.acquire()
                place.callback(semaphore.release)
            timer = asyncio.get_running_loop().call_later(seconds, leave_place)
            try:
                yield
            finally:
                timer.cancel()


@dataclass(frozen=True, slots=True)
class PushOptions:
    """Dependencies of push notifications besides the store: HTTP client, encoder, and retry policy."""

    outbound: OutboundHttp
    encoder: WebhookEncoder
    retry_policy: PushRetryPolicy = DEFAULT_PUSH_RETRY_POLICY
    random: Callable[[], float] = random.random  # numbers from 0 to 1
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ready: asyncio.Event | None = None  # set once the server listens: webhook requests contain its URL


@dataclass(frozen=True, slots=True)
class DeliveryDeps:
    """Dependencies shared by all deliveries."""

    store: Store
    feeds: TaskFeeds
    options: PushOptions
    recorder: DeliveryRecorder
    clock: Callable[[], float]  # monotonic seconds
    timings: Timings = DEFAULT_TIMINGS
    tracer: Tracer | None = None
    counters: DeliveryCounters = field(default_factory=DeliveryCounters)
    limiter: CallLimiter = field(default_factory=CallLimiter)
    hanging: HostBreaker = field(default_factory=partial(HostBreaker, threshold=1, waits=False))
    """The breakers of URLs whose last request got no response while it had a place."""


class PushDelivery:
    """Delivers the events of one push configuration while its claim holds and its receiver accepts them."""

    def __init__(
        self, push: PushRecord, deps: DeliveryDeps, breaker: HostBreaker, hold: LeaseHold | None = None
    ) -> None:
        """`hold`: on the lease, taken before the claim; None if no other process uses the store."""
        self.push = push
        self._deps = deps
        self._breaker = breaker
        self._hold = hold
        self._last_delivered = push.last_delivered
        self._last_state_sent = push.last_state_sent
        self._snapshots = TaskSnapshots(deps.store, push.task)
        self._pending: Event | None = None  # an event that was read but not posted yet
        self._wait_timeout: asyncio.Timeout | None = None
        self._call_timeout: asyncio.Timeout | None = None
        self._must_revalidate = False
        self._stopping = False
        self._parent_trace: str | None = None  # the task's trace context, once it was read

    def revalidate(self) -> None:
        """The configuration may have changed: checks the claim before the next request."""
        self._must_revalidate = True
        _expire(self._wait_timeout)

    def stop(self) -> None:
        """Ends the delivery after the event in flight."""
        self._stopping = True
        _expire(self._wait_timeout)

    def end_lapsed_call(self) -> None:
        """Ends the request in flight, if the lease has ended under which this was claimed."""
        if not self._may_send():
            _expire(self._call_timeout)

    async def run(self) -> None:
        """Delivers. Returns when nothing is left to do here."""
        deps = self._deps
        async with deps.feeds.subscribe(self.push.task) as subscriber:
            subscriber.resume_after(self._last_delivered, self.push.last_sequence)
            try:
                while not self._stopping and await self._deliver_next(subscriber):
                    pass
                if self._stopping and self.push.session:
                    await self._record(DeliveryOutcome.SKIPPED, hand_over=True)
            except TaskNotFound:  # erased, and its configurations with it
                return
            except Exception as error:
                log_fault(log, "a push delivery failed; it will be retried", error, task=self.push.task_id)
                attempt = DeliveryAttempt(
                    sequence=self._last_delivered + 1, error="internal error of the sending server"
                )
                await self._record(
                    DeliveryOutcome.FAILED,
                    attempt,
                    retry_delay=deps.options.retry_policy.delay(self.push.failures + 1, 1.0),
                )

    @cached_property
    def _sends_task(self) -> bool:
        """Whether the receiver gets Tasks. An unknown dialect of a stored configuration fails this delivery alone."""
        return self._deps.options.encoder.sends_task(self.push.config.dialect)

    @property
    def _interrupted(self) -> bool:
        return self._must_revalidate or self._stopping

    # One event --------------------------------------------------------------------------------------------------

    async def _deliver_next(self, subscriber: Subscriber) -> bool:
        """Handles the next event. False when nothing is left to do here."""
        if self._must_revalidate:
            self._must_revalidate = False
            return await self._record(DeliveryOutcome.SKIPPED)
        try:
            event = self._pending
            if event is None:
                event = await self._next_event(subscriber)
            if event is None:
                return await self._record(DeliveryOutcome.SKIPPED, release=True)
            if event.sequence <= self._last_delivered:  # covered by the Task that was sent after a gap
                return True
            if self._sends_task and not (event.state and event.state != self._last_state_sent):
                self._last_delivered = event.sequence  # not a state change: this receiver does not get it
                return True
            self._pending = event
            if self._sends_task:
                event = await self._snapshots.task_at(event)
        except LogTruncated:
            snapshot = await read_task(self._deps.store, self.push.task)
            (event,) = subscriber.start_with(gap_event(snapshot, self._last_delivered))
        deps, config = self._deps, self.push.config
        place = deps.limiter(self.push.share, deps.timings.push_place_time, lambda: _expire(self._call_timeout))
        async with self._breaker.call(config.host) as down, deps.hanging.call(config.url) as hangs:
            skip_reason = down or hangs
            async with nullcontext() if skip_reason else place:
                if self._interrupted:  # waiting for the limiter may have taken long
                    return True
                if not self._may_send():
                    return await self._record(DeliveryOutcome.SKIPPED, hand_over=True)
                self._pending = None
                return await self._post(event, skip_reason)

    async def _next_event(self, subscriber: Subscriber) -> Event | None:
        """The next event; None after `claim_hold` seconds without one, or on an interruption."""
        try:
            async with asyncio.timeout(self._deps.timings.push_claim_hold) as self._wait_timeout:
                await subscriber.wait_for_events()
        except TimeoutError:
            return None
        finally:
            self._wait_timeout = None
        return await subscriber.next()

    def _may_send(self) -> bool:
        """Whether no other process may send: the lease under which this was claimed has not lapsed since."""
        return self._hold is None or not self._hold.lost

    async def _post(self, event: Event, skip_reason: str) -> bool:
        """Posts an event, unless `skip_reason` says that the host is down. True while the claim is held."""
        deps, config = self._deps, self.push.config
        began = deps.clock()
        call = self._call_receiver if deps.tracer is None else self._call_traced
        response, error = (None, skip_reason) if skip_reason else await call(event)
        ms = round((deps.clock() - began) * 1000)
        if response is not None:
            deps.hanging.record_success(config.url)
        elif not skip_reason and ms >= deps.timings.push_place_time * 1000:
            deps.hanging.record_failure(config.url, error)
        status = response.status if response else 0
        attempt = DeliveryAttempt(
            sequence=event.sequence, status=status, error=error[:MAX_ERROR_LENGTH], duration_ms=ms
        )
        if 200 <= status < 300:
            self._last_delivered, self._last_state_sent = event.sequence, event.state or self._last_state_sent
            self._count(DeliveryOutcome.DELIVERED, ms)
            return await self._record(DeliveryOutcome.DELIVERED, attempt)
        if not status and not self._may_send():
            return await self._record(DeliveryOutcome.SKIPPED, attempt, hand_over=True)
        outcome = DeliveryOutcome.ENDED if status == 410 else DeliveryOutcome.FAILED
        self._count(outcome, ms)
        requested_delay = retry_after_seconds(status, response.headers, deps.options.now()) if response else 0.0
        retry_delay = deps.options.retry_policy.delay(self.push.failures + 1, deps.options.random(), requested_delay)
        is_held = await self._record(outcome, attempt, retry_delay=retry_delay)
        self._last_delivered = self.push.last_delivered
        self._log_attempt(config.host, attempt)
        return is_held

    def _count(self, outcome: DeliveryOutcome, ms: int) -> None:
        self._deps.counters.outcomes[outcome] += 1
        self._deps.counters.seconds.add(ms / 1000)

    async def _call_traced(self, event: Event) -> tuple[OutboundResponse | None, str]:
        """The same as `_call_receiver`, inside a span that is passed on to the receiver."""
        push, tracer = self.push, self._deps.tracer
        assert tracer is not None
        if self._parent_trace is None:
            self._parent_trace = await task_trace_context(self._deps.store, push.task)
        context, began = tracer.start_span(self._parent_trace), self._deps.clock()
        response, error = await self._call_receiver(event, {TRACE_HEADER: context})
        status = response.status if response else 0
        if is_recorded(context):
            tracer.record_span(Span(
                "push", "client", context, self._parent_trace, self._deps.clock() - began,
                ("server.address", "dragoman.agent", "dragoman.task", "dragoman.event", "dragoman.attempt",
                 "http.response.status"),
                (push.config.host, push.agent, push.task_id, event.sequence, push.failures + 1, status),
                "" if 200 <= status < 300 else error or f"answered with {status}",
            ))  # fmt: skip
        return response, error

    async def _call_receiver(
        self, event: Event, extra_headers: Mapping[str, str] | None = None
    ) -> tuple[OutboundResponse | None, str]:
        """The receiver's response, or None and the error. `extra_headers` are added to the request's."""
        try:
            async with asyncio.timeout(None) as self._call_timeout:
                webhook = await self._deps.options.encoder.encode(self.push, event)
                headers = {**webhook.headers, **extra_headers} if extra_headers else webhook.headers
                response = await self._deps.options.outbound.post(
                    self.push.config.url, webhook.body, headers, may_send=self._may_send
                )
        except TimeoutError:
            if self._may_send():
                return None, f"silent for {self._deps.timings.push_place_time:g} s, after a failed attempt"
            return None, "ended without a response: this server could not renew its lease in time"
        except ConnectFailed as error:
            self._breaker.record_failure(self.push.config.host, str(error))
            return None, str(error)
        except OutboundForbidden as error:
            return None, str(error)
        except OutboundFailed as error:  # this path fails, but the host has taken the connection
            self._breaker.record_success(self.push.config.host)
            return None, str(error)
        except ValueError as error:
            log.exception("an event cannot be encoded for its receiver")
            return None, f"the event cannot be encoded: {error}"
        finally:
            self._call_timeout = None
        self._breaker.record_success(self.push.config.host)
        return response, ""

    async def _record(
        self,
        outcome: DeliveryOutcome,
        attempt: DeliveryAttempt | None = None,
        *,
        retry_delay: float = 0.0,
        release: bool = False,
        hand_over: bool = False,
    ) -> bool:
        """Records progress in the store. False when the claim is lost."""
        push, policy = self.push, self._deps.options.retry_policy
        report = DeliveryReport(
            task=push.task,
            id=push.config.id,
            session=push.session,
            token=push.token,
            outcome=outcome,
            last_delivered=self._last_delivered,
            last_state_sent=self._last_state_sent,
            attempt=attempt,
            retry_delay=round(retry_delay * 1000),
            give_up_after=round(policy.give_up_after * 1000),
            release=release,
            hand_over=hand_over,
        )
        updated = await self._deps.recorder.record(report)
        self.push = replace(push, session=0) if updated is None else updated
        return bool(self.push.session)

    def _log_attempt(self, host: str, attempt: DeliveryAttempt) -> None:
        push = self.push
        fields = {"task": push.task_id, "config": push.config.id, "host": host, "event": attempt.sequence}
        if push.state is PushState.GIVEN_UP or push.last_delivered >= attempt.sequence:
            self._deps.counters.given_up += 1
            log.warning("gave up pushing to %s: %s", host, push.reason, extra=fields)
        elif push.state is PushState.UNSUBSCRIBED:
            log.info("%s rejected further pushes (410)", host, extra=fields)
        else:
            log.info("a push to %s failed, try %d: %s", host, push.failures, failure_reason(attempt), extra=fields)


def _expire(timeout: asyncio.Timeout | None) -> None:
    if timeout is not None and not timeout.expired():
        timeout.reschedule(0)  # a deadline in the past


class DeliveryRecorder:
    """Writes delivery reports to the store in batches."""

    def __init__(self, pushes: PushStore, close_timeout: float = DEFAULT_TIMINGS.push_record_timeout) -> None:
        """`close_timeout`: seconds for which `close` waits for the store."""
        self._close_timeout = close_timeout
        self._pushes = pushes
        self._waiting: list[tuple[DeliveryReport, asyncio.Future[PushRecord | None]]] = []
        self._writing: asyncio.Task[None] | None = None

    def record(self, report: DeliveryReport) -> asyncio.Future[PushRecord | None]:
        """Writes a report. The future gives the updated push record, or None when the claim is lost."""
        future: asyncio.Future[PushRecord | None] = asyncio.get_running_loop().create_future()
        self._waiting.append((report, future))
        if self._writing is None:
            self._writing = start_task(Background.PUSH_RECORDER, self._write)
        return future

    async def close(self) -> None:
        """Writes what is pending, if the store is available."""
        if self._writing is not None:
            await asyncio.wait([self._writing], timeout=self._close_timeout)
        if self._writing is not None:
            self._writing.cancel()

    async def _write(self) -> None:
        while self._waiting:
            batch = self._waiting[:]
            records = await self._pushes.apply_reports([report for report, _ in batch])
            for (_, future), push in zip(batch, records, strict=True):
                if not future.done():
                    future.set_result(push)
            del self._waiting[: len(batch)]
        self._writing = None
