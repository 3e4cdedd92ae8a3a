"""Reads request messages of gRPC calls: after authentication, within limits of time and memory.

Handlers take requests as streams, also where a call has one message, because grpc.aio reads the message of other
handlers before it calls them. Until a handler reads, gRPC accepts only `UNREAD_WINDOW_BYTES` of its call. Once it
reads, gRPC keeps what arrives until the message is complete. When incomplete messages hold more than a budget, the
callers who hold most lose their oldest.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field
from typing import Final

import grpc
from multidict import CIMultiDict

from dragoman.bindings.grpc.connections import received_bytes
from dragoman.bindings.options import DEFAULT_MAX_BODY_BYTES
from dragoman.core.errors import A2AError, InvalidRequest, PayloadTooLarge, Unavailable

GrpcContext = grpc.aio.ServicerContext[bytes, bytes]


def text_metadata(context: GrpcContext) -> CIMultiDict[str]:
    return CIMultiDict((key, value) for key, value in context.invocation_metadata() or () if isinstance(value, str))


UNREAD_WINDOW_BYTES: Final = 65_535  # that gRPC accepts of a call before its message is read; 4 MiB by default

MESSAGE_OVERHEAD_BYTES: Final = 1024 * 1024
"""Bytes over the message limit that gRPC still passes on, so the error for a slightly larger message names the limit.
gRPC itself rejects larger messages with RESOURCE_EXHAUSTED, before reading them."""

MESSAGE_TIMEOUT: Final = 30.0  # seconds for a message, plus one for each MESSAGE_RATE bytes of the largest one
MESSAGE_RATE: Final = 512 * 1024

SLOW_AFTER: Final = 0.05
"""Seconds after which a message that is incomplete counts against the budget. Most are complete when they are read."""

MAX_PUBLIC_BYTES: Final = 4096  # maximum bytes of a message to a service without authentication: health and reflection
MAX_PUBLIC_READS: Final = 2
"""Incomplete messages to these services, in all. Their messages fit into one packet, so others are soon complete."""
MAX_CONNECTION_READS: Final = 4  # messages of one connection to these services at a time; further calls are rejected

CHECK_INTERVAL: Final = 0.02  # seconds between two checks while a message is incomplete

ReceivedBytes = Callable[[Collection[str]], Mapping[str, int]]
"""Returns the bytes received on the connection of each peer, as far as they are known."""


@dataclass(slots=True)
class _Read:
    context: GrpcContext
    principal: str
    since: float
    end_reason: A2AError | None = None


@dataclass(eq=False)
class MessageReader:
    """Reads the messages of calls, and ends calls whose message is incomplete for too long, or holds too much."""

    max_bytes: int
    budget: int  # bytes that all messages may hold that are incomplete after `slow_after` seconds
    _: KW_ONLY
    slow_after: float
    read_timeout: float
    max_held: int  # bytes that one holds at most; it counts as much if `received` does not know
    connection_reads: int | None = None
    """Messages of one connection that are read at a time. Further ones fail, and nothing waits: calls with messages
    that stay incomplete would hold up all others."""
    received: ReceivedBytes = lambda _: {}
    clock: Callable[[], float] = time.monotonic
    open_calls: set[GrpcContext] = field(default_factory=set, init=False)  # the calls whose handlers run
    _reads: dict[asyncio.Task[object], _Read] = field(default_factory=dict, init=False)  # by handler, oldest first
    _reads_by_peer: Counter[str] = field(default_factory=Counter, init=False)
    _timer: asyncio.TimerHandle | None = field(default=None, init=False)

    @contextmanager
    def open_call(self, context: GrpcContext) -> Iterator[None]:
        """Counts a call as open while its handler runs, so that its connection is not idle."""
        self.open_calls.add(context)
        try:
            yield
        finally:
            self.open_calls.discard(context)

    async def read(self, context: GrpcContext, principal: str) -> bytes:
        """Returns the message of a call. Raises InvalidRequest for a call without one, and what `next` raises."""
        message = await self.next(context, principal)
        if message is None:
            raise InvalidRequest("the call has no message; send one before the end of the requests")
        return message

    async def next(self, context: GrpcContext, principal: str) -> bytes | None:
        """Returns the next message of a call; None at the end of its messages.

        Raises InvalidRequest for a slow message, PayloadTooLarge, and Unavailable when too much is being received.
        """
        if self.connection_reads is None:
            return await self._receive(context, principal)
        counts, peer = self._reads_by_peer, context.peer()
        if counts[peer] >= self.connection_reads:
            raise Unavailable("too many messages of this connection are incomplete; try again later")
        counts[peer] += 1
        try:
            return await self._receive(context, principal)
        finally:
            counts[peer] -= 1
            if not counts[peer]:
                del counts[peer]

    async def _receive(self, context: GrpcContext, principal: str) -> bytes | None:
        task = asyncio.current_task()
        assert task is not None
        read = self._reads[task] = _Read(context, principal, self.clock())
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(CHECK_INTERVAL, self._on_timer)
        try:
            message: object = await context.read()
        except asyncio.CancelledError:
            if read.end_reason is None or task.cancelling() != 1:
                raise
            task.uncancel()
            raise read.end_reason from None
        finally:
            del self._reads[task]
            del task, read  # the error of `read` refers to this frame: a cycle, which would keep the call
        if not isinstance(message, bytes):  # grpc.aio.EOF
            return None
        if len(message) > self.max_bytes:
            # The traceback of the error refers to this frame, and to the message until garbage is collected.
            del message
            raise PayloadTooLarge(f"at most {self.max_bytes} bytes are accepted")
        return message

    def _on_timer(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(CHECK_INTERVAL, self._on_timer) if self._reads else None
        # In the next step of the loop, after handlers whose messages have just become complete.
        asyncio.get_running_loop().call_soon(self.check)

    def check(self) -> None:
        """Ends the reads that exceed a limit: too old ones, then the oldest of the callers who hold most."""
        now = self.clock()
        slow: list[tuple[asyncio.Task[object], _Read]] = []
        for task, read in self._reads.items():
            age = now - read.since
            if age <= self.slow_after:
                break  # the rest is younger
            if read.end_reason is not None:
                continue
            if age > self.read_timeout:
                text = (
                    f"the message arrives too slowly: it is incomplete after {self.read_timeout:.0f} s; send it again"
                )
                self._end(task, InvalidRequest(text))
            else:
                slow.append((task, read))
        if len(slow) * self.max_held > self.budget:
            self._enforce_budget([(task, read.principal, read.context.peer()) for task, read in slow])

    def _enforce_budget(self, slow: list[tuple[asyncio.Task[object], str, str]]) -> None:
        """Ends reads, given with principal and peer, until the rest is within the budget."""
        counts = Counter(peer for _, _, peer in slow)
        received = self.received(counts)
        # What a connection has received is an upper bound of what its incomplete messages hold.
        shares = {
            peer: min(received[peer] // count, self.max_held) if peer in received else self.max_held
            for peer, count in counts.items()
        }
        reads: dict[str, deque[tuple[asyncio.Task[object], int]]] = {}
        held: Counter[str] = Counter()
        for task, principal, peer in slow:
            reads.setdefault(principal, deque()).append((task, shares[peer]))
            held[principal] += shares[peer]
        total = held.total()
        while total > self.budget:
            largest = max(held, key=held.__getitem__)
            task, share = reads[largest].popleft()
            held[largest] -= share
            total -= share
            self._end(task, Unavailable("too many large messages are being received; try again later"))

    def _end(self, task: asyncio.Task[object], reason: A2AError) -> None:
        self._reads[task].end_reason = reason
        task.cancel()


def caller_messages(message_bytes: int) -> MessageReader:
    """Reads the messages of callers, of up to `message_bytes` and an overhead."""
    largest = message_bytes + MESSAGE_OVERHEAD_BYTES
    return MessageReader(
        largest, DEFAULT_MAX_BODY_BYTES, max_held=largest, slow_after=SLOW_AFTER,
        read_timeout=MESSAGE_TIMEOUT + message_bytes / MESSAGE_RATE, received=received_bytes,
    )  # fmt: skip


def public_messages(message_bytes: int) -> MessageReader:
    """Reads the messages of calls that need no credentials. `message_bytes`: as above, the limit of the whole port."""
    largest = message_bytes + MESSAGE_OVERHEAD_BYTES
    return MessageReader(
        MAX_PUBLIC_BYTES, MAX_PUBLIC_READS * largest, slow_after=0.02, read_timeout=5.0,
        max_held=largest, connection_reads=MAX_CONNECTION_READS,
    )  # fmt: skip
