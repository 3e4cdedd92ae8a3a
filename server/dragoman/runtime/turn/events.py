"""Events of a turn on their way to the log: batching, coalescing, and the task they fold to.

Coalescing joins neighboring text chunks into one event; it is off by default. Only chunks that Dragoman itself made
from text are joined, and only those without metadata. So the text of every artifact, the order of events and the folded
task stay the same.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from dragoman.core.task.log import Appended, ArtifactChange, Event, StatusChange
from dragoman.core.task.projection import fold, merge_metadata
from dragoman.core.task.states import COMPLETED, WORKING
from dragoman.ports import NO_CHANGE, BufferFull, LeaseLost, StateUpdate
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

Change = StatusChange | ArtifactChange

MAX_COALESCED_BYTES: Final = 64 * 1024  # text bytes in one event when only a time is set


@dataclass(frozen=True, slots=True)
class Coalesce:
    """`seconds` that a chunk may wait for others; `bytes` of text in one event. Both 0: off.

    With `bytes` alone nothing waits: chunks are joined while an earlier commit is under way.
    """

    seconds: float = 0.0
    bytes: int = 0

    @property
    def limit(self) -> int:
        """Bytes of text in one event; 0 when coalescing is off."""
        return self.bytes or (MAX_COALESCED_BYTES if self.seconds else 0)


NO_COALESCING: Final = Coalesce()


def may_wait(change: Change) -> bool:
    """Whether a change is a plain text chunk with more to come."""
    return _text_chunk(change) is not None and isinstance(change, ArtifactChange) and not change.last_chunk


def coalesce_changes(changes: Iterable[Change], limit: int) -> list[Change]:
    """Joins neighboring chunks of the same artifact, up to `limit` bytes of text each."""
    coalesced: list[Change] = []
    chunks: list[ArtifactChange] = []
    size = 0
    for change in changes:
        chunk = _text_chunk(change)
        length = len(chunk.text.encode()) if chunk and chunk.text else 0
        before = chunks[-1] if chunks else None
        continues = chunk and chunk.append and before and chunk.artifact_id == before.artifact_id
        if before and (not continues or before.last_chunk or size + length > limit):
            coalesced.append(_joined_chunk(chunks))
            chunks, size = [], 0
        if chunk is None:
            coalesced.append(change)
        else:
            chunks.append(chunk)
            size += length
    return [*coalesced, _joined_chunk(chunks)] if chunks else coalesced


def _text_chunk(change: Change) -> ArtifactChange | None:
    """The change itself, if it is a text chunk without metadata."""
    if isinstance(change, ArtifactChange) and change.text is not None and not change.tail and not change.metadata:
        return change
    return None


def _joined_chunk(chunks: list[ArtifactChange]) -> ArtifactChange:
    if len(chunks) == 1:
        return chunks[0]
    return replace(chunks[0], text="".join([chunk.text or "" for chunk in chunks]), last_chunk=chunks[-1].last_chunk)


MAX_PENDING_EVENTS: Final = 256
MAX_PENDING_BYTES: Final = 1024 * 1024
OVERFLOW_FACTOR: Final = 16

SendBatch = Callable[[list[Change], StateUpdate], asyncio.Future[Appended]]


class EventBatch:
    """Events that an agent puts, from any thread, until they are committed. `send` appends a list of them.

    Awaiting it waits until there is room.
    """

    # Class attributes, because many turns put nothing.
    _send_at = 0.0  # when the pending events are due, on the loop's clock; 0: at once
    _flushing = 0
    _in_flight = False
    _scheduled = False
    _timer: asyncio.TimerHandle | None = None
    _has_room: threading.Condition | None = None  # where other threads wait for room; created by the first of them
    _state_update = NO_CHANGE
    _events = _bytes = 0  # of uncommitted events
    _pending_bytes = 0  # of those that are not sent yet
    _error: BaseException | None = None

    def __init__(self, send: SendBatch, coalesce: Coalesce = NO_COALESCING) -> None:
        self._send = send
        self._coalesce = coalesce
        self._loop = asyncio.get_running_loop()
        self.loop_thread = threading.get_ident()
        self._lock = threading.RLock()
        self._pending: list[Change] = []
        self._waiters: list[asyncio.Future[None]] = []
        self._stored: list[asyncio.Future[None]] = []  # done when the pending changes without an event are committed

    @property
    def full(self) -> bool:
        """Whether uncommitted events have reached the limit."""
        return self._events >= MAX_PENDING_EVENTS or self._bytes >= MAX_PENDING_BYTES

    @property
    def busy(self) -> bool:
        """Whether some event is not committed yet."""
        return self._events > 0

    @property
    def failed(self) -> bool:
        """Whether it takes nothing more: an append failed, or the turn is over."""
        return self._error is not None

    def put(self, change: Change, state_update: StateUpdate = NO_CHANGE) -> Awaitable[None]:
        """Adds an event. The result may be awaited for room, or ignored; another thread than the loop's blocks.

        Raises BufferFull past 16 times the limit, LeaseLost after the turn, or the error of an earlier append.
        """
        on_loop = threading.get_ident() == self.loop_thread
        with self._lock:
            if self._error is not None:
                raise self._error
            if (
                self._events >= MAX_PENDING_EVENTS * OVERFLOW_FACTOR
                or self._bytes >= MAX_PENDING_BYTES * OVERFLOW_FACTOR
            ):
                raise BufferFull(
                    f"{self._events} events ({self._bytes} bytes) wait for the disk;"
                    f" await the verb, or flush, before {MAX_PENDING_EVENTS} events or {MAX_PENDING_BYTES} bytes"
                )
            if self._coalesce.seconds and not (self._pending and may_wait(change)):
                self._send_at = self._loop.time() + self._coalesce.seconds if may_wait(change) else 0.0
            self._pending.append(change)
            self._events += 1
            size = change.size if isinstance(change, ArtifactChange) else len(change.message) + len(change.metadata)
            self._bytes += size
            self._pending_bytes += size
            if state_update is not NO_CHANGE:
                self._state_update = self._state_update.merged_with(state_update)
            if not self._scheduled or (self._timer is not None and self._is_urgent):
                self._scheduled = True
                if on_loop:
                    self._loop.call_soon(self._send_pending)
                else:
                    self._loop.call_soon_threadsafe(self._send_pending)
            if not on_loop:
                self._has_room = self._has_room or threading.Condition(self._lock)
                while self.full and self._error is None:
                    self._has_room.wait()
        return self

    def store(self, state_update: StateUpdate) -> asyncio.Future[None]:
        """Adds a change without an event. Done when it is committed, with all events put before; on the loop only.

        Raises LeaseLost after the turn, or the error of an earlier append.
        """
        with self._lock:
            self._check()
            self._state_update = self._state_update.merged_with(state_update)
            done = self._loop.create_future()
            self._stored.append(done)
            self._send_at = 0.0
            if not self._scheduled or self._timer is not None:
                self._scheduled = True
                self._loop.call_soon(self._send_pending)
        return done

    def __await__(self) -> Generator[Any, None, None]:
        while (self._events >= MAX_PENDING_EVENTS or self._bytes >= MAX_PENDING_BYTES) and self._error is None:
            yield from self._wait_for_commit().__await__()

    async def flush(self) -> None:
        """Waits until all events and changes so far are committed. Raises the error of a failed append."""
        self._flushing += 1
        try:
            if self._timer is not None:
                self._send_pending()
            while (self._events or self._stored or self._in_flight) and self._error is None:
                await self._wait_for_commit()
        finally:
            self._flushing -= 1
        self._check()

    def close(self, error: BaseException | None = None) -> None:
        """Rejects further events, wakes all waiters and drops the send callback."""
        with self._lock:
            self._error = self._error or error or LeaseLost("the turn is over")
            self._send = _send_closed
            if self._has_room is not None:
                self._has_room.notify_all()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._waiters:
            self._wake()
        if self._stored:
            stored, self._stored = self._stored, []
            _end(stored, self._error)

    async def take_pending(self) -> tuple[list[Change], StateUpdate]:
        """Waits for the append in flight and takes the pending events, for the last append of a turn."""
        while (self._in_flight or self._events > len(self._pending)) and self._error is None:
            await self._wait_for_commit()
        with self._lock:
            if self._error is not None:
                raise self._error
            changes, state_update = self._pending, self._state_update
            self._pending, self._state_update = [], NO_CHANGE
            self._events = self._bytes = self._pending_bytes = 0
        return self._coalesced(changes) if changes else changes, state_update

    def _check(self) -> None:
        if self._error is not None:
            raise self._error

    @property
    def _is_urgent(self) -> bool:
        """Whether the pending events are due now. Requires the lock."""
        return not self._send_at or self._flushing > 0 or self.full or self._bytes >= self._coalesce.limit

    def _send_pending(self) -> None:
        """Sends the pending events if they are due and nothing is in flight; else does nothing."""
        if self._in_flight:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        with self._lock:
            changes, state_update = self._pending, self._state_update
            if not (changes or self._stored) or self._error is not None:
                self._scheduled = False
                return
            if not self._is_urgent and self._send_at > self._loop.time():
                self._timer = self._loop.call_at(self._send_at, self._send_pending)
                return
            size, stored = self._pending_bytes, self._stored
            self._pending, self._pending_bytes, self._state_update, self._stored = [], 0, NO_CHANGE, []
            self._in_flight = True
        self._send(self._coalesced(changes), state_update).add_done_callback(
            lambda done: self._on_sent(done, len(changes), size, stored)
        )

    def _coalesced(self, changes: list[Change]) -> list[Change]:
        limit = self._coalesce.limit
        return coalesce_changes(changes, limit) if limit else changes

    def _on_sent(
        self, done: asyncio.Future[Appended], events: int, size: int, stored: list[asyncio.Future[None]]
    ) -> None:
        error = asyncio.CancelledError() if done.cancelled() else done.exception()
        self._in_flight = False
        with self._lock:
            self._events -= events
            self._bytes -= size
            self._error = self._error or error
            if self._has_room is not None:
                self._has_room.notify_all()
        if stored:
            _end(stored, error)
        if self._error is not None and self._stored:  # changes put meanwhile, which are never sent
            stored, self._stored = self._stored, []
            _end(stored, self._error)
        self._wake()
        self._send_pending()

    async def _wait_for_commit(self) -> None:
        waiter = self._loop.create_future()
        self._waiters.append(waiter)
        await waiter

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


def _end(futures: list[asyncio.Future[None]], error: BaseException | None) -> None:
    for future in futures:
        if future.done():  # its caller was canceled
            continue
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)
            future.exception()  # its caller may not wait for it any more


def _send_closed(changes: list[Change], state_update: StateUpdate) -> asyncio.Future[Appended]:
    raise LeaseLost("the turn is over")


def with_metadata(changes: Sequence[Change], metadata: bytes) -> Sequence[Change]:
    """Adds a serialized Struct to the metadata of the last change, if that is a status."""
    if not metadata or not isinstance(last := changes[-1], StatusChange):
        return changes
    return [*changes[:-1], replace(last, metadata=merge_metadata(last.metadata, metadata))]


MAX_PROJECTION_EVENTS: Final = 16
MAX_PROJECTION_BYTES: Final = 32 * 1024
"""Above these limits the task is read from the store: parts that stores offload are larger, too."""


class TaskProjection:
    """In-memory fold of a run's committed events. `first`: the events of the append that created the task, if any."""

    def __init__(self, first: Sequence[Event]) -> None:
        self._events = list(first)
        self._bytes = 0
        for event in first:
            self._bytes += len(event.data)
        self._complete = bool(first) and first[0].sequence == 1

    def add(self, events: Sequence[Event]) -> None:
        if not self._complete:
            return
        self._events += events
        for event in events:
            self._bytes += len(event.data)
        if self._bytes > MAX_PROJECTION_BYTES or len(self._events) > MAX_PROJECTION_EVENTS:
            self.clear()

    def clear(self) -> None:
        """Gives the fold up: the task is read from the store."""
        self._complete = False
        self._events.clear()

    def task(self, last_sequence: int, history: int | None, *, remote: bool = False) -> bytes | None:
        """The serialized Task at its last event, with the last `history` messages (None: all).

        None when the events are not all known, so the task has to be read from the store. `remote` events may also not
        be all of it: a message repeats the state that it meets, and metadata and usage are in the last status, too.
        """
        if not self._complete or len(self._events) != last_sequence:  # their sequences grow, from 1
            return None
        if remote and [one.state for one in self._events[1:] if one.state] not in ([COMPLETED], [WORKING, COMPLETED]):
            return None
        task, update = pb.Task(), pb.StreamResponse()
        for event in self._events:
            update.ParseFromString(event.data)
            # Neighboring text chunks are shown as one part.
            if update.artifact_update.append or (remote and update.status_update.HasField("metadata")):
                return None
            fold(task, update)
        if history is not None:
            del task.history[: max(len(task.history) - history, 0)]
        return task.SerializeToString()
