"""An agent upstream, as the runtime sees it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final

from dragoman.agents.upstream.breaker import Breaker
from dragoman.agents.upstream.memory import read
from dragoman.agents.upstream.road import BOUNDS, CallFailed, Refused, Road
from dragoman.agents.upstream.turn import UpstreamTurn
from dragoman.agents.values import NewId
from dragoman.core import states
from dragoman.core.card import AgentSpec
from dragoman.core.errors import InvalidAgentResponse
from dragoman.core.log import Refused as NotWritten
from dragoman.core.log import StatusChange
from dragoman.ports import Desk, Ending, TurnOver
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

log = logging.getLogger("dragoman.upstream")

PATIENCE: Final = 12.0
"""Seconds that a turn which was asked to stop may still take; the run has ended its task by then."""


class UpstreamAgent:
    """Implements `dragoman.ports.Elsewhere`. It is away while nobody reaches it, and until its card was read."""

    def __init__(
        self,
        spec: AgentSpec,
        at: str,
        turns: int,
        breaker: Breaker,
        new_id: NewId,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`at`: where it is, for people. `turns`: how many it is given at a time."""
        self.spec = spec
        self.at = at
        self.turns = turns
        self.breaker = breaker
        self.streams = spec.streaming
        self.idempotent = False
        self.extensions = ""
        self.is_removed = False
        self.silence = BOUNDS.silence
        """Seconds without a byte after which a call is given up."""
        self.roads: Sequence[Road] = ()
        """Its interfaces in the order in which to use them; none before its card was read."""
        self._silent: list[Road] = []
        """Those of them that did not answer, since one did."""
        self._new_id = new_id
        self.changed: Callable[[], None] = lambda: None
        """Called when it is left alone from now on, and when it answers again."""
        self._sleep = sleep
        self._running: dict[str, UpstreamTurn] = {}

    # What the runtime asks --------------------------------------------------------------------------------------

    @property
    def left_behind(self) -> int:
        """There are no threads."""
        return 0

    @property
    def dials_in(self) -> bool:
        """It is not for workers to bring."""
        return False

    @property
    def capacity(self) -> int:
        """Turns that it may have at the same time."""
        if self.is_away:
            return 0
        return min(1, self.turns) if self.breaker.is_ajar else self.turns

    @property
    def absence(self) -> float:
        """Seconds for which it has been away."""
        return self.breaker.absence

    @property
    def trouble(self) -> str:
        """Why it is away."""
        if self.is_removed:
            return f"{self.at}: an operator removed it"
        return self.breaker.trouble if self.is_away else ""

    def runner_of(self, task_id: str) -> str:
        """Where a turn of this task is."""
        turn = self._running.get(task_id)
        if turn is None:
            return ""
        there = f" as its task {turn.task}" if turn.task else ""
        missed = f"; not reached just now: {self.breaker.trouble}" if self.breaker.trouble else ""
        return f"upstream {self.roads[0].interface if self.roads else self.at}{there}{missed}"

    def outlook_of(self, task_id: str) -> str:
        """How long it may be silent, and what went wrong last."""
        turn = self._running.get(task_id)
        if turn is None:
            return ""
        if self.breaker.trouble:
            return (
                f"The last call to it failed ({self.breaker.trouble}) and is made again; after {self.breaker.most} "
                "failures in a row it counts as away, and the turn is given back."
            )
        waits = "It was sent the message, and has not answered" if not turn.task else "It is asked for its task"
        return f"{waits}; a call to it that brings nothing for {self.silence:g} s is given up, and another one made."

    @property
    def running(self) -> int:
        """Turns that it has from here."""
        return len(self._running)

    # What its turns ask (turn.Link) -----------------------------------------------------------------------------

    @property
    def road(self) -> Road:
        """The interface to use."""
        return self.roads[0]

    @property
    def is_away(self) -> bool:
        """Nobody should try to call it."""
        return self.breaker.is_open or not self.roads

    def reached(self) -> None:
        """It answered."""
        self._silent.clear()
        if self.breaker.reached():
            log.info("%s is there again", self.at, extra={"agent": self.spec.id})
            self.changed()

    def missed(self, why: str) -> None:
        """It did not answer. Another of its interfaces may: each is tried once before it is left alone."""
        if not self.breaker.missed(why):
            return
        self._silent.append(self.roads[0])
        if others := [road for road in self.roads if road not in self._silent]:
            log.info("%s does not answer: %s is tried", self.roads[0].interface, others[0].interface)
            self.roads = [*others, *self._silent]
            self.breaker.ajar()
            return
        self._silent.clear()
        log.warning("%s is left alone until it answers again: %s", self.at, why, extra={"agent": self.spec.id})
        self.changed()

    def other_road(self, road: Road) -> bool:
        """Puts an interface last that does not know a call. False when there was no other."""
        if road is not self.roads[0]:
            return True  # somebody else did
        left = [one for one in self.roads if one is not road]
        if not left:
            return False
        log.warning("%s does not know what it should: %s is used instead", road.interface, left[0].interface)
        self.roads = left
        return True

    # Turns ------------------------------------------------------------------------------------------------------

    async def take_turn(self, desk: Desk) -> Ending:
        """Runs one turn upstream. Raises ProcessLost when it is away, or was not told how the turn ended."""
        turn = UpstreamTurn(desk, self, self._new_id, self._sleep)
        self._running[desk.task_id] = turn
        work = asyncio.create_task(turn.run(), name=f"turn of {desk.task_id} upstream")
        try:
            await asyncio.wait([work])  # which does not cancel what it waits for
            return work.result()
        except asyncio.CancelledError:
            try:
                if desk.cancel_reason in ("client", "deadline"):
                    await self._stop(turn, work)
            finally:
                has_ended = work.done() and not work.cancelled() and work.exception() is None
                work.cancel()
                await asyncio.wait([work])
            if has_ended and desk.cancel_reason == "client":
                return work.result()
            if not turn.is_sent and desk.cancel_reason == "drain":
                turn.record.keep_unsent()
            raise
        except (TurnOver, NotWritten):
            # The task went on without this run, and the store refuses whatever we say.
            return Ending(StatusChange(states.CANCELED))
        finally:
            del self._running[desk.task_id]

    async def _stop(self, turn: UpstreamTurn, work: asyncio.Task[Ending]) -> None:
        """Has a turn stopped upstream, and waits until it is over there, or our patience is."""
        if not (turn.is_sent or turn.task):
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                if not turn.task:
                    knows = asyncio.create_task(turn.record.known.wait())
                    try:
                        await asyncio.wait([knows, work], return_when=asyncio.FIRST_COMPLETED)
                    finally:
                        knows.cancel()
                if not work.done() and turn.task:
                    await self.cancel(turn.task)
                    turn.nudge()
                await asyncio.wait([work])
        if not work.done():
            # What is not CANCELED there is not said to be here: the run has ended it without the agent, and says so.
            log.warning("%s was asked to stop, and did not say that it has", self.at, extra={"task": turn.desk.task_id})

    async def cancel(self, task: str) -> None:
        """Asks for a task upstream to stop. What it says to that is heard elsewhere."""
        try:
            await self.road.call("CancelTask", pb.CancelTaskRequest(id=task), extensions=self.extensions)
        except Refused as refused:
            self.reached()
            log.info("%s did not cancel its task %s: %s", self.at, task, refused)
        except CallFailed as failed:
            self.missed(str(failed))
            log.warning("%s could not be told to cancel its task %s: %s", self.at, task, failed)
        except InvalidAgentResponse as error:
            log.warning("%s answered a cancel with nonsense: %s", self.at, error)

    async def let_go(self, memory: bytes) -> None:
        """A task of ours that waited for its caller was canceled: so is the one upstream."""
        task = read(memory).task
        if task and not self.is_away:
            await self.cancel(task)

    async def close(self) -> None:
        """Lets go of its connections."""
        for road in self.roads:
            await road.close()
