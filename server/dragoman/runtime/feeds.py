"""Feeds: every subscriber of a task sees the same events in the same order; a slow one delays only itself.

A TaskFeed is shared by all subscribers of a task in this process. It listens to the bus first; a subscriber then reads
from the store and continues by sequence, as a cursor and not a queue. The feed keeps a short window of recent events,
encoded once. A subscriber that falls out of the window, or meets a gap (the bus may lose and reorder), reads from the
store. A lost *last* event is found by polling the versions of all followed tasks in one query.
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
"""What a feed keeps for subscribers that are almost up to date."""

FEED_BATCH_EVENTS: Final = 64
FEED_BATCH_BYTES: Final = 64 * 1024
"""What a subscriber gets at a time: a reader waits until it is written."""

VERSION_POLL_INTERVAL: Final = 2.0
"""Seconds between polls of versions: the cost of a lost last event."""


class TaskFeed:
    """Recent events of one task, and the subscribers that wait for the next."""

    def __init__(self, ref: TaskRef) -> None:
        self.ref = ref
        self.last = 0
        """The newest sequence known to be committed; 0 when none is known."""
        self.subscribers = 0
        self.unsubscribe: Unsubscribe | None = None
        self.subscribe_lock = asyncio.Lock()
        self.deleted = False
        """Whether the task was erased."""
        self._window: deque[Event] = deque()
        self._bytes = 0
        self._batches: dict[int, Sequence[Event]] = {}
        """Batches of the window given to subscribers, by the sequence before them."""
        self._waiters: list[asyncio.Future[None]] = []

    def deliver(self, events: Sequence[Event]) -> None:
        """Adds events from the bus. Repeats are dropped; a gap restarts the window."""
        for event in events:
            if event.sequence <= self.last:
                continue
            if event.sequence != self.last + 1:
                self._clear()
            if not event.data:  # too large for the bus: subscribers read it from the store
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
        """Notes that the store has events up to `version`."""
        if version > self.last:
            self._clear()
            self.last = version
            self._wake()

    def mark_deleted(self) -> None:
        """Notes that the task was erased, and wakes all waiters."""
        self.deleted = True
        self._clear()
        self._wake()

    @property
    def has_waiters(self) -> bool:
        """Whether a subscriber waits for the next event."""
        return bool(self._waiters)

    def event_at(self, sequence: int) -> Event | None:
        """The event of this sequence, if it is in the window."""
        if not self._window:
            return None
        index = sequence - self._window[0].sequence
        return self._window[index] if 0 <= index < len(self._window) else None

    def batch_after(self, sequence: int) -> Sequence[Event]:
        """The next batch of the window after this sequence, shared by all subscribers at that position."""
        batch = self._batches.get(sequence)
        if batch is None:
            index = sequence + 1 - self._window[0].sequence if self._window else -1
            if index < 0:
                return ()
            batch = self._batches[sequence] = _first_batch(islice(self._window, index, index + FEED_BATCH_EVENTS))
        return batch

    async def wait_for_change(self) -> None:
        """Waits until a new event or version is known."""
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
    """A cursor over one task's events. `position` is the last sequence seen."""

    def __init__(self, store: Store, feed: TaskFeed) -> None:
        self._store = store
        self._feed = feed
        self._cursor_prefix = cursor_prefix(store.epoch, feed.ref.key)
        self._buffered: deque[Event] = deque()
        self.position = 0

    async def next(self) -> Event:
        """The next event; waits for it if necessary.

        Raises TaskNotFound when the task was erased, core.task.log.LogTruncated when the log no longer reaches back to
        `position`.
        """
        feed = self._feed
        while True:
            if self._buffered:
                event = self._buffered.popleft()
            elif recent := feed.event_at(self.position + 1):
                event = recent
            else:
                await self._fill_buffer()
                continue
            self.position = event.sequence
            return self.attach_cursor(event)

    async def next_batch(self) -> Sequence[Event]:
        """The next event and those available behind it. Waits and raises as `next`.

        Many subscribers of one task wake once for all events of a commit and write them at once: with 100 of them that
        is four times as fast as event by event.
        """
        feed = self._feed
        while True:
            if self._buffered:
                batch = _first_batch(self._buffered)
                for _ in batch:
                    self._buffered.popleft()
            elif not (batch := feed.batch_after(self.position)):
                await self._fill_buffer()
                continue
            self.position = batch[-1].sequence
            for event in batch:
                if not event.cursor:
                    self.attach_cursor(event)
            return batch

    async def _fill_buffer(self) -> None:
        """Reads events that the window does not have, or waits for new ones. Raises as `next`."""
        feed = self._feed
        if feed.last > self.position:
            self._buffered.extend(await self._store.events(feed.ref, self.position))
            if not self._buffered:
                raise TaskNotFound
        elif feed.deleted:
            raise TaskNotFound
        else:
            await feed.wait_for_change()

    @property
    def lag(self) -> int:
        """Committed events not yet delivered to it; 0 before its first read."""
        return max(self._feed.last - self.position, 0) if self.position else 0

    async def wait_for_events(self) -> None:
        """Waits until `next` would return or raise without waiting for a commit."""
        feed = self._feed
        while not (self._buffered or feed.last > self.position or feed.deleted):
            await feed.wait_for_change()

    def resume_after(self, position: int, last: int) -> None:
        """Continues after event `position`. `last` is the last event of the task's log, as read by the caller."""
        self.position = position
        self._feed.observe_version(last)

    def attach_cursor(self, event: Event) -> Event:
        """Gives the event its cursor, which is the same for all readers."""
        if not event.cursor:
            event.cursor = f"{self._cursor_prefix}{event.sequence}"
        return event


