"""Following a task: everyone sees the same events in the same order, and a slow reader hurts only itself.

A follower is shared by all subscribers of a task in this process. It listens first; a subscriber then reads, and
goes on by sequence. The follower keeps a short window of recent events, shared and encoded once; a subscriber is
a cursor, not a queue. Whoever falls out of the window, or meets a hole in it (the bus may lose and reorder),
reads from the store at its own pace. A lost *last* event shows itself by the round that asks the store, in one
query, for the versions of all followed tasks.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from itertools import islice
from operator import attrgetter
from typing import Final, Self

from dragoman.core.errors import TaskNotFound
from dragoman.core.task import states
from dragoman.core.task.cursors import cursor_prefix
from dragoman.core.task.log import Event, TaskRef
from dragoman.ports import Bus, Store, Unsubscribe

log = logging.getLogger("dragoman.runtime")

FEED_WINDOW_EVENTS: Final = 1024
FEED_WINDOW_BYTES: Final = 1024 * 1024
"""What a follower keeps for those who are almost up to date."""

FEED_BATCH_EVENTS: Final = 64
FEED_BATCH_BYTES: Final = 64 * 1024
"""What a subscriber is given at a time: what is written before it is waited for whoever reads."""

VERSION_POLL_INTERVAL: Final = 2.0
"""Seconds between two looks at the versions of followed tasks: what a lost last event costs."""


class TaskFeed:
    """The recent events of one task, and who waits for the next."""

    def __init__(self, ref: TaskRef) -> None:
        self.ref = ref
        self.last = 0
        """The newest sequence known to be committed; 0 when nothing was heard yet."""
        self.subscribers = 0
        self.unsubscribe: Unsubscribe | None = None
        self.subscribe_lock = asyncio.Lock()
        self.deleted = False
        """The task was erased."""
        self._window: deque[Event] = deque()
        self._bytes = 0
        self._batches: dict[int, Sequence[Event]] = {}
        """Pieces of the window that somebody was given, by the sequence before."""
        self._waiters: list[asyncio.Future[None]] = []

    def deliver(self, events: Sequence[Event]) -> None:
        """Takes what the bus brings. Knows repeats by their sequence; a hole starts the window anew."""
        for event in events:
            if event.sequence <= self.last:
                continue
            if event.sequence != self.last + 1:
                self._clear()
            if not event.data:  # too large for the bus: whoever wants it reads it
                self._clear()
                self.last = event.sequence
                continue
            self._window.append(event)
            self._bytes += len(event.data)
            self.last = event.sequence
        while len(self._window) > FEED_WINDOW_EVENTS or self._bytes > FEED_WINDOW_BYTES:
            self._bytes -= len(self._window.popleft().data)
        self._batches.clear()
        self._wake()

    def observe_version(self, version: int) -> None:
        """Takes the store's word that events up to `version` exist."""
        if version > self.last:
            self._clear()
            self.last = version
            self._wake()

    def mark_deleted(self) -> None:
        """Takes the word that the task is no more: all who wait for its next event hear that."""
        self.deleted = True
        self._clear()
        self._wake()

    @property
    def has_waiters(self) -> bool:
        """Whether somebody who has seen the task waits for its next event."""
        return bool(self._waiters)

    def event_at(self, sequence: int) -> Event | None:
        """The event of this sequence, if the window still holds it."""
        if not self._window:
            return None
        index = sequence - self._window[0].sequence
        return self._window[index] if 0 <= index < len(self._window) else None

    def batch_after(self, sequence: int) -> Sequence[Event]:
        """What the window holds after this sequence, a lot at most: the same one for all who ask from there."""
        found = self._batches.get(sequence)
        if found is None:
            index = sequence + 1 - self._window[0].sequence if self._window else -1
            if index < 0:
                return ()
            found = self._batches[sequence] = _first_batch(islice(self._window, index, index + FEED_BATCH_EVENTS))
        return found

    async def wait_for_change(self) -> None:
        """Waits until something new is known."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter in self._waiters:  # not if it was woken in the same moment
                self._waiters.remove(waiter)
            raise

    def _clear(self) -> None:
        self._batches.clear()
        self._window.clear()
        self._bytes = 0

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


class Subscriber:
    """A cursor over one task's events. `at` is the last sequence seen."""

    def __init__(self, store: Store, feed: TaskFeed) -> None:
        self._store = store
        self._feed = feed
        self._cursor_prefix = cursor_prefix(store.epoch, feed.ref.key)
        self._buffered: deque[Event] = deque()
        self.position = 0

    async def next(self) -> Event:
        """The next event, waiting for it if need be.

        Raises TaskNotFound when the task is no more, core.log.Cut when the log no longer goes back so far.
        """
        follower = self._feed
        while True:
            if self._buffered:
                event = self._buffered.popleft()
            elif found := follower.event_at(self.position + 1):
                event = found
            else:
                await self._fill_buffer()
                continue
            self.position = event.sequence
            return self.attach_cursor(event)

    async def next_batch(self) -> Sequence[Event]:
        """The next event and those that are at hand behind it; waits and raises as `next`.

        Many who follow one task wake once for all that was committed together, and write it at once: with 100 of them
        that is four times as much as event by event.
        """
        follower = self._feed
        while True:
            if self._buffered:
                lot = _first_batch(self._buffered)
                for _ in lot:
                    self._buffered.popleft()
            elif not (lot := follower.batch_after(self.position)):
                await self._fill_buffer()
                continue
            self.position = lot[-1].sequence
            for event in lot:
                if not event.cursor:
                    self.attach_cursor(event)
            return lot

    async def _fill_buffer(self) -> None:
        """Reads what the window does not have, or waits for it to happen. Raises as `next`."""
        follower = self._feed
        if follower.last > self.position:
            self._buffered.extend(await self._store.events(follower.ref, self.position))
            if not self._buffered:
                raise TaskNotFound
        elif follower.deleted:
            raise TaskNotFound
        else:
            await follower.wait_for_change()

    @property
    def lag(self) -> int:
        """Events that are there and that it was not given yet; 0 before it has begun to read."""
        return max(self._feed.last - self.position, 0) if self.position else 0

    async def wait_for_events(self) -> None:
        """Waits until there is something that `next` gives or raises without waiting for it to happen."""
        follower = self._feed
        while not (self._buffered or follower.last > self.position or follower.deleted):
            await follower.wait_for_change()

    def resume_after(self, position: int, last: int) -> None:
        """Stands after event `at` of a task whose log, as the caller has read it, ends with event `last`."""
        self.position = position
        self._feed.observe_version(last)

    def attach_cursor(self, event: Event) -> Event:
        """Gives the event its cursor, if nobody did yet: it is the same for all who read it."""
        if not event.cursor:
            event.cursor = f"{self._cursor_prefix}{event.sequence}"
        return event


