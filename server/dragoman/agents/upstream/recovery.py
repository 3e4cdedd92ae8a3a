"""Which task upstream a message began that may have been sent already, by a process that is gone or over a connection
that broke.

Where nothing tells, the turn ends with that: what was asked may cost money, and is not asked twice.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Final, Never

from dragoman.agents.upstream import turn_writer
from dragoman.agents.upstream.transport import UpstreamTransport
from dragoman.calling.errors import CallRefused, ClientError, ServerUnavailable
from dragoman.core.task import states
from dragoman.ports import TurnResult, WorkerLost
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

if TYPE_CHECKING:
    from dragoman.agents.upstream.turn import UpstreamTurn


RECOVERY_PAGE_SIZE: Final = 50
RECOVERY_HISTORY_LENGTH: Final = 50
"""Tasks of a conversation, and messages of each, among which one is looked for."""


class OutcomeUnknown(Exception):
    """The turn cannot be gone on with. The text begins with the reason, and says what is known of the task there."""


async def find_task(turn: UpstreamTurn, message: pb.Message) -> pb.Task | None:
    """The task upstream that has a message; None when the message is to be sent, again or for the first time.

    Raises Lost when nobody can say, ProcessLost when the agent is away.
    """
    road, known = turn.connection.transport, turn.writer.state.task
    if not known and road.interface.dialect == "0.1":
        known = turn_writer.upstream_task_id(turn.turn_context.task_id, message.message_id)
    if known:
        return await _find_by_id(turn, known, message)
    if turn.connection.idempotent:
        return None
    if road.interface.dialect == "1.0":
        return await _find_in_context(turn, message)
    raise OutcomeUnknown(OUTCOME_UNKNOWN_TEXT)


async def _find_by_id(turn: UpstreamTurn, task_id: str, message: pb.Message) -> pb.Task | None:
    asked = pb.GetTaskRequest(id=task_id)
    try:
        task = await turn.call_with_retry(lambda road: road.call("GetTask", asked))
    except CallRefused as refused:
        if not refused.remote_error.is_task_not_found:
            raise
        if turn.writer.state.task:
            raise OutcomeUnknown(turn.task_lost_text) from None
        return None
    assert isinstance(task, pb.Task)
    if turn.writer.state.heard == message.message_id or _contains_message(task, message):
        return task
    # It waits as it did, so the message did not come. In another state it came, or something else happened since.
    return None if task.status.state in states.INTERRUPTED else task


async def has_received(turn: UpstreamTurn, message: pb.Message) -> bool:
    """Whether the task upstream has a message that was sent to it while it worked. Raises what `find` does."""
    task_id = turn.writer.state.task
    try:
        task = await turn.call_with_retry(lambda road: road.call("GetTask", pb.GetTaskRequest(id=task_id)))
    except CallRefused as refused:
        raise OutcomeUnknown(
            turn.task_lost_text if refused.remote_error.is_task_not_found else OUTCOME_UNKNOWN_TEXT
        ) from None
    assert isinstance(task, pb.Task)
    if _contains_message(task, message):
        return True
    if any(one.message_id == turn.writer.state.heard for one in task.history):
        return False  # it shows what it was sent
    raise OutcomeUnknown(OUTCOME_UNKNOWN_TEXT)


async def _find_in_context(turn: UpstreamTurn, message: pb.Message) -> pb.Task | None:
    """Looks among the tasks of the conversation, which nobody else has any in."""
    context = turn.writer.state.context or turn_writer.upstream_context_id(
        turn.turn_context.owner, turn.turn_context.context_id
    )
    asked = pb.ListTasksRequest(
        context_id=context, page_size=RECOVERY_PAGE_SIZE, history_length=RECOVERY_HISTORY_LENGTH
    )
    try:
        page = await turn.call_with_retry(lambda road: road.call("ListTasks", asked))
    except CallRefused:
        raise OutcomeUnknown(OUTCOME_UNKNOWN_TEXT) from None
    assert isinstance(page, pb.ListTasksResponse)
    for task in page.tasks:
        if _contains_message(task, message):
            return task
    if page.next_page_token or any(not task.history for task in page.tasks):
        raise OutcomeUnknown(OUTCOME_UNKNOWN_TEXT)
    return None


def _contains_message(task: pb.Task, message: pb.Message) -> bool:
    return any(one.message_id == message.message_id for one in task.history) and bool(message.message_id)


OUTCOME_UNKNOWN_TEXT: Final = (
    "UPSTREAM_UNKNOWN: the message may have been sent to the agent, and nothing was heard of it; it is not sent twice"
)
"""What is said of a message of which nobody knows whether it was sent."""


log = logging.getLogger("dragoman.upstream")

FollowUp = tuple[pb.Message, pb.SendMessageRequest]
"""A message and the request that it came in."""


class FollowUpSender:
    """The messages of one turn. `left` are those that the task upstream did not take: it had ended."""

    def __init__(
        self,
        turn: UpstreamTurn,
        extensions: Callable[[pb.Message], str],
        output_modes: Callable[[pb.SendMessageRequest], Sequence[str]],
    ) -> None:
        self.undelivered: list[FollowUp] = []
        self._turn = turn
        self._writer = turn.writer
        self._extensions = extensions
        self._output_modes = output_modes
        self._maybe_delivered = turn.turn_context.waiting_messages if turn.turn_context.attempt > 1 else 0
        """How many of the next ones an earlier attempt may have passed on."""
        self._failed: asyncio.Future[Never] = asyncio.get_running_loop().create_future()
        """Is over when the turn cannot be gone on with, because nobody knows whether a message arrived."""
        self._idle = asyncio.Event()
        self._idle.set()

    async def run(self) -> None:
        """Passes on one after the other. Runs until cancelled."""
        async for letter in self._turn.turn_context.incoming():
            self._idle.clear()
            try:
                await self._writer.task_known.wait()
                await self._forward(letter)
            except (OutcomeUnknown, WorkerLost) as error:
                self._failed.set_exception(error)
                self._failed.exception()  # nobody may be there any more to look
                return
            finally:
                self._idle.set()

    async def run_with(self, answer: Coroutine[None, None, TurnResult]) -> TurnResult:
        """What a message is answered with, and nothing half on its way then. Raises Lost, ProcessLost when one of those
        that came meanwhile may have arrived, and nobody can say."""
        work = asyncio.create_task(answer, name=f"answer for {self._turn.turn_context.task_id} upstream")
        try:
            either: list[asyncio.Future[Any]] = [work, self._failed]
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if self._failed.done():
                return self._failed.result()
            ending = work.result()
            self._writer.task_known.set()  # who waits for a task there, and there is none, finds that out
            await self._idle.wait()
            return self._failed.result() if self._failed.done() else ending
        finally:
            if not work.done():
                work.cancel()
                await asyncio.wait([work])

    async def _forward(self, follow_up: FollowUp) -> None:
        message = pb.Message()
        message.CopyFrom(follow_up[0])
        message.ClearField("reference_task_ids")
        message.task_id, message.context_id = self._writer.state.task, self._writer.state.context
        is_doubtful, self._maybe_delivered = self._maybe_delivered > 0, max(self._maybe_delivered - 1, 0)
        if not message.task_id:
            self.undelivered.append(follow_up)
            return
        request = pb.SendMessageRequest(message=message)
        if follow_up[1].HasField("metadata"):
            request.metadata.CopyFrom(follow_up[1].metadata)
        request.configuration.return_immediately = True
        request.configuration.accepted_output_modes.extend(self._output_modes(follow_up[1]))
        try:
            await self._send(request, is_doubtful=is_doubtful)
        except ClientError as error:
            log.info(
                "a message was not taken upstream: %s", error.summary, extra={"task": self._turn.turn_context.task_id}
            )
            self.undelivered.append(follow_up)

    async def _send(self, request: pb.SendMessageRequest, *, is_doubtful: bool) -> None:
        """Sends a message once. `is_doubtful`: it may have been sent already. Raises Lost when nobody can say whether
        it arrived, ProcessLost when the agent is away by then, CallFailed when it was not taken."""
        turn = self._turn
        key = turn_writer.idempotency_key(turn.turn_context.task_id, request.message.message_id)
        extensions = self._extensions(request.message)

        async def unless_it_is_there(road: UpstreamTransport) -> None:
            nonlocal is_doubtful
            if is_doubtful and not turn.connection.idempotent and await has_received(turn, request.message):
                return
            is_doubtful = False
            try:
                await road.call("SendMessage", request, key=key, extensions=extensions)
            except ServerUnavailable as away:
                is_doubtful = away.may_have_arrived
                raise

        try:
            await turn.call_with_retry(unless_it_is_there)
        except WorkerLost as lost:
            if is_doubtful:
                raise
            raise ServerUnavailable.for_reason(str(lost), may_have_arrived=False) from lost
