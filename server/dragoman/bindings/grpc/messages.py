"""Reads request messages of gRPC calls: after authentication, within limits of time and memory.

Handlers take requests as streams, also where a call has one message, because grpc.aio reads the message of other
handlers before it calls them. Until a handler reads, gRPC accepts only `UNREAD_WINDOW_BYTES` of its call. Once it
reads, gRPC keeps the whole message until it is complete, and does not say how much that is. So incomplete messages are
counted, and when the process has grown by the budget, those of the largest share are ended.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import grpc

from dragoman.bindings.options import DEFAULT_MAX_BODY_BYTES
from dragoman.core.errors import A2AError, InvalidRequest, PayloadTooLarge, Unavailable

GrpcContext = grpc.aio.ServicerContext[bytes, bytes]

UNREAD_WINDOW_BYTES: Final = 65_535
"""Bytes of a call that gRPC accepts before a handler reads its message; by default it is 4 MiB."""

MESSAGE_OVERHEAD_BYTES: Final = 1024 * 1024
"""Bytes over the message limit that gRPC still passes on, so the error for a slightly larger message names the limit.
gRPC itself rejects larger messages with RESOURCE_EXHAUSTED, before reading them."""

MESSAGE_TIMEOUT: Final = 30.0
"""Seconds for a message to arrive, plus one second for each MESSAGE_RATE bytes of the largest one."""
MESSAGE_RATE: Final = 512 * 1024

SLOW_AFTER: Final = 0.1
"""Seconds after which a message that is incomplete counts against the limits. Most are complete when they are read."""

MAX_PUBLIC_BYTES: Final = 4096
"""Maximum bytes of a message to a service without authentication: health and reflection."""
MAX_PUBLIC_READS: Final = 4
"""Incomplete messages to these services. Their messages fit into one packet, so none waits for long."""
PUBLIC_SLOW_AFTER: Final = 0.03
PUBLIC_TIMEOUT: Final = 5.0

CHECK_INTERVAL: Final = 0.05
"""Seconds between two checks while a message is incomplete."""


@dataclass(slots=True)
class _Read:
    """One message being received."""

    principal: str
    since: float
    end_reason: A2AError | None = None


def resident_bytes() -> int:
    """Resident memory of this process; 0 if the system does not say."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")
    except OSError:
        return 0


class MessageReader:
    """Reads the messages of calls, and ends calls whose message is incomplete for too long, or takes too much."""

    def __init__(
        self,
        max_bytes: int,
        max_reads: int,
        max_reads_each: int,
        *,
        slow_after: float,
        read_timeout: float,
        budget: int = 0,
        memory: Callable[[], int] = resident_bytes,
        clock: Callable[[], float] | None = None,
    ) -> None:
        """`max_reads`, `max_reads_each`: incomplete messages older than `slow_after`, of all callers and of one.

        `budget`: bytes by which the process may grow before these two limits apply; 0: they always apply. `memory`:
        returns the bytes of the process. `clock`: seconds, monotonic.
        """
        self._max_bytes = max_bytes
        self._max_reads = max_reads
        self._max_reads_each = max_reads_each
        self._slow_after = slow_after
        self._timeout = read_timeout
        self._budget = budget
        self._memory = memory
        self._memory_at_start = memory()
        self._loop = asyncio.get_running_loop()
        self._clock = clock or self._loop.time
        self._reads: dict[asyncio.Task[object], _Read] = {}
        """By the task of the handler, oldest first."""
        self._timer: asyncio.TimerHandle | None = None

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
        task = asyncio.current_task()
        assert task is not None
        read = self._reads[task] = _Read(principal, self._clock())
        if self._timer is None:
            self._timer = self._loop.call_later(CHECK_INTERVAL, self._on_timer)
        try:
            message: object = await context.read()
        except asyncio.CancelledError:
            if read.end_reason is None or task.cancelling() != 1:
                raise
            task.uncancel()
            raise read.end_reason from None
        finally:
            del self._reads[task]
        if not isinstance(message, bytes):  # grpc.aio.EOF
            return None
        if len(message) > self._max_bytes:
            raise PayloadTooLarge(f"at most {self._max_bytes} bytes are accepted")
        return message

    def _on_timer(self) -> None:
        self._timer = self._loop.call_later(CHECK_INTERVAL, self._on_timer) if self._reads else None
        # In the next step of the loop, after handlers whose messages have just become complete.
        self._loop.call_soon(self.check)

    def check(self) -> None:
        """Ends the reads that exceed a limit: too old ones, then the oldest of the callers who have most."""
        now = self._clock()
        slow: dict[str, deque[asyncio.Task[object]]] = {}
        for task, read in self._reads.items():
            age = now - read.since
            if age <= self._slow_after:
                break  # the rest is younger
            if read.end_reason is not None:
                continue
            if age > self._timeout:
                text = f"the message arrives too slowly: it is incomplete after {self._timeout:.0f} s; send it again"
                self._end(task, InvalidRequest(text))
                continue
            slow.setdefault(read.principal, deque()).append(task)
        total, is_short = sum(map(len, slow.values())), self._budget == 0
        while slow:
            most = max(slow.values(), key=len)
            if total <= self._max_reads and len(most) <= self._max_reads_each:
                return
            if not (is_short := is_short or self._lacks_memory()):
                return
            self._end(most.popleft(), Unavailable("too many large messages are being received; try again later"))
            total -= 1

    def _lacks_memory(self) -> bool:
        memory = self._memory()
        return not memory or memory - self._memory_at_start > self._budget

    def _end(self, task: asyncio.Task[object], reason: A2AError) -> None:
        self._reads[task].end_reason = reason
        task.cancel()


def caller_messages(message_bytes: int) -> MessageReader:
    """Reads the messages of callers, of up to `message_bytes` and an overhead."""
    largest = message_bytes + MESSAGE_OVERHEAD_BYTES
    max_reads = max(DEFAULT_MAX_BODY_BYTES // largest, 2)
    return MessageReader(
        largest,
        max_reads,
        max_reads // 2,
        slow_after=SLOW_AFTER,
        read_timeout=MESSAGE_TIMEOUT + message_bytes / MESSAGE_RATE,
        budget=DEFAULT_MAX_BODY_BYTES,
    )


def public_messages() -> MessageReader:
    """Reads the messages of calls that need no credentials."""
    return MessageReader(
        MAX_PUBLIC_BYTES,
        MAX_PUBLIC_READS,
        MAX_PUBLIC_READS,
        slow_after=PUBLIC_SLOW_AFTER,
        read_timeout=PUBLIC_TIMEOUT,
    )
