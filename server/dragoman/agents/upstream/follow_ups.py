"""Follow-ups of a turn: messages that arrive while it runs are forwarded to the upstream task, in order."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, Protocol

from dragoman.agents.upstream.turn_writer import TurnWriter
from dragoman.calling.errors import ClientError
from dragoman.ports import TurnContext, TurnResult
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

log = logging.getLogger("dragoman.upstream")

FollowUp = tuple[pb.Message, pb.SendMessageRequest]  # a message, and its request


class SendFollowUp(Protocol):
    """Sends a follow-up to the upstream task once. is_doubtful: an earlier attempt may have delivered it.

    Raises OutcomeUnknown when its delivery is unknown, WorkerLost when the agent has become unavailable meanwhile,
    ClientError when it was not accepted.
    """

    async def __call__(self, follow_up: FollowUp, *, is_doubtful: bool) -> None: ...


class FollowUpSender:
    """Forwards messages that arrive during a turn to the upstream task.

    `undelivered`: messages to an ended task, each with whether an earlier attempt may have begun another task with it.
    """

    def __init__(self, turn_context: TurnContext, writer: TurnWriter, send: SendFollowUp) -> None:
        self.undelivered: list[tuple[FollowUp, bool]] = []
        self._turn_context = turn_context
        self._writer = writer
        self._send = send
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
        is_doubtful, self._maybe_delivered = self._maybe_delivered > 0, max(self._maybe_delivered - 1, 0)
        if not self._writer.state.task:
            self.undelivered.append((follow_up, is_doubtful))
            return
        try:
            await self._send(follow_up, is_doubtful=is_doubtful)
        except ClientError as error:
            fields = {"task": self._turn_context.task_id}
            log.info("a message was not accepted upstream: %s", error.summary, extra=fields)
            self.undelivered.append((follow_up, is_doubtful))
