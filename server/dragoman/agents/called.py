"""The common part of agents that this server calls over a connection: A2A servers and MCP servers."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import Generic, Protocol, TypeVar

from dragoman.calling.breaker import CircuitBreaker
from dragoman.core.task import states
from dragoman.core.task.log import AppendRejected, StatusChange
from dragoman.ports import LeaseLost, TurnContext, TurnResult


class CalledTurn(Protocol):
    """One turn of a called agent."""

    async def run(self) -> TurnResult:
        """Makes the call, and writes its events."""
        ...

    @property
    def is_sent(self) -> bool:
        """Whether the other server may have received the call."""
        ...

    async def mark_unsent(self) -> None:
        """Notes with the task that the call was not sent, so that the next run makes it."""
        ...


TurnT = TypeVar("TurnT", bound=CalledTurn)


class CalledAgent(ABC, Generic[TurnT]):
    """The parts of `dragoman.ports.RemoteAgent` that follow from a circuit breaker and a number of turns."""

    def __init__(self, breaker: CircuitBreaker, turns: int) -> None:
        """turns: the most turns at a time."""
        self.breaker = breaker
        self.turns = turns
        self._running: dict[str, TurnT] = {}
        """The running turns, by task id."""

    @property
    @abstractmethod
    def is_unavailable(self) -> bool:
        """Whether it should not be called."""

    @property
    def leaked_threads(self) -> int:
        """Always 0: turns use no threads."""
        return 0

    @property
    def is_worker_backed(self) -> bool:
        """Always False."""
        return False

    @property
    def capacity(self) -> int:
        """The most concurrent turns: none while unavailable, one as a probe while half open."""
        if self.is_unavailable:
            return 0
        return min(1, self.turns) if self.breaker.is_half_open else self.turns

    @property
    def seconds_absent(self) -> float:
        """Seconds since it became unavailable."""
        return self.breaker.seconds_open

    @property
    def problem(self) -> str:
        """Why it is unavailable; empty while it is available."""
        return self.breaker.last_error if self.is_unavailable else ""

    @property
    def running(self) -> int:
        """The number of running turns."""
        return len(self._running)

    def describe_failure(self) -> str:
        """Explains the last failed call and what will follow; empty after a success."""
        if not self.breaker.last_error:
            return ""
        return (
            f"The last call to it failed ({self.breaker.last_error}) and will be retried. After "
            f"{self.breaker.max_failures} consecutive failures the agent counts as unavailable, and the turn is "
            "returned to the queue."
        )

    async def take_turn(self, context: TurnContext) -> TurnResult:
        """Runs one turn. Raises WorkerLost when the agent is unavailable, or the turn's end is unknown."""
        turn = self.new_turn(context)
        self._running[context.task_id] = turn
        work = asyncio.create_task(turn.run(), name=f"turn of {context.task_id} at {type(self).__name__}")
        try:
            await asyncio.wait([work])  # unlike `await work`, does not cancel it when this turn is canceled
            return work.result()
        except asyncio.CancelledError:
            try:
                await self.stop(turn, context, work)
            finally:
                # Before `work.cancel()`, after which it would look canceled.
                ended_by_itself = work.done() and not work.cancelled() and work.exception() is None
                work.cancel()
                await asyncio.wait([work])
            if ended_by_itself and context.cancel_reason == "client":
                return work.result()
            if not turn.is_sent and context.cancel_reason == "drain":
                await turn.mark_unsent()
            raise
        except (LeaseLost, AppendRejected):
            # The claim is lost: nothing more of this turn is written, not even this result.
            return TurnResult(StatusChange(states.CANCELED))
        finally:
            del self._running[context.task_id]

    @abstractmethod
    def new_turn(self, context: TurnContext) -> TurnT:
        """A turn that has not begun."""

    @abstractmethod
    async def stop(self, turn: TurnT, context: TurnContext, work: asyncio.Task[TurnResult]) -> None:
        """Cancels the other server's task if the reason to stop asks for it, and waits until `work` ends."""
