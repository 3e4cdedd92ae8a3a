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
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from itertools import islice
from typing import Final

from dragoman.core.cursors import prefix
from dragoman.core.errors import TaskNotFound
from dragoman.core.log import Event, TaskRef
from dragoman.ports import Bus, Stop, Store

log = logging.getLogger("dragoman.runtime")

WINDOW_EVENTS: Final = 1024
WINDOW_BYTES: Final = 1024 * 1024
"""What a follower keeps for those who are almost up to date."""

LOT_EVENTS: Final = 64
LOT_BYTES: Final = 64 * 1024
"""What a subscriber is given at a time: what is written before it is waited for whoever reads."""

ROUND: Final = 2.0
"""Seconds between two looks at the versions of followed tasks: what a lost last event costs."""


class Follower:
    """The recent events of one task, and who waits for the next."""

    def __init__(self, ref: TaskRef) -> None:
        self.ref = ref
        self.last = 0
        """The newest sequence known to be committed; 0 when nothing was heard yet."""
        self.subscribers = 0
        self.stop: Stop | None = None
        self.listening = asyncio.Lock()
        self.gone = False
        """The task was erased."""
        self._window: deque[Event] = deque()
        self._bytes = 0
        self._lots: dict[int, Sequence[Event]] = {}
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
        while len(self._window) > WINDOW_EVENTS or self._bytes > WINDOW_BYTES:
            self._bytes -= len(self._window.popleft().data)
        self._lots.clear()
        self._wake()

    def heard(self, version: int) -> None:
        """Takes the store's word that events up to `version` exist."""
        if version > self.last:
            self._clear()
            self.last = version
            self._wake()

    def vanish(self) -> None:
        """Takes the word that the task is no more: all who wait for its next event hear that."""
        self.gone = True
        self._clear()
        self._wake()

    @property
    def waiting(self) -> bool:
        """Whether somebody who has seen the task waits for its next event."""
        return bool(self._waiters)

    def at(self, sequence: int) -> Event | None:
        """The event of this sequence, if the window still holds it."""
        if not self._window:
            return None
        index = sequence - self._window[0].sequence
        return self._window[index] if 0 <= index < len(self._window) else None

    def after(self, sequence: int) -> Sequence[Event]:
        """What the window holds after this sequence, a lot at most: the same one for all who ask from there."""
        found = self._lots.get(sequence)
        if found is None:
            index = sequence + 1 - self._window[0].sequence if self._window else -1
            if index < 0:
                return ()
            found = self._lots[sequence] = _lot(islice(self._window, index, index + LOT_EVENTS))
        return found

    async def more(self) -> None:
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
        self._lots.clear()
        self._window.clear()
        self._bytes = 0

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


class Subscriber:
    """A cursor over one task's events. `at` is the last sequence seen."""

    def __init__(self, store: Store, follower: Follower) -> None:
        self._store = store
        self._follower = follower
        self._cursor = prefix(store.epoch, follower.ref.key)
        self._read: deque[Event] = deque()
        self.at = 0

    async def next(self) -> Event:
        """The next event, waiting for it if need be.

        Raises TaskNotFound when the task is no more, core.log.Cut when the log no longer goes back so far.
        """
        follower = self._follower
        while True:
            if self._read:
                event = self._read.popleft()
            elif found := follower.at(self.at + 1):
                event = found
            else:
                await self._more()
                continue
            self.at = event.sequence
            return self.mark(event)

    async def lot(self) -> Sequence[Event]:
        """The next event and those that are at hand behind it; waits and raises as `next`.

        Many who follow one task wake once for all that was committed together, and write it at once: with 100 of them
        that is four times as much as event by event.
        """
        follower = self._follower
        while True:
            if self._read:
                lot = _lot(self._read)
                for _ in lot:
                    self._read.popleft()
            elif not (lot := follower.after(self.at)):
                await self._more()
                continue
            self.at = lot[-1].sequence
            for event in lot:
                if not event.cursor:
                    self.mark(event)
            return lot

    async def _more(self) -> None:
        """Reads what the window does not have, or waits for it to happen. Raises as `next`."""
        follower = self._follower
        if follower.last > self.at:
            self._read.extend(await self._store.events(follower.ref, self.at))
            if not self._read:
                raise TaskNotFound
        elif follower.gone:
            raise TaskNotFound
        else:
            await follower.more()

    @property
    def lag(self) -> int:
        """Events that are there and that it was not given yet; 0 before it has begun to read."""
        return max(self._follower.last - self.at, 0) if self.at else 0

    async def news(self) -> None:
        """Waits until there is something that `next` gives or raises without waiting for it to happen."""
        follower = self._follower
        while not (self._read or follower.last > self.at or follower.gone):
            await follower.more()

    def go_on(self, at: int, last: int) -> None:
        """Stands after event `at` of a task whose log, as the caller has read it, ends with event `last`."""
        self.at = at
        self._follower.heard(last)

    def mark(self, event: Event) -> Event:
        """Gives the event its cursor, if nobody did yet: it is the same for all who read it."""
        if not event.cursor:
            event.cursor = f"{self._cursor}{event.sequence}"
        return event


