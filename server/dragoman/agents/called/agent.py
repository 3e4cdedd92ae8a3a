"""A called agent as the runtime sees it: capacity by its circuit breaker, and turns that stop in order."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar, Final, Generic, TypeVar

from dragoman.agents.called.turn import CalledTurn
from dragoman.calling.breaker import CircuitBreaker
from dragoman.core.cards.agent_spec import AgentSpec
from dragoman.core.task import states
from dragoman.core.task.log import AppendRejected, StatusChange
from dragoman.ports import LeaseLost, TurnContext, TurnResult

TurnT = TypeVar("TurnT", bound=CalledTurn)

CRASH_RETRIES: Final = 100
"""Attempts after a process died: they follow the other server's task, and never begin its work twice."""


class CalledAgent(ABC, Generic[TurnT]):
    """The parts of `dragoman.ports.RemoteAgent` that follow from a circuit breaker and a number of turns."""

    kind: ClassVar[str]  # its noun in texts for callers
    log: ClassVar[logging.Logger]
    is_worker_backed = False
    leaked_threads = 0  # turns use no threads

    def __init__(
        self,
        spec: AgentSpec,
        location: str,
        turns: int,
        breaker: CircuitBreaker,
        on_availability_change: Callable[[], None] = lambda: None,
    ) -> None:
        """location: its address, for people. turns: the most turns at a time. on_availability_change: called when it
        becomes unavailable, and when it responds again."""
        self.spec = spec
        self.location = location
        self.turns = turns
        self.breaker = breaker
        self.on_availability_change = on_availability_change
        self.wake = asyncio.Event()  # ends the wait for the next read of its description
        self.refresh_task: asyncio.Task[None] | None = None  # the task that reads its description again
        self._running: dict[str, TurnT] = {}  # the running turns, by task id

    @property
    @abstractmethod
    def is_known(self) -> bool:
        """Whether its description was read."""

    @property
    def is_unavailable(self) -> bool:
        """Whether it should not be called."""
        return self.breaker.is_open or not self.is_known

    @property
    def is_reachable(self) -> bool:
        """Whether nothing has to be done to call it."""
        return not self.is_unavailable

    @abstractmethod
    async def close(self) -> None:
        """Closes its connections."""

    def record_success(self) -> None:
        if self.breaker.record_success():
            self.log.info("%s responds again", self.location, extra={"agent": self.spec.id})
            self.availability_changed()

    def record_failure(self, reason: str) -> None:
        """Records a call without a response. Each of its addresses is tried before it counts as unavailable."""
        if not self.breaker.record_failure(reason):
            return
        if self.use_another_address():
            self.breaker.half_open()
            return
        self.log.warning("%s is unavailable: %s", self.location, reason, extra={"agent": self.spec.id})
        self.availability_changed()

    def availability_changed(self) -> None:
        """Reads it again soon, because it has become unavailable or responds again."""
        self.wake.set()
        self.on_availability_change()

    def use_another_address(self) -> bool:
        """Lets the next calls use an address that was not tried since the last success. False without one."""
        return False

    @property
    def capacity(self) -> int:
        """The most concurrent turns: none while unavailable, one as a probe while half open."""
        if self.is_unavailable:
            return 0
        return min(1, self.turns) if self.breaker.is_half_open else self.turns

    @property
    def seconds_absent(self) -> float:
        return self.breaker.seconds_open

    @property
    def problem(self) -> str:
        return self.breaker.last_error if self.is_unavailable else ""

    @property
    def running(self) -> int:
        return len(self._running)

    def describe_run(self, task_id: str) -> str:
        """Describes the state of a task's turn: the last failed call and what will follow, or what it waits for."""
        turn = self._running.get(task_id)
        if turn is None:
            return ""
        if not self.breaker.last_error:
            return self.describe_wait(turn)
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
                await turn.store_unsent(True)
            raise
        except (LeaseLost, AppendRejected):
            # The claim is lost: nothing more of this turn is written, not even this result.
            return TurnResult(StatusChange(states.CANCELED))
        finally:
            del self._running[context.task_id]

    @abstractmethod
    def describe_wait(self, turn: TurnT) -> str:
        """Describes what a turn waits for."""

    @abstractmethod
    def new_turn(self, context: TurnContext) -> TurnT:
        """A turn that has not begun."""

    @abstractmethod
    async def stop(self, turn: TurnT, context: TurnContext, work: asyncio.Task[TurnResult]) -> None:
        """Cancels the other server's task if the reason to stop asks for it, and waits until `work` ends."""


def placeholder_spec(id: str, noun: str, time_limit: float, *, direct: bool = False) -> AgentSpec:
    """The spec of an agent with a configured id that was not read yet. noun: what could not be read."""
    name = id.replace("-", " ").capitalize()
    return AgentSpec(
        id=id,
        name=name,
        description=f"{name}, {noun} could not be read yet",
        checks_own_modes=True,
        direct=direct,
        crash_retries=CRASH_RETRIES,
        time_limit=time_limit,
    )
