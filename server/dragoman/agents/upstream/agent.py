"""An agent upstream, as the runtime sees it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final

from dragoman.agents.upstream.transport import DEFAULT_TRANSPORT_LIMITS, UpstreamTransport
from dragoman.agents.upstream.turn import UpstreamTurn
from dragoman.agents.upstream.turn_writer import read_task_state
from dragoman.agents.values import NewId
from dragoman.calling.errors import CallRefused, ClientError
from dragoman.core.cards.agent_spec import AgentSpec
from dragoman.core.errors import InvalidAgentResponse
from dragoman.core.task import states
from dragoman.core.task.log import AppendRejected as NotWritten
from dragoman.core.task.log import StatusChange
from dragoman.ports import LeaseLost, TurnContext, TurnResult
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

log = logging.getLogger("dragoman.upstream")

UPSTREAM_STOP_TIMEOUT: Final = 12.0
"""Seconds that a turn which was asked to stop may still take; the run has ended its task by then."""


class UpstreamAgent:
    """Implements `dragoman.ports.Elsewhere`. It is away while nobody reaches it, and until its card was read."""

    def __init__(
        self,
        spec: AgentSpec,
        location: str,
        turns: int,
        breaker: CircuitBreaker,
        new_id: NewId,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`at`: where it is, for people. `turns`: how many it is given at a time."""
        self.spec = spec
        self.location = location
        self.turns = turns
        self.breaker = breaker
        self.supports_streaming = spec.streaming
        self.idempotent = False
        self.required_extensions = ""
        self.is_removed = False
        self.idle_timeout = DEFAULT_TRANSPORT_LIMITS.idle_timeout
        """Seconds without a byte after which a call is given up."""
        self.transports: Sequence[UpstreamTransport] = ()
        """Its interfaces in the order in which to use them; none before its card was read."""
        self._failed_transports: list[UpstreamTransport] = []
        """Those of them that did not answer, since one did."""
        self._new_id = new_id
        self.on_availability_change: Callable[[], None] = lambda: None
        """Called when it is left alone from now on, and when it answers again."""
        self._sleep = sleep
        self._running: dict[str, UpstreamTurn] = {}

    # What the runtime asks --------------------------------------------------------------------------------------

    @property
    def leaked_threads(self) -> int:
        """There are no threads."""
        return 0

    @property
    def is_worker_backed(self) -> bool:
        """It is not for workers to bring."""
        return False

    @property
    def capacity(self) -> int:
        """Turns that it may have at the same time."""
        if self.is_unavailable:
            return 0
        return min(1, self.turns) if self.breaker.is_half_open else self.turns

    @property
    def seconds_absent(self) -> float:
        """Seconds for which it has been away."""
        return self.breaker.seconds_open

    @property
    def problem(self) -> str:
        """Why it is away."""
        if self.is_removed:
            return f"{self.location}: an operator removed it"
        return self.breaker.last_error if self.is_unavailable else ""

    def runner_of(self, task_id: str) -> str:
        """Where a turn of this task is."""
        turn = self._running.get(task_id)
        if turn is None:
            return ""
        there = f" as its task {turn.task_id}" if turn.task_id else ""
        missed = f"; not reached just now: {self.breaker.last_error}" if self.breaker.last_error else ""
        return f"upstream {self.transports[0].interface if self.transports else self.location}{there}{missed}"

    def describe_run(self, task_id: str) -> str:
        """How long it may be silent, and what went wrong last."""
        turn = self._running.get(task_id)
        if turn is None:
            return ""
        if error := self.breaker.last_error:
            return (
                f"The last call to it failed ({error}) and is made again; after {self.breaker.max_failures} "
                "failures in a row it counts as away, and the turn is given back."
            )
        waits = "It was sent the message, and has not answered" if not turn.task_id else "It is asked for its task"
        return (
            f"{waits}; a call to it that brings nothing for {self.idle_timeout:g} s is given up, and another one made."
        )

    @property
    def running(self) -> int:
        """Turns that it has from here."""
        return len(self._running)

    # What its turns ask (turn.Link) -----------------------------------------------------------------------------

    @property
    def transport(self) -> UpstreamTransport:
        """The interface to use."""
        return self.transports[0]

    @property
    def is_unavailable(self) -> bool:
        """Nobody should try to call it."""
        return self.breaker.is_open or not self.transports

    def record_success(self) -> None:
        """It answered."""
        self._failed_transports.clear()
        if self.breaker.record_success():
            log.info("%s is there again", self.location, extra={"agent": self.spec.id})
            self.on_availability_change()

    def record_failure(self, reason: str) -> None:
        """It did not answer. Another of its interfaces may: each is tried once before it is left alone."""
        if not self.breaker.record_failure(reason):
            return
        self._failed_transports.append(self.transports[0])
        if others := [road for road in self.transports if road not in self._failed_transports]:
            log.info("%s does not answer: %s is tried", self.transports[0].interface, others[0].interface)
            self.transports = [*others, *self._failed_transports]
            self.breaker.half_open()
            return
        self._failed_transports.clear()
        log.warning("%s is left alone until it answers again: %s", self.location, reason, extra={"agent": self.spec.id})
        self.on_availability_change()

    def next_transport(self, transport: UpstreamTransport) -> bool:
        """Puts an interface last that does not know a call. False when there was no other."""
        if transport is not self.transports[0]:
            return True  # somebody else did
        left = [one for one in self.transports if one is not transport]
        if not left:
            return False
        log.warning("%s does not know what it should: %s is used instead", transport.interface, left[0].interface)
        self.transports = left
        return True

    # Turns ------------------------------------------------------------------------------------------------------

    async def take_turn(self, turn_context: TurnContext) -> TurnResult:
        """Runs one turn upstream. Raises ProcessLost when it is away, or was not told how the turn ended."""
        turn = UpstreamTurn(turn_context, self, self._new_id, self._sleep)
        self._running[turn_context.task_id] = turn
        work = asyncio.create_task(turn.run(), name=f"turn of {turn_context.task_id} upstream")
        try:
            await asyncio.wait([work])  # which does not cancel what it waits for
            return work.result()
        except asyncio.CancelledError:
            try:
                if turn_context.cancel_reason in ("client", "deadline"):
                    await self._stop(turn, work)
            finally:
                has_ended = work.done() and not work.cancelled() and work.exception() is None
                work.cancel()
                await asyncio.wait([work])
            if has_ended and turn_context.cancel_reason == "client":
                return work.result()
            if not turn.is_sent and turn_context.cancel_reason == "drain":
                turn.writer.mark_unsent()
            raise
        except (LeaseLost, NotWritten):
            # The task went on without this run, and the store refuses whatever we say.
            return TurnResult(StatusChange(states.CANCELED))
        finally:
            del self._running[turn_context.task_id]

    async def _stop(self, turn: UpstreamTurn, work: asyncio.Task[TurnResult]) -> None:
        """Has a turn stopped upstream, and waits until it is over there, or our patience is."""
        if not (turn.is_sent or turn.task_id):
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(UPSTREAM_STOP_TIMEOUT):
                if not turn.task_id:
                    knows = asyncio.create_task(turn.writer.task_known.wait())
                    try:
                        await asyncio.wait([knows, work], return_when=asyncio.FIRST_COMPLETED)
                    finally:
                        knows.cancel()
                if not work.done() and turn.task_id:
                    await self.cancel(turn.task_id)
                    turn.wake()
                await asyncio.wait([work])
        if not work.done():
            # What is not CANCELED there is not said to be here: the run has ended it without the agent, and says so.
            log.warning(
                "%s was asked to stop, and did not say that it has",
                self.location,
                extra={"task": turn.turn_context.task_id},
            )

    async def cancel(self, task: str) -> None:
        """Asks for a task upstream to stop. What it says to that is heard elsewhere."""
        try:
            await self.transport.call("CancelTask", pb.CancelTaskRequest(id=task), extensions=self.required_extensions)
        except CallRefused as refused:
            self.record_success()
            log.info("%s did not cancel its task %s: %s", self.location, task, refused.summary)
        except ClientError as failed:
            self.record_failure(failed.summary)
            log.warning("%s could not be told to cancel its task %s: %s", self.location, task, failed.summary)
        except InvalidAgentResponse as error:
            log.warning("%s answered a cancel with nonsense: %s", self.location, error)

    async def on_canceled(self, task_state: bytes) -> None:
        """A task of ours that waited for its caller was canceled: so is the one upstream."""
        task = read_task_state(task_state).task
        if task and not self.is_unavailable:
            await self.cancel(task)

    async def close(self) -> None:
        """Lets go of its connections."""
        for road in self.transports:
            await road.close()


