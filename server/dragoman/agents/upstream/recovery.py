"""Recovery of a turn: finds the task of a message that may have been delivered, and sends follow-ups.

If the task cannot be found the turn fails: the work may cost money, and is not started twice.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from dragoman.agents.upstream import turn_writer
from dragoman.calling import retry
from dragoman.calling.errors import CallRefused, ClientError, OutcomeUnknown, ServerUnavailable
from dragoman.ports import TurnResult, WorkerLost
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

if TYPE_CHECKING:
    from dragoman.agents.upstream.turn import UpstreamTurn

log = logging.getLogger("dragoman.upstream")

OUTCOME_UNKNOWN_TEXT: Final = (
    "the message may have been sent to the agent, but no response arrived; it is not sent again"
)
"""The text of a failed task whose message may have been delivered."""


async def find_task(turn: UpstreamTurn, message: pb.Message) -> pb.Task | None:
    """The upstream task that has a message. None: the message is safe to send (again).

    Raises OutcomeUnknown when that cannot be known, WorkerLost when the agent is unavailable.
    """
    state, dialect = turn.writer.state, turn.connection.transport.interface.dialect
    task_id = state.task
    if not task_id and dialect == "0.1":
        task_id = turn_writer.upstream_task_id(turn.context.task_id, message.message_id)
    if task_id:
        return await _find_by_id(turn, task_id, message)
    if turn.connection.idempotent:
        return None
    if dialect != "1.0":
        raise OutcomeUnknown(OUTCOME_UNKNOWN_TEXT)
    # The context has tasks of this owner only.
    context_id = state.context or turn_writer.upstream_context_id(turn.context.owner, turn.context.context_id)
    try:
        return await retry.find_task_of_message(partial(turn.call, "ListTasks"), message, context_id)
    except (CallRefused, OutcomeUnknown):
        raise OutcomeUnknown(OUTCOME_UNKNOWN_TEXT) from None


async def _find_by_id(turn: UpstreamTurn, task_id: str, message: pb.Message) -> pb.Task | None:
    try:
        task = await turn.read_task(pb.GetTaskRequest(id=task_id))
    except CallRefused as refused:
        if not refused.remote_error.is_task_not_found:
            raise
        if turn.writer.state.task:
            raise turn.lost() from None
        return None
    is_delivered = turn.writer.state.last_message_id == message.message_id or retry.has_accepted(task, message)
    return task if is_delivered else None


async def has_received(turn: UpstreamTurn, message: pb.Message) -> bool:
    """Whether the upstream task has a message that was sent to it while it worked. Raises as `find_task` does."""
    try:
        task = await turn.read_task(pb.GetTaskRequest(id=turn.writer.state.task))
    except CallRefused as refused:
        is_lost = refused.remote_error.is_task_not_found
        raise (turn.lost() if is_lost else OutcomeUnknown(OUTCOME_UNKNOWN_TEXT)) from None
    if retry.contains_message(task, message):
        return True
    if any(one.message_id == turn.writer.state.last_message_id for one in task.history):
        return False  # its history is complete enough to show the message
    raise OutcomeUnknown(OUTCOME_UNKNOWN_TEXT)


FollowUp = tuple[pb.Message, pb.SendMessageRequest]  # a message, and its request


class FollowUpSender:
    """Forwards messages that arrive during a turn to the upstream task.

    `undelivered` are those that it did not accept, because it had ended.
    """

    def __init__(self, turn: UpstreamTurn) -> None:
        self.undelivered: list[FollowUp] = []
        self._turn = turn
        self._writer = turn.writer
        self._turn_context = turn.context
        self._maybe_delivered = self._turn_context.waiting_messages if self._turn_context.attempt > 1 else 0
        """How many of the next messages an earlier attempt may have delivered."""
        self._idle = asyncio.Event()
        self._idle.set()
        name = f"messages for {self._turn_context.task_id} upstream"
        self._forwarding = asyncio.create_task(self._forward_messages(), name=name)

    async def _forward_messages(self) -> None:
        """Forwards messages in order. Ends with an error if the turn cannot continue, otherwise when it is canceled."""
        async for follow_up in self._turn_context.incoming():
            self._idle.clear()
            try:
                await self._writer.task_known.wait()
                await self._forward(follow_up)
            finally:
                self._idle.set()

    async def run_with(self, turn: Coroutine[None, None, TurnResult]) -> TurnResult:
        """Runs `turn` and returns its result after the follow-up in progress was delivered.

        Raises OutcomeUnknown and WorkerLost when the delivery of a follow-up is unknown.
        """
        work = asyncio.create_task(turn, name=f"answer for {self._turn_context.task_id} upstream")
        try:
            either: list[asyncio.Future[Any]] = [work, self._forwarding]
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not self._forwarding.done():
                work.result()
                self._writer.task_known.set()  # releases messages that wait for a task that does not exist
                await self._idle.wait()
            if self._forwarding.done():
                self._forwarding.result()
            return await work
        finally:
            if not work.done():
                work.cancel()
                await asyncio.wait([work])

    async def close(self) -> None:
        self._forwarding.cancel()
        await asyncio.gather(self._forwarding, return_exceptions=True)

    async def _forward(self, follow_up: FollowUp) -> None:
        state = self._writer.state
        is_doubtful, self._maybe_delivered = self._maybe_delivered > 0, max(self._maybe_delivered - 1, 0)
        if not state.task:
            self.undelivered.append(follow_up)
            return
        try:
            request = self._turn.build_request(*follow_up, state.task, state.context)
            await self._send(request, is_doubtful=is_doubtful)
        except ClientError as error:
            fields = {"task": self._turn_context.task_id}
            log.info("a message was not accepted upstream: %s", error.summary, extra=fields)
            self.undelivered.append(follow_up)

    async def _send(self, request: pb.SendMessageRequest, *, is_doubtful: bool) -> None:
        """Sends a message once. `is_doubtful`: an earlier attempt may have delivered it.

        Raises OutcomeUnknown when its delivery is unknown, WorkerLost when the agent has become unavailable meanwhile,
        ClientError when it was not accepted.
        """
        key = turn_writer.idempotency_key(self._turn_context.task_id, request.message.message_id)
        extensions = self._turn.extensions(request.message)

        async def send_once() -> None:
            nonlocal is_doubtful
            is_idempotent = self._turn.connection.idempotent
            if is_doubtful and not is_idempotent and await has_received(self._turn, request.message):
                return
            is_doubtful = False
            try:
                await self._turn.connection.transport.call("SendMessage", request, key=key, extensions=extensions)
            except ServerUnavailable as error:
                is_doubtful = error.may_have_arrived
                raise

        try:
            await self._turn.repeat(send_once)
        except WorkerLost as lost:
            if is_doubtful:
                raise
            raise ServerUnavailable.for_reason(str(lost), may_have_arrived=False) from lost