def _first_batch(events: Iterable[Event]) -> Sequence[Event]:
    """The first of these: one at least, if there are any, and no more than one is given at a time."""
    lot: list[Event] = []
    size = 0
    for event in events:
        size += len(event.data)
        if lot and (size > FEED_BATCH_BYTES or len(lot) >= FEED_BATCH_EVENTS):
            break
        lot.append(event)
    return lot


class TaskFeeds:
    """All followers of this process."""

    def __init__(self, store: Store, bus: Bus) -> None:
        self._store = store
        self._bus = bus
        self._feeds: dict[TaskRef, TaskFeed] = {}
        self._subscribers: set[Subscriber] = set()

    @asynccontextmanager
    async def subscribe(self, ref: TaskRef) -> AsyncIterator[Subscriber]:
        """Listens, and gives a cursor to be set (`at`) to what the caller then reads."""
        follower = self._feeds.get(ref)
        if follower is None:
            follower = self._feeds[ref] = TaskFeed(ref)
        follower.subscribers += 1
        try:
            async with follower.subscribe_lock:
                if follower.unsubscribe is None:
                    follower.unsubscribe = await self._bus.subscribe(ref, follower.deliver)
            subscriber = Subscriber(self._store, follower)
            self._subscribers.add(subscriber)
            try:
                yield subscriber
            finally:
                self._subscribers.discard(subscriber)
        finally:
            follower.subscribers -= 1
            if not follower.subscribers:
                self._feeds.pop(ref, None)
                stop, follower.unsubscribe = follower.unsubscribe, None  # which leads back to the follower
                if stop is not None:
                    await stop()

    def subscriber_count(self, ref: TaskRef) -> int:
        """How many follow a task here."""
        follower = self._feeds.get(ref)
        return follower.subscribers if follower else 0

    @property
    def subscribers(self) -> int:
        """How many follow some task here: readers, callers who wait, and carriers of pushes."""
        return len(self._subscribers)

    @property
    def lag(self) -> int:
        """By how many events the slowest of them is behind what this process knows of its task."""
        return max((one.lag for one in self._subscribers), default=0)

    def mark_deleted(self, ref: TaskRef) -> None:
        """Tells who follows the task here that it was erased."""
        if follower := self._feeds.get(ref):
            follower.mark_deleted()

    async def poll_forever(self) -> None:
        """Asks the store, every ROUND seconds, how far the followed tasks are. Runs until cancelled."""
        while True:
            await asyncio.sleep(VERSION_POLL_INTERVAL)
            try:
                await self.poll()
            except Exception:
                log.exception("could not ask the store for the versions of followed tasks")

    async def poll(self) -> None:
        """One such round."""
        if self._feeds:
            waiting = [ref for ref, follower in self._feeds.items() if follower.has_waiters]
            found = await self._versions()
            for ref, version in found.items():
                if follower := self._feeds.get(ref):
                    follower.observe_version(version)
            for ref in waiting:  # they had seen it, so it was erased, by whoever it was
                if ref not in found:
                    self.mark_deleted(ref)

    async def _versions(self) -> dict[TaskRef, int]:
        refs = list(self._feeds)
        found = await self._store.last_sequences(refs)
        return {ref: found[ref.key] for ref in refs if ref.key in found}


