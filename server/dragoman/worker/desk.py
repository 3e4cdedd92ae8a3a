"""What an agent has in its hands for one turn, when the store is elsewhere."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

from dragoman.core.log import ArtifactChange, StatusChange
from dragoman.core.names import DEFAULT_SCOPE, Owner
from dragoman.core.usage import Used
from dragoman.ports import NOTHING, Ending, Notes, TurnOver
from dragoman.runtime.batch import Batch
from dragoman.worker import frames
from dragoman_pb.dragoman.worker.v1 import worker_pb2 as wk
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

log = logging.getLogger("dragoman.worker")

Say = Callable[..., None]
"""Sends one frame: `say(events=...)`."""


class WorkerDesk:
    """Implements `dragoman.ports.Desk` over a stream to the server. Made on the event loop."""

    def __init__(self, start: wk.TurnStart, say: Say, frame_bytes: int) -> None:
        """`frame_bytes`: the largest frame that the server takes."""
        self.turn = start.turn_id
        self.agent = start.agent_id
        self.task_id = start.task_id
        self.context_id = start.context_id
        self.owner = Owner(DEFAULT_SCOPE, start.principal)  # as near as a worker is told
        self.principal = start.principal
        self.message = start.message
        self.envelope = start.envelope
        self.history: Sequence[pb.Message] = tuple(start.history)
        self.asked: pb.Message | None = start.asked if start.HasField("asked") else None
        self.references: Sequence[pb.Task] = tuple(start.references)
        self.memory = start.task_state.encode()
        self.context_memory = start.context_state.encode()
        self.attempt = start.attempt
        self.waiting = 0  # which only agents upstream ask, and they are at the server
        self.previous_artifacts: Sequence[pb.Artifact] = tuple(start.previous_artifacts)
        self.traceparent = start.traceparent
        self.stopping = False
        self.cancelled = False
        self.cancel_reason = ""
        self.is_over = False
        """The server takes nothing more of this turn."""
        self._say = say
        self._frame_bytes = frame_bytes
        self._loop = asyncio.get_running_loop()
        self._batch = Batch(self._send)
        self._number = 0
        self._unconfirmed: deque[tuple[int, asyncio.Future[Any]]] = deque()
        self._arrived: deque[wk.MessageArrived] = deque()
        self._wanted = False
        self._mail = asyncio.Event()

    # What the agent asks ----------------------------------------------------------------------------------------

    def refuse_cancel(self, why: str) -> None:
        self._say(cancel_refused=wk.CancelRefused(turn_id=self.turn, reason=why))

    def put(self, change: StatusChange | ArtifactChange, *, notes: Notes = NOTHING) -> Awaitable[None]:
        return self._batch.put(change, notes)

    async def flush(self) -> None:
        await self._batch.flush()

    def spend(self, used: Used) -> None:
        self._say(usage=wk.Usage(turn_id=self.turn, tokens=used.tokens, cost=used.cost, key=used.key))

    async def incoming(self) -> AsyncIterator[tuple[pb.Message, pb.SendMessageRequest]]:
        while True:
            self._mail.clear()
            while self._arrived:
                arrived = self._arrived.popleft()
                yield arrived.message, arrived.envelope
            if not self._wanted:
                self._wanted = True
                self._say(message_wanted=wk.MessageWanted(turn_id=self.turn))
            await self._mail.wait()

    # What the server says ---------------------------------------------------------------------------------------

    def committed(self, number: int) -> None:
        """Everything up to this number is on disk."""
        while self._unconfirmed and self._unconfirmed[0][0] <= number:
            _, done = self._unconfirmed.popleft()
            if not done.done():
                done.set_result(None)

    def arrived(self, message: wk.MessageArrived) -> None:
        """A message for the running turn."""
        self._wanted = False
        self._arrived.append(message)
        self._mail.set()

    def over(self, why: str) -> None:
        """Nothing that the turn says is taken any more."""
        self.is_over = True
        self._batch.close(TurnOver(why))

    # The end ----------------------------------------------------------------------------------------------------

    async def end(self, ending: Ending | None) -> None:
        """Says what was put and not sent, and how the turn ended; None: it stopped, as it was asked to.

        What cannot be said makes the turn FAILED. Says nothing in a turn that is over.
        """
        try:
            changes, notes = await self._batch.settle()
            if changes:
                self._tell(changes, notes)
            if ending is not None:
                self._say(turn_end=frames.end(self.turn, ending, self._frame_bytes))
                return
        except TurnOver:
            return
        except Exception as error:
            if not self.is_over:
                text = f"{type(error).__name__}: {error}"
                log.error("agent %s: the turn fails: %s", self.agent, text, extra={"task": self.task_id})
                self._say(turn_end=frames.failed(self.turn, text))
            return
        if self.cancel_reason == "drain":
            self._give_back()
        else:
            self._say(turn_end=wk.TurnEnd(turn_id=self.turn, canceled=wk.Canceled()))

    async def give_back(self) -> None:
        """Says that whoever ran the turn is gone. What was put before stands, as far as it can be said."""
        try:
            changes, notes = await self._batch.settle()
            if changes:
                self._tell(changes, notes)
        except TurnOver:
            return
        except Exception as error:
            log.warning("the last of a lost turn cannot be said: %s", error, extra={"task": self.task_id})
        self._give_back()

    def _give_back(self) -> None:
        self._say(turn_end=wk.TurnEnd(turn_id=self.turn, given_back=wk.GivenBack()))

    def _send(self, changes: list[StatusChange | ArtifactChange], notes: Notes) -> asyncio.Future[Any]:
        done: asyncio.Future[Any] = self._loop.create_future()
        try:
            self._tell(changes, notes)
        except ValueError as error:
            done.set_exception(error)
        else:
            self._unconfirmed.append((self._number, done))
        return done

    def _tell(self, changes: list[StatusChange | ArtifactChange], notes: Notes) -> None:
        made = frames.events(self.turn, self._number + 1, changes, notes, self._frame_bytes)
        for frame in made:
            self._say(events=frame)
        self._number += len(made)
