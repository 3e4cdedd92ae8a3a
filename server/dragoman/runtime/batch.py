"""The open batch of one run: a verb does not wait for the disk.

Events gather while an append is under way and leave together with the next one, so one task never has more than
one append in flight and its events keep their order. What waits is limited: at `EVENTS` or `BYTES` uncommitted a
caller is asked to wait for room, and one that never does is stopped at sixteen times as much.

If the operator wants fewer and larger events, plain text chunks wait a moment for others before they leave
(`runtime.coalesce`). Whatever else is put, a flush and the end of the turn take them along at once.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Generator
from typing import Any, Final

from dragoman.core.log import Appended, ArtifactChange, StatusChange
from dragoman.ports import NOTHING, BufferFull, Notes, TurnOver
from dragoman.runtime.coalesce import OFF, Coalesce, coalesced, may_wait

EVENTS: Final = 256
BYTES: Final = 1024 * 1024
OVERFLOW: Final = 16

Change = StatusChange | ArtifactChange
Send = Callable[[list[Change], Notes], asyncio.Future[Appended]]


class Batch:
    """Events put by an agent, from any thread, on their way to the log. `send` appends a list of them."""

    def __init__(self, send: Send, coalesce: Coalesce = OFF) -> None:
        self._send = send
        self._coalesce = coalesce
        self._due = 0.0
        """When what is pending leaves, on the loop's clock; 0 is at once."""
        self._flushing = 0
        self._in_flight = False
        self._timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._home = threading.get_ident()
        self._lock = threading.RLock()
        self._room: threading.Condition | None = None
        """Where other threads wait for room; made for the first of them."""
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
            if self._coalesce.seconds and not (self._pending and may_wait(change)):
                self._due = self._loop.time() + self._coalesce.seconds if may_wait(change) else 0.0
            self._pending.append(change)
            self._events += 1
            self._bytes += size_of(change)
            if notes is not NOTHING:
                self._notes = self._notes.then(notes)
            if not self._scheduled or (self._timer is not None and self._hurries):
                self._scheduled = True
                if threading.get_ident() == self._home:
                    self._loop.call_soon(self._start)
                else:
                    self._loop.call_soon_threadsafe(self._start)
            if threading.get_ident() != self._home:
                self._room = self._room or threading.Condition(self._lock)
                while self.full and self._error is None:
                    self._room.wait()
        return Room(self)

    async def flush(self) -> None:
        """Waits until everything put so far is committed. Raises what made that fail."""
        self._flushing += 1
        try:
            if self._timer is not None:
                self._start()
            while self._events and self._error is None:
                await self._change()
        finally:
            self._flushing -= 1
        self._check()

    def close(self, error: BaseException | None = None) -> None:
        """Refuses whatever is put from now on, wakes all who wait, and forgets how to send."""
        with self._lock:
            self._error = self._error or error or TurnOver("the turn is over")
            self._send = _nowhere
            if self._room is not None:
                self._room.notify_all()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._wake()

    async def settle(self) -> tuple[list[Change], Notes]:
        """Waits for the append in flight, if any, and takes what has gathered, for the last append of a turn."""
        while self._events > len(self._pending) and self._error is None:
            await self._change()
        with self._lock:
            self._check()
            changes, notes = self._pending, self._notes
            self._pending, self._notes, self._events, self._bytes = [], NOTHING, 0, 0
        return self._joined(changes), notes

    def _check(self) -> None:
        if self._error is not None:
            raise self._error

    @property
    def _hurries(self) -> bool:
        """Whether what is pending waits for nothing more. Under the lock."""
        return not self._due or self._flushing > 0 or self.full or self._bytes >= self._coalesce.limit

    def _start(self) -> None:
        """Sends what is pending once it is due, and when nothing is in flight. May be called for nothing."""
        if self._in_flight:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        with self._lock:
            changes, notes = self._pending, self._notes
            if not changes or self._error is not None:
                self._scheduled = False
                return
            if not self._hurries and self._due > self._loop.time():
                self._timer = self._loop.call_at(self._due, self._start)
                return
            self._pending, self._notes = [], NOTHING
            self._in_flight = True
        size = sum(map(size_of, changes))
        self._send(self._joined(changes), notes).add_done_callback(lambda done: self._sent(done, len(changes), size))

    def _joined(self, changes: list[Change]) -> list[Change]:
        limit = self._coalesce.limit
        return coalesced(changes, limit) if limit else changes

    def _sent(self, done: asyncio.Future[Appended], events: int, size: int) -> None:
        error = asyncio.CancelledError() if done.cancelled() else done.exception()
        self._in_flight = False
        with self._lock:
            self._events -= events
            self._bytes -= size
            self._error = self._error or error
            if self._room is not None:
                self._room.notify_all()
        self._wake()
        self._start()

    async def _change(self) -> None:
        waiter = self._loop.create_future()
        self._waiters.append(waiter)
        await waiter

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


def _nowhere(changes: list[Change], notes: Notes) -> asyncio.Future[Appended]:
    raise TurnOver("the turn is over")


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