def _first_batch(events: Iterable[Event]) -> Sequence[Event]:
    """The first batch of these events: at least one event, if any, up to the limits of a batch."""
    batch: list[Event] = []
    size = 0
    for event in events:
        size += len(event.data)
        if batch and (size > FEED_BATCH_BYTES or len(batch) >= FEED_BATCH_EVENTS):
            break
        batch.append(event)
    return batch


class TaskFeeds:
    """All feeds of this process."""

    def __init__(self, store: Store, bus: Bus) -> None:
        self._store = store
        self._bus = bus
        self._feeds: dict[TaskRef, TaskFeed] = {}
        self._subscribers: set[Subscriber] = set()

    @asynccontextmanager
    async def subscribe(self, ref: TaskRef) -> AsyncIterator[Subscriber]:
        """Listens to a task. The caller then reads the task and sets the subscriber's `position`."""
        feed = self._feeds.get(ref)
        if feed is None:
            feed = self._feeds[ref] = TaskFeed(ref)
        feed.subscribers += 1
        try:
            async with feed.subscribe_lock:
                if feed.unsubscribe is None:
                    feed.unsubscribe = await self._bus.subscribe(ref, feed.deliver)
            subscriber = Subscriber(self._store, feed)
            self._subscribers.add(subscriber)
            try:
                yield subscriber
            finally:
                self._subscribers.discard(subscriber)
        finally:
            feed.subscribers -= 1
            if not feed.subscribers:
                self._feeds.pop(ref, None)
                stop, feed.unsubscribe = feed.unsubscribe, None  # breaks the reference cycle with the feed
                if stop is not None:
                    await stop()

    def subscriber_count(self, ref: TaskRef) -> int:
        """Subscribers of a task in this process."""
        feed = self._feeds.get(ref)
        return feed.subscribers if feed else 0

    @property
    def subscribers(self) -> int:
        """Subscribers of all tasks in this process: readers, waiting callers, and push deliveries."""
        return len(self._subscribers)

    @property
    def lag(self) -> int:
        """The largest lag of any subscriber, in events."""
        return max((subscriber.lag for subscriber in self._subscribers), default=0)

    def mark_deleted(self, ref: TaskRef) -> None:
        """Tells the subscribers of a task that it was erased."""
        if feed := self._feeds.get(ref):
            feed.mark_deleted()

    async def poll_forever(self) -> None:
        """Polls the versions of followed tasks every VERSION_POLL_INTERVAL seconds, until canceled."""
        while True:
            await asyncio.sleep(VERSION_POLL_INTERVAL)
            await self.poll()

    async def poll(self) -> None:
        """One poll of versions."""
        if self._feeds:
            waiting = [ref for ref, feed in self._feeds.items() if feed.has_waiters]
            versions = await self._versions()
            for ref, version in versions.items():
                if feed := self._feeds.get(ref):
                    feed.observe_version(version)
            for ref in waiting:  # followed, but no longer in the store: erased by some process
                if ref not in versions:
                    self.mark_deleted(ref)

    async def _versions(self) -> dict[TaskRef, int]:
        refs = list(self._feeds)
        versions = await self._store.last_sequences(refs)
        return {ref: versions[ref.key] for ref in refs if ref.key in versions}


EventBatches = AsyncGenerator[Sequence[Event], None]
"""Batches of one or more events."""


class EventStream:
    """The events of one stream. Nothing happens before the first is requested. Has to be closed."""

    __slots__ = ("_batches", "_buffered")

    def __init__(self, batches: EventBatches) -> None:
        self._batches = batches
        self._buffered: deque[Event] = deque()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        """The next event. Raises the errors of the operation."""
        if not self._buffered:
            self._buffered.extend(await anext(self._batches))
        return self._buffered.popleft()

    async def next_batch(self) -> Sequence[Event]:
        """The next event and all available behind it; empty at the end of the stream. Raises as `__anext__`."""
        if self._buffered:
            buffered, self._buffered = self._buffered, deque()
            return tuple(buffered)
        try:
            return await anext(self._batches)
        except StopAsyncIteration:  # an empty tuple as the default of `anext` is a SystemError in CPython 3.11
            return ()

    async def aclose(self) -> None:
        """Ends the stream. May be called twice."""
        await self._batches.aclose()


# End of a stream ----------------------------------------------------------------------------------------------------


def split_at_end(batch: Sequence[Event], is_last: Callable[[Event], bool]) -> tuple[Sequence[Event], bool]:
    """The events up to the first for which `is_last` holds, and whether there was one."""
    for number, event in enumerate(batch, 1):
        if is_last(event):
            return batch[:number], True
    return batch, False


ends_turn: Final = attrgetter("ends")
"""Whether the turn ends with an event."""


def ends_task(event: Event) -> bool:
    """Whether the task ends with this event."""
    return event.state in states.TERMINAL


def ends_turn_or_task(event: Event) -> bool:
    """Whether the turn or the task ends with this event."""
    return event.ends or event.state in states.TERMINAL
