"""Retries of calls and streams, and recovery of messages that may have been delivered."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from google.protobuf.message import Message

from dragoman.calling.errors import Busy, ClientError, OutcomeUnknown, ServerUnavailable
from dragoman.core.cards.agent_spec import RESUME_EXTENSION
from dragoman.core.durations import Backoff
from dragoman.core.task import states
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

T = TypeVar("T")

RETRY_BACKOFF: Final = Backoff(0.25, 5.0, factor=1.5)
"""Delays between attempts of a call, and between polls of a task."""


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
        """Ends a series of failures: the server responded."""
        self._failing_since, self._failures = None, 0

    async def wait(self, error: ClientError) -> None:
        """Waits before the next attempt: the server's `retry_after`, or an increasing delay.

        Raises the error if the time is up or a retry cannot help.
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
"""Delays between attempts to resume a stream."""


class StreamResumption:
    """Position in one stream, and whether the stream is over.

    A stream is over once the task or the turn has ended. A stream that ends earlier was interrupted: servers close
    their streams without an error at shutdown.
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
        """Records an event and returns it without its cursor."""
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
        """Records the end of the stream. Without cursors the stream is not resumed."""
        self.is_over = self._saw_last_event or not self.cursor
        self._count_failure()

    def on_error(self, error: ClientError) -> None:
        """Records that the stream broke. Raises the error if a retry cannot help or the time is up; a server that was
        never reached is not retried."""
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
    """Removes the cursor from an event's metadata and returns it; empty if there is none."""
    if not payload.HasField("metadata") or RESUME_EXTENSION.uri not in payload.metadata.fields:
        return ""
    fields = payload.metadata.fields[RESUME_EXTENSION.uri].struct_value.fields
    cursor = fields["cursor"].string_value if "cursor" in fields else ""
    del payload.metadata.fields[RESUME_EXTENSION.uri]
    if not payload.metadata.fields:
        payload.ClearField("metadata")
    return cursor


# Recovery ------------------------------------------------------------------------------------------------------------
#
# After a broken connection, or the death of the process that sent a message, the message may have been delivered.
# Sending it again could run the work twice, so its task is looked up first.

RECOVERY_PAGE_SIZE: Final = 50
RECOVERY_HISTORY_LENGTH: Final = 50
"""Tasks of a context, and messages of each task, that are searched for the message."""


async def find_task_of_message(
    list_tasks: Callable[[pb.ListTasksRequest], Awaitable[Message]],
    message: pb.Message,
    context_id: str,
    *,
    tenant: str = "",
) -> pb.Task | None:
    """Returns the task of a context whose history has the message; None if no task has it.

    Raises OutcomeUnknown if the server returned too few tasks or messages to decide, and the errors of `list_tasks`.
    """
    request = pb.ListTasksRequest(
        tenant=tenant,
        context_id=context_id,
        page_size=RECOVERY_PAGE_SIZE,
        history_length=RECOVERY_HISTORY_LENGTH,
    )
    page = await list_tasks(request)
    assert isinstance(page, pb.ListTasksResponse)
    for task in page.tasks:
        if contains_message(task, message):
            return task
    if page.next_page_token or any(not task.history for task in page.tasks):
        raise OutcomeUnknown("the server shows only a part of its tasks or of their messages")
    return None


def has_accepted(task: pb.Task, message: pb.Message) -> bool:
    """Whether a task that waited for a message has received it.

    A task that is still interrupted and does not have the message in its history has not received it. In another state
    it has, or its state changed for another reason; in both cases the message must not be sent again.
    """
    return contains_message(task, message) or task.status.state not in states.INTERRUPTED


def contains_message(task: pb.Task, message: pb.Message) -> bool:
    """Whether a task's history has the message, by its id."""
    return bool(message.message_id) and any(known.message_id == message.message_id for known in task.history)
