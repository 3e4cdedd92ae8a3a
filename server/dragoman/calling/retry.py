"""Retries of calls and streams, their cursors, and recovery of messages that may have been delivered."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import KW_ONLY, dataclass, field
from typing import Final, TypeVar

from google.protobuf.message import Message

from dragoman.calling.errors import ClientError, OutcomeUnknown
from dragoman.core.cards.agent_spec import RESUME_EXTENSION
from dragoman.core.durations import Backoff
from dragoman.core.task import states
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

T = TypeVar("T")
RETRY_BACKOFF: Final = Backoff(0.25, 5.0, factor=1.5)  # between attempts of a call, and between polls of a task


@dataclass(eq=False)
class RetryBudget:
    """Limits retries to `seconds` after the first of consecutive failures."""

    seconds: float
    _: KW_ONLY
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    clock: Callable[[], float] = time.monotonic
    _failing_since: float | None = field(default=None, init=False)
    _failures: int = field(default=0, init=False)

    def reset(self) -> None:
        """Ends a series of failures: the server responded."""
        self._failing_since, self._failures = None, 0

    async def wait(self, error: ClientError) -> None:
        """Waits before the next attempt: the server's `retry_after`, or an increasing delay. Raises the error if the
        time is up or a retry cannot help."""
        if not error.is_temporary:
            raise error
        now = self.clock()
        if self._failing_since is None:
            self._failing_since = now
        pause = max(error.retry_after or 0.0, RETRY_BACKOFF.delay(self._failures + 1))
        if now - self._failing_since + pause > self.seconds:
            raise error
        await self.sleep(pause)
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


def pop_cursor(
    event: pb.StreamResponse | pb.Task | pb.Message | pb.TaskStatusUpdateEvent | pb.TaskArtifactUpdateEvent,
) -> str:
    """Removes the cursor from the metadata of an event, or of its payload, and returns it; empty if there is none."""
    payload = getattr(event, event.WhichOneof("payload") or "task") if isinstance(event, pb.StreamResponse) else event
    if not payload.HasField("metadata") or RESUME_EXTENSION.uri not in payload.metadata.fields:
        return ""
    fields = payload.metadata.fields[RESUME_EXTENSION.uri].struct_value.fields
    cursor: str = fields["cursor"].string_value if "cursor" in fields else ""
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
    """Returns the task of a context whose history has the message; None if no task has it. Raises OutcomeUnknown if the
    server returned too few tasks or messages to decide, and the errors of `list_tasks`."""
    request = pb.ListTasksRequest(
        tenant=tenant, context_id=context_id, page_size=RECOVERY_PAGE_SIZE, history_length=RECOVERY_HISTORY_LENGTH
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
    """Whether a task that waited for a message has received it. A task that is still interrupted and does not have the
    message in its history has not received it. In another state it has, or its state changed for another reason; in
    both cases the message must not be sent again."""
    return contains_message(task, message) or task.status.state not in states.INTERRUPTED


def contains_message(task: pb.Task, message: pb.Message) -> bool:
    return bool(message.message_id) and any(known.message_id == message.message_id for known in task.history)