def _lot(events: Iterable[Event]) -> Sequence[Event]:
    """The first of these: one at least, if there are any, and no more than one is given at a time."""
    lot: list[Event] = []
    size = 0
    for event in events:
        size += len(event.data)
        if lot and (size > LOT_BYTES or len(lot) >= LOT_EVENTS):
            break
        lot.append(event)
    return lot


class Followers:
    """All followers of this process."""

    def __init__(self, store: Store, bus: Bus) -> None:
        self._store = store
        self._bus = bus
        self._live: dict[TaskRef, Follower] = {}
        self._cursors: set[Subscriber] = set()

    @asynccontextmanager
    async def subscribe(self, ref: TaskRef) -> AsyncIterator[Subscriber]:
        """Listens, and gives a cursor to be set (`at`) to what the caller then reads."""
        follower = self._live.get(ref)
        if follower is None:
            follower = self._live[ref] = Follower(ref)
        follower.subscribers += 1
        try:
            async with follower.listening:
                if follower.stop is None:
                    follower.stop = await self._bus.follow(ref, follower.deliver)
            subscriber = Subscriber(self._store, follower)
            self._cursors.add(subscriber)
            try:
                yield subscriber
            finally:
                self._cursors.discard(subscriber)
        finally:
            follower.subscribers -= 1
            if not follower.subscribers:
                self._live.pop(ref, None)
                stop, follower.stop = follower.stop, None  # which leads back to the follower
                if stop is not None:
                    await stop()

    def count(self, ref: TaskRef) -> int:
        """How many follow a task here."""
        follower = self._live.get(ref)
        return follower.subscribers if follower else 0

    @property
    def subscribers(self) -> int:
        """How many follow some task here: readers, callers who wait, and carriers of pushes."""
        return len(self._cursors)

    @property
    def lag(self) -> int:
        """By how many events the slowest of them is behind what this process knows of its task."""
        return max((one.lag for one in self._cursors), default=0)

    def gone(self, ref: TaskRef) -> None:
        """Tells who follows the task here that it was erased."""
        if follower := self._live.get(ref):
            follower.vanish()

    async def keep_up(self) -> None:
        """Asks the store, every ROUND seconds, how far the followed tasks are. Runs until cancelled."""
        while True:
            await asyncio.sleep(ROUND)
            try:
                await self.look()
            except Exception:
                log.exception("could not ask the store for the versions of followed tasks")

    async def look(self) -> None:
        """One such round."""
        if self._live:
            waiting = [ref for ref, follower in self._live.items() if follower.waiting]
            found = await self._versions()
            for ref, version in found.items():
                if follower := self._live.get(ref):
                    follower.heard(version)
            for ref in waiting:  # they had seen it, so it was erased, by whoever it was
                if ref not in found:
                    self.gone(ref)

    async def _versions(self) -> dict[TaskRef, int]:
        refs = list(self._live)
        found = await self._store.versions(refs)
        return {ref: found[ref.key] for ref in refs if ref.key in found}
