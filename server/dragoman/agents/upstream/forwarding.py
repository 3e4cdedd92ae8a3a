"""Messages that a task's caller sends while its turn runs: they go to the same task upstream."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from dragoman.agents.upstream import memory
from dragoman.agents.upstream.record import Record
from dragoman.agents.upstream.road import CallFailed, Road
from dragoman.ports import ProcessLost
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

log = logging.getLogger("dragoman.upstream")

Letter = tuple[pb.Message, pb.SendMessageRequest]
"""A message and the request that it came in."""

Insist = Callable[[Callable[[Road], Awaitable[object]]], Awaitable[object]]
"""Asks until there is an answer, as `UpstreamTurn.insist`."""


class Forwarding:
    """The messages of one turn. `left` are those that the task upstream did not take: it had ended."""

    def __init__(
        self,
        record: Record,
        insist: Insist,
        extensions: Callable[[pb.Message], str],
        modes: Callable[[pb.SendMessageRequest], Sequence[str]],
    ) -> None:
        self.left: list[Letter] = []
        self._record = record
        self._insist = insist
        self._extensions = extensions
        self._modes = modes
        self._idle = asyncio.Event()
        self._idle.set()

    async def run(self) -> None:
        """Passes on one after the other. Runs until cancelled."""
        async for letter in self._record.desk.incoming():
            self._idle.clear()
            try:
                await self._record.known.wait()
                await self._pass_on(letter)
            finally:
                self._idle.set()

    async def settled(self) -> None:
        """Waits until no message is half on its way, when the turn is over."""
        self._record.known.set()  # who waits for a task there, and there is none, finds that out
        await self._idle.wait()

    async def _pass_on(self, letter: Letter) -> None:
        message = pb.Message()
        message.CopyFrom(letter[0])
        message.ClearField("reference_task_ids")
        message.task_id, message.context_id = self._record.memory.task, self._record.memory.context
        if not message.task_id:
            self.left.append(letter)
            return
        request = pb.SendMessageRequest(message=message)
        if letter[1].HasField("metadata"):
            request.metadata.CopyFrom(letter[1].metadata)
        request.configuration.return_immediately = True
        request.configuration.accepted_output_modes.extend(self._modes(letter[1]))
        key = memory.key_of(self._record.desk.task_id, message.message_id)
        extensions = self._extensions(message)
        try:
            await self._insist(lambda road: road.call("SendMessage", request, key=key, extensions=extensions))
        except (CallFailed, ProcessLost) as error:
            log.info("a message was not taken upstream: %s", error, extra={"task": self._record.desk.task_id})
            self.left.append(letter)
