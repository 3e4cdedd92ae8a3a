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

from dragoman.core.counting import Histogram
from dragoman.core.errors import TaskNotFound
from dragoman.core.log import Cut, Event
from dragoman.core.push import Attempt, Patience, Push, PushState, Settled, Verdict, asked_to_wait, reason
from dragoman.core.trace import HEADER, is_recorded
from dragoman.ports import Forbidden, Letters, NobodyThere, Outbound, Reply, Store, Unreachable
from dragoman.ports.tracing import Tracer
from dragoman.runtime.follow import Followers, Subscriber
from dragoman.runtime.ledger import Ledger
from dragoman.runtime.past import Past, present
from dragoman.runtime.resting import Rests
from dragoman.runtime.tracing import context_of

log = logging.getLogger("dragoman.push")

HOLD: Final = 2.0
"""Seconds that a carrier waits for the next event before it lets go of its claim."""

ERROR_LENGTH: Final = 300
"""Characters that are kept of why a try failed."""


@dataclass(slots=True)
class Calls:
    """What came of calls so far. Counters only grow."""

    verdicts: Counter[Verdict] = field(default_factory=Counter)
    dead: int = 0
    """Receivers that were given up."""
    seconds: Histogram = field(default_factory=Histogram)
    """How long receivers took to answer, or not to."""


@dataclass(frozen=True, slots=True)
class Means:
    """What carriers share. `dice` gives numbers from 0 to 1, `clock` seconds that only grow."""

    store: Store
    followers: Followers
    outbound: Outbound
    letters: Letters
    ledger: Ledger
    patience: Patience
    dice: Callable[[], float]
    clock: Callable[[], float]
    now: Callable[[], datetime]
    turn: Callable[[str], AbstractAsyncContextManager[None]]
    """A turn to call a host: so many calls at a time, and so many for each host."""
    rests: Rests
    hold: float = HOLD
    calls: Calls = field(default_factory=Calls)
    tracer: Tracer | None = None


