"""Feeds: every subscriber of a task sees the same events in the same order; a slow one delays only itself.

A TaskFeed is shared by all subscribers of a task in this process. It listens to the bus first; a subscriber then reads
from the store and continues by sequence, as a cursor and not a queue. The feed keeps a short window of recent events,
encoded once. A subscriber that falls out of the window, or meets a gap (the bus may lose and reorder), reads from the
store. A lost *last* event is found by polling the versions of all followed tasks in one query.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from itertools import islice
from typing import Final

from dragoman.core.errors import TaskNotFound
from dragoman.core.task import cursors
from dragoman.core.task.log import Event, TaskRef
from dragoman.ports import Bus, Store, Unsubscribe

FEED_WINDOW_EVENTS: Final = 1024
FEED_WINDOW_BYTES: Final = 1024 * 1024
"""Limits of the events that a feed keeps for subscribers that are almost up to date."""

FEED_BATCH_EVENTS: Final = 64  # of one batch for a subscriber, which waits until it is written
FEED_BATCH_BYTES: Final = 64 * 1024  # likewise


class TaskFeed:
    """Recent events of one task, and the subscribers that wait for the next."""

    def __init__(self, ref: TaskRef, cursor_prefix: str) -> None:
        self.ref = ref
        self.cursor_prefix = cursor_prefix
        self.last = 0  # the newest sequence known to be committed; 0 when none is known
        self.subscribers = 0
        self.unsubscribe: Unsubscribe | None = None
        self.subscribe_lock = asyncio.Lock()
        self.deleted = False  # whether the task was erased
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
            if event.sequence != self.last + 1 or not event.data:
                self._clear()
            if event.data:  # else it is too large for the bus: subscribers read it from the store
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
    def waiting(self) -> int:
        """Subscribers that wait for the next event."""
        return len(self._waiters)

    def batch_after(self, sequence: int) -> Sequence[Event]:
        """The next batch of the window after this sequence, shared by all subscribers at that position."""
        batch = self._batches.get(sequence)
        if batch is None:
            index = sequence + 1 - self._window[0].sequence if self._window else -1
            if not 0 <= index < len(self._window):
                return ()
            batch = self._batches[sequence] = _first_batch(islice(self._window, index, index + FEED_BATCH_EVENTS))
            self.attach_cursors(batch)
        return batch

    def attach_cursors(self, events: Iterable[Event]) -> None:
        """Gives events their cursors, which are the same for all readers."""
        for event in events:
            event.cursor = f"{self.cursor_prefix}{event.sequence}"

    async def wait_for_change(self) -> None:
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
    """A cursor over one task's events."""

    def __init__(self, feeds: TaskFeeds, store: Store, feed: TaskFeed) -> None:
        self._feeds = feeds
        self._store = store
        self.feed = feed
        self._buffered: deque[Event] = deque()
        self.position = 0  # the last sequence seen

    async def listen(self, ref: TaskRef) -> None:
        """Turns to another task. The caller then reads that task and sets `position`."""
        left, self.feed = self.feed, await self._feeds.join(ref)
        await self._feeds.leave(left)

    async def next_batch(self) -> Sequence[Event]:
        """The next event, for which it waits if necessary, and those available behind it.

        Many subscribers of one task wake once for all events of a commit and write them at once: with 100 of them that
        is four times as fast as event by event. Raises TaskNotFound when the task was erased,
        core.task.log.LogTruncated when the log no longer reaches back to `position`.
        """
        feed = self.feed
        while True:
            if self._buffered:
                batch = _first_batch(self._buffered)
                for _ in batch:
                    self._buffered.popleft()
            else:
                batch = feed.batch_after(self.position)
            if batch:
                self.position = batch[-1].sequence
                return batch
            if feed.last > self.position:
                await self._read_missed()
            elif feed.deleted:
                raise TaskNotFound
            else:
                await feed.wait_for_change()

    async def next(self) -> Event:
        """The next event. Waits and raises as `next_batch`."""
        if not self._buffered:
            self._buffered.extendleft(reversed(await self.next_batch()))
        event = self._buffered.popleft()
        self.position = event.sequence
        return event

    async def _read_missed(self) -> None:
        """Reads events that the window does not have."""
        events = await self._store.events(self.feed.ref, self.position)
        if not events:
            raise TaskNotFound
        self.feed.attach_cursors(events)
        self._buffered.extend(events)

    @property
    def lag(self) -> int:
        """Committed events not yet delivered to it; 0 before its first read."""
        return max(self.feed.last - self.position, 0) if self.position else 0

    async def wait_for_events(self) -> None:
        """Waits until `next` would return or raise without waiting for a commit."""
        feed = self.feed
        while not (self._buffered or feed.last > self.position or feed.deleted):
            await feed.wait_for_change()

    def resume(self, cursor: str, last: int) -> int:
        """Continues after a caller's cursor, or before the first event without one; returns its sequence.

        `last`: as for `resume_after`. Raises InvalidParams for a cursor of another task, or beyond its last event.
        """
        after = cursors.parse_cursor(cursor, self.feed.cursor_prefix, last) if cursor else 0
        self.resume_after(after, last)
        return after

    def resume_after(self, position: int, last: int) -> None:
        """Continues after event `position`. `last` is the last event of the task's log, as read by the caller."""
        self.position = position
        self.feed.observe_version(last)

    def start_with(self, task: Event) -> Sequence[Event]:
        """The first batch of a stream that begins with the complete Task; the events after it come next."""
        self.feed.attach_cursors((task,))
        self.position = task.sequence
        return (task,)


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
        self.by_task: dict[TaskRef, TaskFeed] = {}  # the feeds that have subscribers
        self._subscribers: set[Subscriber] = set()
        self._waits: dict[asyncio.Timeout, None] = {}  # in the order in which they began
        self._waits_released = False

    @asynccontextmanager
    async def subscribe(self, ref: TaskRef) -> AsyncIterator[Subscriber]:
        """Listens to a task. The caller then reads the task and sets the subscriber's `position`."""
        subscriber = Subscriber(self, self._store, await self.join(ref))
        self._subscribers.add(subscriber)
        try:
            yield subscriber
        finally:
            self._subscribers.discard(subscriber)
            await self.leave(subscriber.feed)

    async def join(self, ref: TaskRef) -> TaskFeed:
        """The feed of a task, which listens to the bus until every subscriber has left it."""
        feed = self.by_task.get(ref)
        if feed is None:
            feed = self.by_task[ref] = TaskFeed(ref, cursors.cursor_prefix(self._store.epoch, ref.key))
        feed.subscribers += 1
        try:
            async with feed.subscribe_lock:
                if feed.unsubscribe is None:
                    feed.unsubscribe = await self._bus.subscribe(ref, feed.deliver)
        except BaseException:
            await self.leave(feed)
            raise
        return feed

    async def leave(self, feed: TaskFeed) -> None:
        """Ends one subscription of a feed."""
        feed.subscribers -= 1
        if not feed.subscribers:
            self.by_task.pop(feed.ref, None)
            stop, feed.unsubscribe = feed.unsubscribe, None  # breaks the reference cycle with the feed
            if stop is not None:
                await stop()

    # Waiting calls --------------------------------------------------------------------------------------------------

    async def until_turn_ends(self, subscriber: Subscriber, deadline: float) -> None:
        """Returns when the turn ends, at `deadline` on the loop's clock, or on `release_waits`. Raises as `next`."""
        if self._waits_released:
            return
        limit = asyncio.timeout_at(deadline)
        try:
            async with limit:
                self._waits[limit] = None
                while not any(event.ends for event in await subscriber.next_batch()):
                    pass
        except TimeoutError:
            return
        finally:
            self._waits.pop(limit, None)

    def release_waits(self) -> None:
        """Ends all waits for turns, now and later, as if timed out: another process may continue the turn."""
        self._waits_released = True
        now = asyncio.get_running_loop().time()
        for limit in self._waits:
            limit.reschedule(now)

    # Counts and polls -----------------------------------------------------------------------------------------------

    @property
    def subscribers(self) -> int:
        """Subscribers of all tasks in this process: readers, waiting callers, and push deliveries."""
        return len(self._subscribers)

    @property
    def lag(self) -> int:
        """The largest lag of any subscriber, in events."""
        return max((subscriber.lag for subscriber in self._subscribers), default=0)

    def mark_deleted(self, ref: TaskRef) -> None:
        if feed := self.by_task.get(ref):
            feed.mark_deleted()

    async def poll(self) -> None:
        """Reads the versions of followed tasks."""
        if self.by_task:
            waiting = [ref for ref, feed in self.by_task.items() if feed.waiting]
            versions = await self._store.last_sequences(list(self.by_task))
            for ref, feed in self.by_task.items():
                feed.observe_version(versions.get(ref.key, 0))
            for ref in waiting:  # followed, but no longer in the store: erased by some process
                if ref.key not in versions:
                    self.mark_deleted(ref)


EventStream = AsyncGenerator[Sequence[Event], None]
"""The events of one stream, in batches. Nothing happens before the first is requested. Has to be closed."""
