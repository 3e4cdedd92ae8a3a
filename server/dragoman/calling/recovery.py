"""Recovery: finds the task of a message that may already have been delivered.

The connection broke, or the process that sent the message died. Sending it again could run the work twice.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from google.protobuf.message import Message

from dragoman.calling.errors import OutcomeUnknown
from dragoman.core.task import states
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

RECOVERY_PAGE_SIZE: Final = 50
RECOVERY_HISTORY_LENGTH: Final = 50
"""Tasks of a context, and messages of each, among which the message is looked for."""


async def find_in_context(
    list_tasks: Callable[[pb.ListTasksRequest], Awaitable[Message]],
    message: pb.Message,
    context_id: str,
    *,
    tenant: str = "",
) -> pb.Task | None:
    """The task of a context that has the message in its history; None when no task has it.

    Raises OutcomeUnknown when the server does not show enough to tell, and what `list_tasks` raises.
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

    A task that is still interrupted and does not show the message has not. In another state it has, or something else
    happened since; in both cases the message must not be sent again.
    """
    return contains_message(task, message) or task.status.state not in states.INTERRUPTED


def contains_message(task: pb.Task, message: pb.Message) -> bool:
    """Whether a task's history has the message, by its id."""
    return bool(message.message_id) and any(one.message_id == message.message_id for one in task.history)
