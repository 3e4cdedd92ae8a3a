"""Retries: of calls to an unavailable or busy server, and of broken streams."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from dragoman.calling.errors import Busy, ClientError, ServerUnavailable
from dragoman.core.cards.agent_spec import RESUME_EXTENSION
from dragoman.core.durations import Backoff
from dragoman.core.task import states
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

T = TypeVar("T")

RETRY_BACKOFF: Final = Backoff(0.25, 5.0, factor=1.5)
"""Between two attempts of a call, or two polls of a task."""


class RetryBudget:
    """Limits retries to `seconds` after the first of consecutive failures."""

    def __init__(
        self,
        seconds: float,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._seconds = seconds
        self._sleep = sleep
        self._clock = clock
        self._failing_since: float | None = None
        self._failures = 0

    def reset(self) -> None:
        """Ends the row of failures: the server answered."""
        self._failing_since, self._failures = None, 0

    async def wait(self, error: ClientError) -> None:
        """Waits before the next attempt: the server's `retry_after`, or longer each time.

        Raises the error when the time is up, or when it is not one that a retry can fix.
        """
        if not isinstance(error, ServerUnavailable | Busy):
            raise error
        now = self._clock()
        if self._failing_since is None:
            self._failing_since = now
        pause = max(error.retry_after or 0.0, RETRY_BACKOFF.delay(self._failures + 1))
        if now - self._failing_since + pause > self._seconds:
            raise error
        await self._sleep(pause)
        self._failures += 1

    async def retry(self, call: Callable[[], Awaitable[T]]) -> T:
        """Repeats an idempotent call until it succeeds. Raises ClientError."""
        while True:
            try:
                result = await call()
            except ClientError as error:
                await self.wait(error)
            else:
                self.reset()
                return result


RESUME_BACKOFF: Final = Backoff(0.1, 5.0)
"""Between two attempts to resume a stream."""


class StreamResumption:
    """The position in one stream, and whether it is over.

    A stream is over once the task or the turn has ended. One that ends earlier was cut: servers close their streams
    without an error when they stop.
    """

    def __init__(
        self, cursor: str, *, until_terminal: bool, retry_timeout: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.cursor = cursor
        self.is_over = False
        self._failures = 0
        self._until_terminal = until_terminal
        self._retry_timeout = retry_timeout
        self._clock = clock
        self._broken_since = 0.0
        self._saw_last_event = False

    @property
    def delay(self) -> float:
        """Seconds until the next attempt."""
        return RESUME_BACKOFF.delay(max(self._failures, 1))

    def record(self, event: pb.StreamResponse) -> pb.StreamResponse:
        """Records an event, and returns it without the metadata of its cursor."""
        self._broken_since, self._failures = 0.0, 0
        match event.WhichOneof("payload"):
            case "task":
                self._update_cursor(event.task)
                self._saw_last_event = self._is_last(event.task.status.state)
            case "status_update":
                self._update_cursor(event.status_update)
                self._saw_last_event = self._is_last(event.status_update.status.state)
            case "artifact_update":
                self._update_cursor(event.artifact_update)
            case _:
                self._saw_last_event = True
        return event

    def on_end(self) -> None:
        """Records the end of the stream. A server without cursors is not asked again."""
        self.is_over = self._saw_last_event or not self.cursor
        self._count_failure()

    def on_error(self, error: ClientError) -> None:
        """Records that the stream broke. Raises the error when a retry cannot help or the time is up; a server that
        was never reached is not retried."""
        if not self.cursor or "UNAVAILABLE" not in (error.code, error.reason) or self._count_failure():
            raise error

    def _count_failure(self) -> bool:
        """Whether the time for retries is up."""
        now = self._clock()
        if not self._broken_since:
            self._broken_since = now
        self._failures += 1
        is_expired = now - self._broken_since + self.delay > self._retry_timeout
        self.is_over = self.is_over or is_expired
        return is_expired

    def _is_last(self, state: int) -> bool:
        return state in states.TERMINAL or (not self._until_terminal and state in states.INTERRUPTED)

    def _update_cursor(self, payload: pb.Task | pb.TaskStatusUpdateEvent | pb.TaskArtifactUpdateEvent) -> None:
        self.cursor = pop_cursor(payload) or self.cursor


def pop_cursor(payload: pb.Task | pb.TaskStatusUpdateEvent | pb.TaskArtifactUpdateEvent) -> str:
    """Removes the cursor from an event's metadata, and returns it; empty when there is none."""
    if not payload.HasField("metadata") or RESUME_EXTENSION.uri not in payload.metadata.fields:
        return ""
    fields = payload.metadata.fields[RESUME_EXTENSION.uri].struct_value.fields
    cursor = fields["cursor"].string_value if "cursor" in fields else ""
    del payload.metadata.fields[RESUME_EXTENSION.uri]
    if not payload.metadata.fields:
        payload.ClearField("metadata")
    return cursor