MAX_CONSECUTIVE_FAILURES: Final = 5
"""Failures in a row after which nobody tries any more."""

MIN_FAILURE_INTERVAL: Final = 0.5
"""Seconds between two failures that count as two: a hundred turns that lose one connection saw one failure."""


class CircuitBreaker:
    """Whether an agent is there, as far as those who called it know. `clock` gives seconds, and never goes back."""

    def __init__(
        self,
        clock: Callable[[], float],
        max_failures: int = MAX_CONSECUTIVE_FAILURES,
        min_interval: float = MIN_FAILURE_INTERVAL,
    ) -> None:
        self._clock = clock
        self.max_failures = max_failures
        self._min_interval = min_interval
        self._failures = 0
        self._last_failure_at = float("-inf")
        self._opened_at: float | None = None
        self.is_open = False
        """The agent is left alone."""
        self.last_error = ""
        """What the last failure was; empty when the last call was none."""

    @property
    def is_half_open(self) -> bool:
        """It was left alone, and has not answered a call since."""
        return self._opened_at is not None and not self.is_open

    @property
    def seconds_open(self) -> float:
        """Seconds since it was first left alone; 0 while it is not."""
        return max(self._clock() - self._opened_at, 0.001) if self.is_open and self._opened_at is not None else 0.0

    def record_success(self) -> bool:
        """It answered a call, whatever it said. Gives whether that is news."""
        news = self._opened_at is not None
        self._failures, self._last_failure_at, self._opened_at = 0, float("-inf"), None
        self.is_open, self.last_error = False, ""
        return news

    def record_failure(self, reason: str) -> bool:
        """It did not answer. Gives whether it is left alone from now on, and was not before."""
        self.last_error = reason
        if self.is_open:
            return False
        now = self._clock()
        if not self.is_half_open:
            if now - self._last_failure_at < self._min_interval:
                return False
            self._last_failure_at = now
            self._failures += 1
            if self._failures < self.max_failures:
                return False
        self.open(reason)
        return True

    def open(self, reason: str) -> None:
        """Leaves it alone at once."""
        self.last_error, self.is_open = reason, True
        if self._opened_at is None:
            self._opened_at = self._clock()

    def half_open(self) -> None:
        """There is hope: one turn may try."""
        self.is_open = False