class Carrier:
    """Delivers what one push still has, as long as its claim holds and its receiver takes it."""

    def __init__(self, push: Push, means: Means) -> None:
        self.push = push
        self._means = means
        self._at = push.delivered
        self._shown = push.shown
        self._whole = means.letters.whole(push.config.dialect)
        self._past = Past(means.store, push.task)
        self._pending: Event | None = None
        """An event that was read, and that there was no turn for yet."""
        self._scope: asyncio.Timeout | None = None
        self._doubted = False
        self._stopping = False
        self._parent: str | None = None
        """The trace of the task, once it was looked up."""

    def doubt(self) -> None:
        """The configuration may have changed: the claim is looked at before anything more is sent."""
        self._doubted = True
        self._wake()

    def stop(self) -> None:
        """Ends it after the event that it is posting."""
        self._stopping = True
        self._wake()

    async def run(self) -> None:
        """Delivers. Returns when there is no more to do here."""
        means = self._means
        async with means.followers.subscribe(self.push.task) as subscriber:
            subscriber.go_on(self._at, self.push.last)
            try:
                while not self._stopping and await self._step(subscriber):
                    pass
                if self._stopping and self.push.session:
                    await self._settle(Verdict.PASSED, leave=True)
            except TaskNotFound:  # erased, and its configurations with it
                return
            except Exception:
                log.exception("a push broke off; it is tried again", extra={"task": self.push.task_id})
                attempt = Attempt(sequence=self._at + 1, error="this server could not do it")
                await self._settle(Verdict.FAILED, attempt, wait=means.patience.wait(self.push.tries + 1, 1.0))

    @property
    def _interrupted(self) -> bool:
        return self._doubted or self._stopping

    def _wake(self) -> None:
        if self._scope is not None and not self._scope.expired():
            self._scope.reschedule(0)  # a deadline that is over

    # One event --------------------------------------------------------------------------------------------------

    async def _step(self, subscriber: Subscriber) -> bool:
        """Deals with the next event. False when there is nothing more to do here."""
        if self._doubted:
            self._doubted = False
            return await self._settle(Verdict.PASSED)
        try:
            event = self._pending
            if event is None:
                event = await self._next(subscriber)
            if event is None:
                return await self._settle(Verdict.PASSED, release=True)
            if event.sequence <= self._at:  # told already, with the Task that came after a gap
                return True
            if self._whole and not (event.state and event.state != self._shown):
                self._at = event.sequence  # nothing that this receiver is told
                return True
            self._pending = event
            if self._whole:
                event = await self._past.at(event)
        except Cut:
            event = subscriber.mark(await present(self._means.store, self.push.task, self._at))
            subscriber.at = event.sequence
        host = self.push.config.host
        async with self._means.rests.call(host) as why, self._means.turn(host):
            if self._interrupted:  # waiting for a turn may have taken long
                return True
            self._pending = None
            return await self._post(event, why)

    async def _next(self, subscriber: Subscriber) -> Event | None:
        """The next event; None when none comes for a while, or when there is something else to look at."""
        try:
            async with asyncio.timeout(self._means.hold) as self._scope:
                await subscriber.news()
        except TimeoutError:
            return None
        finally:
            self._scope = None
        return await subscriber.next()

    async def _post(self, event: Event, why: str) -> bool:
        """Posts an event, unless there is a reason why that would be in vain."""
        means, config = self._means, self.push.config
        began = means.clock()
        answer = self._answer if means.tracer is None else self._traced
        reply, error = (None, why) if why else await answer(event)
        ms = round((means.clock() - began) * 1000)
        status = reply.status if reply else 0
        attempt = Attempt(sequence=event.sequence, status=status, error=error[:ERROR_LENGTH], ms=ms)
        if 200 <= status < 300:
            self._at, self._shown = event.sequence, event.state or self._shown
            self._count(Verdict.TAKEN, ms)
            return await self._settle(Verdict.TAKEN, attempt)
        verdict = Verdict.GONE if status == 410 else Verdict.FAILED
        self._count(verdict, ms)
        asked = asked_to_wait(status, reply.headers, means.now()) if reply else 0.0
        wait = means.patience.wait(self.push.tries + 1, means.dice(), asked)
        await self._settle(verdict, attempt, wait=wait)
        self._tell(config.host, attempt)
        return False

    def _count(self, verdict: Verdict, ms: int) -> None:
        self._means.calls.verdicts[verdict] += 1
        self._means.calls.seconds.add(ms / 1000)

    async def _traced(self, event: Event) -> tuple[Reply | None, str]:
        """The same as `_answer`, as a span that the receiver is told of."""
        push, tracer = self.push, self._means.tracer
        assert tracer is not None
        if self._parent is None:
            self._parent = await context_of(self._means.store, push.task)
        context, began = tracer.begin(self._parent), self._means.clock()
        reply, error = await self._answer(event, {HEADER: context})
        status = reply.status if reply else 0
        if is_recorded(context):
            tracer.record(
                "push", "client", context, self._parent, self._means.clock() - began,
                ("server.address", "dragoman.agent", "dragoman.task", "dragoman.event", "dragoman.attempt",
                 "http.response.status"),
                (push.config.host, push.agent, push.task_id, event.sequence, push.tries + 1, status),
                "" if 200 <= status < 300 else error or f"answered with {status}",
            )  # fmt: skip
        return reply, error

    async def _answer(self, event: Event, more: Mapping[str, str] | None = None) -> tuple[Reply | None, str]:
        """What the receiver answers to an event, or why there is no answer. `more`: headers beside the letter's."""
        try:
            letter = await self._means.letters.write(self.push, event)
            headers = {**letter.headers, **more} if more else letter.headers
            reply = await self._means.outbound.post(self.push.config.url, letter.body, headers)
        except NobodyThere as error:
            self._means.rests.in_vain(self.push.config.host, str(error))
            return None, str(error)
        except (Forbidden, Unreachable) as error:
            return None, str(error)
        except ValueError as error:
            log.exception("an event cannot be written for its receiver")
            return None, f"the event cannot be written: {error}"
        self._means.rests.there(self.push.config.host)
        return reply, ""

    async def _settle(
        self,
        verdict: Verdict,
        attempt: Attempt | None = None,
        *,
        wait: float = 0.0,
        release: bool = False,
        leave: bool = False,
    ) -> bool:
        """Writes down how far it is. False when the claim is no longer held."""
        push, patience = self.push, self._means.patience
        said = Settled(
            task=push.task,
            id=push.config.id,
            session=push.session,
            token=push.token,
            verdict=verdict,
            delivered=self._at,
            shown=self._shown,
            attempt=attempt,
            wait=round(wait * 1000),
            give_up=round(patience.give_up * 1000),
            release=release,
            leave=leave,
        )
        after = await self._means.ledger.settle(said)
        self.push = replace(push, session=0) if after is None else after
        return bool(self.push.session)

    def _tell(self, host: str, attempt: Attempt) -> None:
        push = self.push
        about = {"task": push.task_id, "config": push.config.id, "host": host, "event": attempt.sequence}
        if push.state is PushState.DEAD:
            self._means.calls.dead += 1
            log.warning("gave up pushing to %s: %s", host, push.why, extra=about)
        elif push.state is PushState.ENDED:
            log.info("%s wants no more pushes (410)", host, extra=about)
        else:
            log.info("a push to %s failed, try %d: %s", host, push.tries, reason(attempt), extra=about)


class Turns:
    """Turns to call: `most` at a time, and `each` of them for one host, who comes first is first."""

    def __init__(self, most: int, each: int) -> None:
        self._all = asyncio.Semaphore(most)
        self._each = each
        self._hosts: dict[str, tuple[asyncio.Semaphore, list[None]]] = {}

    @asynccontextmanager
    async def __call__(self, host: str) -> AsyncIterator[None]:
        """A turn for one call."""
        one, users = self._hosts.setdefault(host, (asyncio.Semaphore(self._each), []))
        users.append(None)
        try:
            async with one, self._all:
                yield
        finally:
            users.pop()
            if not users:
                self._hosts.pop(host, None)
