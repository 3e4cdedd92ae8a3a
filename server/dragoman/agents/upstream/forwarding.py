"""Messages that a task's caller sends while its turn runs: they go to the same task upstream, each once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Never

from dragoman.agents.upstream import finding, memory
from dragoman.agents.upstream.finding import Lost
from dragoman.agents.upstream.road import Away, CallFailed, Road
from dragoman.ports import Ending, ProcessLost
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

if TYPE_CHECKING:
    from dragoman.agents.upstream.turn import UpstreamTurn

log = logging.getLogger("dragoman.upstream")

Letter = tuple[pb.Message, pb.SendMessageRequest]
"""A message and the request that it came in."""


class Forwarding:
    """The messages of one turn. `left` are those that the task upstream did not take: it had ended."""

    def __init__(
        self,
        turn: UpstreamTurn,
        extensions: Callable[[pb.Message], str],
        modes: Callable[[pb.SendMessageRequest], Sequence[str]],
    ) -> None:
        self.left: list[Letter] = []
        self._turn = turn
        self._record = turn.record
        self._extensions = extensions
        self._modes = modes
        self._doubtful = turn.desk.waiting if turn.desk.attempt > 1 else 0
        """How many of the next ones an earlier attempt may have passed on."""
        self._failed: asyncio.Future[Never] = asyncio.get_running_loop().create_future()
        """Is over when the turn cannot be gone on with, because nobody knows whether a message arrived."""
        self._idle = asyncio.Event()
        self._idle.set()

    async def run(self) -> None:
        """Passes on one after the other. Runs until cancelled."""
        async for letter in self._turn.desk.incoming():
            self._idle.clear()
            try:
                await self._record.known.wait()
                await self._pass_on(letter)
            except (Lost, ProcessLost) as error:
                self._failed.set_exception(error)
                self._failed.exception()  # nobody may be there any more to look
                return
            finally:
                self._idle.set()

    async def during(self, answering: Coroutine[None, None, Ending]) -> Ending:
        """What a message is answered with, and nothing half on its way then. Raises Lost, ProcessLost when one of those
        that came meanwhile may have arrived, and nobody can say."""
        work = asyncio.create_task(answering, name=f"answer for {self._turn.desk.task_id} upstream")
        try:
            either: list[asyncio.Future[Any]] = [work, self._failed]
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if self._failed.done():
                return self._failed.result()
            ending = work.result()
            self._record.known.set()  # who waits for a task there, and there is none, finds that out
            await self._idle.wait()
            return self._failed.result() if self._failed.done() else ending
        finally:
            if not work.done():
                work.cancel()
                await asyncio.wait([work])

    async def _pass_on(self, letter: Letter) -> None:
        message = pb.Message()
        message.CopyFrom(letter[0])
        message.ClearField("reference_task_ids")
        message.task_id, message.context_id = self._record.memory.task, self._record.memory.context
        is_doubtful, self._doubtful = self._doubtful > 0, max(self._doubtful - 1, 0)
        if not message.task_id:
            self.left.append(letter)
            return
        request = pb.SendMessageRequest(message=message)
        if letter[1].HasField("metadata"):
            request.metadata.CopyFrom(letter[1].metadata)
        request.configuration.return_immediately = True
        request.configuration.accepted_output_modes.extend(self._modes(letter[1]))
        try:
            await self._send(request, is_doubtful=is_doubtful)
        except CallFailed as error:
            log.info("a message was not taken upstream: %s", error, extra={"task": self._turn.desk.task_id})
            self.left.append(letter)

    async def _send(self, request: pb.SendMessageRequest, *, is_doubtful: bool) -> None:
        """Sends a message once. `is_doubtful`: it may have been sent already. Raises Lost when nobody can say whether
        it arrived, ProcessLost when the agent is away by then, CallFailed when it was not taken."""
        turn = self._turn
        key = memory.key_of(turn.desk.task_id, request.message.message_id)
        extensions = self._extensions(request.message)

        async def unless_it_is_there(road: Road) -> None:
            nonlocal is_doubtful
            if is_doubtful and not turn.link.idempotent and await finding.has(turn, request.message):
                return
            is_doubtful = False
            try:
                await road.call("SendMessage", request, key=key, extensions=extensions)
            except Away as away:
                is_doubtful = away.arrived
                raise

        try:
            await turn.insist(unless_it_is_there)
        except ProcessLost as lost:
            if is_doubtful:
                raise
            raise Away(str(lost), arrived=False) from lost