EventBatches = AsyncGenerator[Sequence[Event], None]
"""Events, never none, as many at a time as were at hand."""


class EventStream:
    """The events of one stream. Nothing happens before the first is asked for, and what is begun has to be closed."""

    __slots__ = ("_batches", "_buffered")

    def __init__(self, batches: EventBatches) -> None:
        self._batches = batches
        self._buffered: deque[Event] = deque()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        """The next event. Raises what the operation raises."""
        if not self._buffered:
            self._buffered.extend(await anext(self._batches))
        return self._buffered.popleft()

    async def next_batch(self) -> Sequence[Event]:
        """The next event and all that are there behind it; none when the stream has ended. Raises likewise."""
        if self._buffered:
            left, self._buffered = self._buffered, deque()
            return tuple(left)
        try:
            return await anext(self._batches)
        except StopAsyncIteration:  # an empty tuple as the default of `anext` is a SystemError in CPython 3.11
            return ()

    async def aclose(self) -> None:
        """Ends it, wherever it is. May be called twice."""
        await self._batches.aclose()


# Where a stream ends ------------------------------------------------------------------------------------------------


def split_at_end(batch: Sequence[Event], is_last: Callable[[Event], bool]) -> tuple[Sequence[Event], bool]:
    """These events up to the first that is the last of its stream, and whether there was one."""
    for number, event in enumerate(batch, 1):
        if is_last(event):
            return batch[:number], True
    return batch, False


ends_turn: Final = attrgetter("ends")
"""Whether the turn ends with an event."""


def ends_task(event: Event) -> bool:
    """Whether the task ends with it."""
    return event.state in states.TERMINAL


def ends_turn_or_task(event: Event) -> bool:
    """Whether either does."""
    return event.ends or event.state in states.TERMINAL
