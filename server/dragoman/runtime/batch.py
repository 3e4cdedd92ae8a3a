"""The open batch of one run: a verb does not wait for the disk.

Events gather while an append is under way and leave together with the next one, so one task never has more than
one append in flight and its events keep their order. What waits is limited: at `EVENTS` or `BYTES` uncommitted a
caller is asked to wait for room, and one that never does is stopped at sixteen times as much.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Generator
from typing import Any, Final

from dragoman.core.log import Appended, ArtifactChange, StatusChange
from dragoman.ports import NOTHING, BufferFull, Notes, TurnOver

EVENTS: Final = 256
BYTES: Final = 1024 * 1024
OVERFLOW: Final = 16

Change = StatusChange | ArtifactChange
Send = Callable[[list[Change], Notes], asyncio.Future[Appended]]


class Batch:
    """Events put by an agent, from any thread, on their way to the log. `send` appends a list of them."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._loop = asyncio.get_running_loop()
        self._home = threading.get_ident()
        self._lock = threading.Condition()
        self._pending: list[Change] = []
        self._notes = NOTHING
        self._events = 0
        self._bytes = 0
        self._scheduled = False
        self._error: BaseException | None = None
        self._waiters: list[asyncio.Future[None]] = []

    @property
    def full(self) -> bool:
        return self._events >= EVENTS or self._bytes >= BYTES

    @property
    def busy(self) -> bool:
        """Whether anything put is not committed yet."""
        return self._events > 0

    def put(self, change: Change, notes: Notes = NOTHING) -> Awaitable[None]:
        """Adds an event. Raises BufferFull, TurnOver, or what made an earlier append fail."""
        with self._lock:
            self._check()
            if self._events >= EVENTS * OVERFLOW or self._bytes >= BYTES * OVERFLOW:
                raise BufferFull(
                    f"{self._events} events ({self._bytes} bytes) wait for the disk;"
                    f" await the verb, or flush, before {EVENTS} events or {BYTES} bytes"
                )
            self._pending.append(change)
            self._events += 1
            self._bytes += size_of(change)
            if notes is not NOTHING:
                self._notes = self._notes.then(notes)
            if not self._scheduled:
                self._scheduled = True
                if threading.get_ident() == self._home:
                    self._loop.call_soon(self._go)
                else:
                    self._loop.call_soon_threadsafe(self._go)
            if threading.get_ident() != self._home:
                while self.full and self._error is None:
                    self._lock.wait()
        return Room(self)

    async def flush(self) -> None:
        """Waits until everything put so far is committed. Raises what made that fail."""
        while self._events and self._error is None:
            await self._change()
        self._check()

    def close(self, error: BaseException | None = None) -> None:
        """Refuses whatever is put from now on, and wakes all who wait."""
        with self._lock:
            self._error = self._error or error or TurnOver("the turn is over")
            self._lock.notify_all()
        self._wake()

    async def settle(self) -> tuple[list[Change], Notes]:
        """Waits for the append in flight, if any, and takes what has gathered, for the last append of a turn."""
        while self._events > len(self._pending) and self._error is None:
            await self._change()
        with self._lock:
            self._check()
            changes, notes = self._pending, self._notes
            self._pending, self._notes, self._events, self._bytes = [], NOTHING, 0, 0
        return changes, notes

    def _check(self) -> None:
        if self._error is not None:
            raise self._error

    def _go(self) -> None:
        with self._lock:
            changes, notes = self._pending, self._notes
            if not changes or self._error is not None:
                self._scheduled = False
                return
            self._pending, self._notes = [], NOTHING
        size = sum(map(size_of, changes))
        self._send(changes, notes).add_done_callback(lambda done: self._sent(done, len(changes), size))

    def _sent(self, done: asyncio.Future[Appended], events: int, size: int) -> None:
        error = asyncio.CancelledError() if done.cancelled() else done.exception()
        with self._lock:
            self._events -= events
            self._bytes -= size
            self._error = self._error or error
            self._lock.notify_all()
        self._wake()
        self._go()

    async def _change(self) -> None:
        waiter = self._loop.create_future()
        self._waiters.append(waiter)
        await waiter

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


class Room:
    """Awaited, waits until there is room for more events; ignored, costs nothing."""

    __slots__ = ("_batch",)

    def __init__(self, batch: Batch) -> None:
        self._batch = batch

    def __await__(self) -> Generator[Any, None, None]:
        batch = self._batch
        while batch.full and batch._error is None:
            yield from batch._change().__await__()


def size_of(change: Change) -> int:
    return change.size if isinstance(change, ArtifactChange) else len(change.message) + len(change.metadata)
