"""Which task upstream a message began that may have been sent already, by a process that is gone or over a connection
that broke.

Where nothing tells, the turn ends with that: what was asked may cost money, and is not asked twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dragoman.agents.upstream import memory
from dragoman.agents.upstream.road import Refused
from dragoman.core import states
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

if TYPE_CHECKING:
    from dragoman.agents.upstream.turn import UpstreamTurn

PAGE: Final = 50
HISTORY: Final = 50
"""Tasks of a conversation, and messages of each, among which one is looked for."""


class Lost(Exception):
    """The turn cannot be gone on with. The text begins with the reason, and says what is known of the task there."""


async def find(turn: UpstreamTurn, message: pb.Message) -> pb.Task | None:
    """The task upstream that has a message; None when the message is to be sent, again or for the first time.

    Raises Lost when nobody can say, ProcessLost when the agent is away.
    """
    road, known = turn.link.road, turn.record.memory.task
    if not known and road.interface.dialect == "0.1":
        known = memory.task_of(turn.desk.task_id, message.message_id)
    if known:
        return await _known(turn, known, message)
    if turn.link.idempotent:
        return None
    if road.interface.dialect == "1.0":
        return await _listed(turn, message)
    raise Lost(UNKNOWN)


async def _known(turn: UpstreamTurn, task_id: str, message: pb.Message) -> pb.Task | None:
    asked = pb.GetTaskRequest(id=task_id)
    try:
        task = await turn.insist(lambda road: road.call("GetTask", asked))
    except Refused as refused:
        if not refused.is_no_such_task:
            raise
        if turn.record.memory.task:
            raise Lost(turn.gone) from None
        return None
    assert isinstance(task, pb.Task)
    if turn.record.memory.heard == message.message_id or _has(task, message):
        return task
    # It waits as it did, so the message did not come. In another state it came, or something else happened since.
    return None if task.status.state in states.INTERRUPTED else task


async def has(turn: UpstreamTurn, message: pb.Message) -> bool:
    """Whether the task upstream has a message that was sent to it while it worked. Raises what `find` does."""
    task_id = turn.record.memory.task
    try:
        task = await turn.insist(lambda road: road.call("GetTask", pb.GetTaskRequest(id=task_id)))
    except Refused as refused:
        raise Lost(turn.gone if refused.is_no_such_task else UNKNOWN) from None
    assert isinstance(task, pb.Task)
    if _has(task, message):
        return True
    if any(one.message_id == turn.record.memory.heard for one in task.history):
        return False  # it shows what it was sent
    raise Lost(UNKNOWN)


async def _listed(turn: UpstreamTurn, message: pb.Message) -> pb.Task | None:
    """Looks among the tasks of the conversation, which nobody else has any in."""
    context = turn.record.memory.context or memory.context_of(turn.desk.owner, turn.desk.context_id)
    asked = pb.ListTasksRequest(context_id=context, page_size=PAGE, history_length=HISTORY)
    try:
        page = await turn.insist(lambda road: road.call("ListTasks", asked))
    except Refused:
        raise Lost(UNKNOWN) from None
    assert isinstance(page, pb.ListTasksResponse)
    for task in page.tasks:
        if _has(task, message):
            return task
    if page.next_page_token or any(not task.history for task in page.tasks):
        raise Lost(UNKNOWN)
    return None


def _has(task: pb.Task, message: pb.Message) -> bool:
    return any(one.message_id == message.message_id for one in task.history) and bool(message.message_id)


UNKNOWN: Final = (
    "UPSTREAM_UNKNOWN: the message may have been sent to the agent, and nothing was heard of it; it is not sent twice"
)
"""What is said of a message of which nobody knows whether it was sent."""
