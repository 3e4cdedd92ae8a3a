"""An agent that calls another server: capacity by its circuit breaker, and turns that retry, recover and stop in order.

Calls are retried while the other server is available, and work is never begun twice.

| error of a call | what follows |
|---|---|
| `ServerUnavailable` | a retry, until the circuit breaker opens; then the turn returns to the queue |
| `CallRefused`, and the server is busy | a retry: the call had no effect |
| any other `ClientError`, `OutcomeUnknown` | the end of the turn (`CalledTurn.run`) |
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any, ClassVar, Final, TypeVar

import orjson

from dragoman.calling.breaker import CircuitBreaker
from dragoman.calling.errors import (
    CallForbidden,
    CallRefused,
    ClientError,
    OutcomeUnknown,
    ProtocolError,
    ServerUnavailable,
)
from dragoman.core.cards.agent_spec import AgentSpec
from dragoman.core.durations import Backoff
from dragoman.core.errors import A2AError, InvalidAgentResponse, TaskNotCancelable, Unavailable
from dragoman.core.task import states
from dragoman.core.task.log import AppendRejected, StatusChange
from dragoman.ports import AGENT_STOP_TIMEOUT, WORK_ELSEWHERE, LeaseLost, TurnContext, TurnResult, WorkerLost

CRASH_RETRIES: Final = 100
"""Attempts after a process died: they follow the other server's task, and never begin its work twice."""

RETRY_BACKOFF: Final = Backoff(0.25, 5.0)  # between two attempts of a call
CANCEL_BACKOFF: Final = Backoff(1.0, 30.0)  # between two cancels of a task that its server has not ended
CONFIRM_BACKOFF: Final = Backoff(0.1, 0.5)  # between two reads of a canceled task that waited for its caller
CONFIRM_TIMEOUT: Final = 5.0  # seconds for a server to end a canceled task that waited for its caller
Sleep = Callable[[float], Awaitable[None]]  # waits for some seconds

T = TypeVar("T")


class CalledAgent(ABC):
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
        self._running: dict[str, CalledTurn] = {}  # the running turns, by task id

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

    def runner_of(self, task_id: str) -> str:
        """Describes where the turn of a task runs; empty when none does."""
        turn = self._running.get(task_id)
        return "" if turn is None else turn.describe_runner()

    def describe_run(self, task_id: str) -> str:
        """Describes the state of a task's turn: the last failed call and what will follow, or what it waits for."""
        turn = self._running.get(task_id)
        if turn is None:
            return ""
        if not self.breaker.last_error:
            return turn.describe_wait()
        return (
            f"The last call to it failed {self.breaker.seconds_since_error:.0f} s ago "
            f"({self.breaker.last_error}) and will be retried. After {self.breaker.max_failures} consecutive failures "
            "the agent counts as unavailable, and the turn is returned to the queue."
        )

    async def take_turn(self, context: TurnContext) -> TurnResult:
        """Runs one turn. Raises WorkerLost when the agent is unavailable, or the turn's end is unknown."""
        turn = self.new_turn(context)
        self._running[context.task_id] = turn
        work = asyncio.create_task(turn.run(), name=f"turn of {context.task_id} at {type(self).__name__}")
        try:
            if not context.canceled:  # else an earlier attempt was, and this one goes on with that
                await asyncio.wait([work])  # unlike `await work`, does not cancel it when this turn is canceled
                return work.result()
            return await self._cancel(turn, work)
        except asyncio.CancelledError:
            if context.cancel_reason == "client":
                return await self._cancel(turn, work)
            if context.cancel_reason == "deadline" and turn.is_begun:
                with suppress(TimeoutError):
                    async with asyncio.timeout(AGENT_STOP_TIMEOUT):
                        if await turn.withdraw(work) is None:
                            await self._repeat_cancel(turn, work)
            if context.cancel_reason == "drain" and not turn.is_sent:
                await end(work)
                await turn.store_unsent(True)
            raise
        except (LeaseLost, AppendRejected):
            # The claim is lost: nothing more of this turn is written, not even this result.
            return TurnResult(StatusChange(states.CANCELED))
        finally:
            del self._running[context.task_id]
            if not work.done():  # else a cancel could come in between, and take the result away
                with suppress(asyncio.CancelledError):  # another one: the first decides
                    await end(work)

    @abstractmethod
    def new_turn(self, context: TurnContext) -> CalledTurn:
        """A turn that has not begun."""

    # Cancels ----------------------------------------------------------------------------------------------------

    async def _cancel(self, turn: CalledTurn, work: asyncio.Task[TurnResult]) -> TurnResult:
        """The result of a turn that its client has canceled: that of the other server's task, once it has ended.

        CANCELED at once if that server never began the work. Raises WorkerLost when the turn has to stop before.
        """
        if not (turn.is_begun or work.done()):
            return TurnResult(StatusChange(states.CANCELED))
        try:
            if (result := await turn.withdraw(work)) is not None:
                return result
            await self._repeat_cancel(turn, work)
            result = work.result()
            if result.status.state in states.INTERRUPTED and turn.remote_task and not turn.is_cancel_refused:
                return await self._cancel_question(turn, result)
            return result
        except (LeaseLost, AppendRejected):
            return TurnResult(StatusChange(states.CANCELED))  # the claim is lost: this is not written
        except asyncio.CancelledError:  # the next attempt goes on
            raise WorkerLost("The cancel is not confirmed yet.") from None
        except WorkerLost as lost:
            raise WorkerLost(str(lost), may_have_started=turn.is_begun) from None

    async def _cancel_question(self, turn: CalledTurn, result: TurnResult) -> TurnResult:
        """The end of a canceled turn whose other server has asked its caller something before it took the cancel."""
        attempt = 0
        while True:
            attempt += 1
            try:
                await self.cancel_idle(turn.remote_task, turn.context.cancel_metadata)
                return TurnResult(StatusChange(states.CANCELED), state_update=result.state_update)
            except TaskNotCancelable as refused:
                turn.refuse_cancel(refused.message)
                return result
            except Unavailable as error:
                self.log.warning("%s: %s", self.location, error.message, extra={"task": turn.context.task_id})
            await asyncio.sleep(CANCEL_BACKOFF.delay(attempt))

    async def _repeat_cancel(self, turn: CalledTurn, work: asyncio.Task[TurnResult]) -> None:
        """Cancels the other server's task again and again, until that ends, or goes on because its server refuses."""
        context, attempt, is_accepted = turn.context, 0, False
        await first(turn.until_cancelable(), work)
        while not work.done():
            attempt += 1
            try:
                await first(self.cancel_task(turn.remote_task, context.cancel_metadata), work)
                is_accepted = True
            except CallRefused as refused:
                if not (is_accepted or refused.remote_error.is_busy or await self._has_ended(turn.remote_task, work)):
                    self.log.info("%s: %s", self.location, refused.summary, extra={"task": context.task_id})
                    turn.refuse_cancel(f"the {self.kind} refuses to cancel its task")
                    await asyncio.wait([work])
            except (ClientError, InvalidAgentResponse) as error:
                if isinstance(error, ServerUnavailable):
                    self.record_failure(error.summary)
                text = "%s has not confirmed a cancel, which is repeated: %s"
                self.log.warning(text, self.location, error, extra={"task": context.task_id})
            turn.wake()
            await asyncio.wait([work], timeout=CANCEL_BACKOFF.delay(attempt))

    async def _has_ended(self, task: str, work: asyncio.Task[TurnResult]) -> bool:
        """Whether the other server's task has ended, as far as can be read now: if not, its refusal is asked again."""
        try:
            return await first(self.has_ended(task), work) is not False
        except (ClientError, InvalidAgentResponse):
            return True

    async def cancel_idle(self, task: str, metadata: bytes) -> None:
        """Cancels a task of the other server that waits for its caller, and waits until it has ended.

        Raises TaskNotCancelable, Unavailable.
        """
        is_refused, polls = False, 0
        try:
            async with asyncio.timeout(CONFIRM_TIMEOUT):
                try:
                    await self.cancel_task(task, metadata)
                except CallRefused as refused:
                    is_refused = not refused.remote_error.is_busy
                while not await self.has_ended(task):
                    if is_refused:
                        raise TaskNotCancelable(f"the {self.kind} refuses to cancel its task")
                    polls += 1
                    await asyncio.sleep(CONFIRM_BACKOFF.delay(polls))
        except (ClientError, InvalidAgentResponse, TimeoutError) as error:
            raise Unavailable(f"the {self.kind} has not confirmed the cancel; the task waits on, try again") from error

    @abstractmethod
    async def cancel_task(self, task: str, metadata: bytes) -> None:
        """Asks the other server once to cancel its task. `metadata`: of the cancel request, a serialized Struct.

        Raises ClientError, CallRefused when the server refuses, InvalidAgentResponse.
        """

    @abstractmethod
    async def has_ended(self, task: str) -> bool:
        """Whether a task of the other server has ended, or is not known there. Raises ClientError."""


async def end(work: asyncio.Task[TurnResult]) -> None:
    """Cancels the work of a turn, and waits until it has stopped."""
    work.cancel()
    await asyncio.wait([work])


async def first(call: Coroutine[Any, Any, T], work: asyncio.Task[TurnResult]) -> T | None:
    """The result of a call; None if the work of its turn ended first."""
    calling = asyncio.create_task(call)
    try:
        await asyncio.wait([calling, work], return_when=asyncio.FIRST_COMPLETED)
        return calling.result() if calling.done() else None
    finally:
        calling.cancel()


class TaskLost(OutcomeUnknown):
    """The other server no longer knows the task that it began for ours."""


class CalledTurn(ABC):
    """One turn. Whatever the other server answers ends at most this turn."""

    reason_prefix: ClassVar[str]  # the first word of the reasons with which a task fails, such as `UPSTREAM`

    def __init__(self, context: TurnContext, agent: CalledAgent, sleep: Sleep = asyncio.sleep) -> None:
        self.context = context
        self.is_sent = False  # whether the other server may have begun the work
        self.is_cancel_refused = False
        self._agent = agent
        self._sleep = sleep
        self._wakeup = asyncio.Event()

    async def run(self) -> TurnResult:
        """Makes the calls and writes their events. Raises WorkerLost for an unavailable server, for a later attempt."""
        prefix, self.is_sent = self.reason_prefix, self.may_have_begun
        try:
            return await self.answer()
        except (InvalidAgentResponse, ProtocolError) as error:
            return self.invalid(error.message)
        except CallForbidden as error:
            return self.failed(f"{prefix}_FORBIDDEN", error.message)
        except TaskLost as error:
            return self.failed(f"{prefix}_LOST", str(error))
        except OutcomeUnknown as error:
            return self.failed(f"{prefix}_UNKNOWN", str(error))
        except CallRefused as refused:
            return self.refused(refused)

    async def repeat(self, call: Callable[[], Awaitable[T]]) -> T:
        """Repeats an idempotent call until it succeeds. Raises ClientError, and WorkerLost for an unavailable server.

        An answer of the server closes its circuit breaker.
        """
        attempt = 0
        while True:
            attempt += 1
            try:
                response = await self.until_available(call)
            except CallRefused as refused:
                self._agent.record_success()
                if not refused.remote_error.is_busy:
                    raise
                await self._sleep(RETRY_BACKOFF.delay(attempt))
            else:
                self._agent.record_success()
                return response

    async def until_available(self, call: Callable[[], Awaitable[T]]) -> T:
        """Repeats what calls nothing, such as connecting, until the server is available. Raises as `repeat` does."""
        attempt = 0
        while True:
            attempt += 1
            try:
                return await call()
            except ServerUnavailable as failure:
                await self.wait_to_retry(failure, attempt)

    def outcome_unknown(self, failure: ServerUnavailable, text: str) -> OutcomeUnknown:
        """The error of a call that may have begun work, and must not be repeated. text: for callers."""
        self._agent.record_failure(failure.summary)
        return OutcomeUnknown(text)

    async def wait_to_retry(self, failure: ServerUnavailable, attempt: int = 1) -> None:
        """Waits before the next attempt. Raises WorkerLost instead once the server is unavailable."""
        self._agent.record_failure(failure.summary)
        if self._agent.is_unavailable:
            if not self.is_sent:
                await self.store_unsent(True)
            raise WorkerLost(f"The {self._agent.kind} is unavailable.", may_have_started=self.is_sent)
        await self._sleep(RETRY_BACKOFF.delay(attempt))

    @property
    def may_have_begun(self) -> bool:
        """Whether an earlier attempt may have begun the work at the other server."""
        return self.context.attempt > 1 and not self.is_marked_unsent

    @property
    def is_begun(self) -> bool:
        """Whether the other server may have work of any turn: then only that server can say that it has stopped."""
        return self.is_sent or bool(self.remote_task) or self.may_have_begun

    def refuse_cancel(self, reason: str) -> None:
        """Notes that the other server refuses a cancel: its task goes on."""
        self.is_cancel_refused = True
        self.context.refuse_cancel(reason)
        self.wake()

    async def begin_work(self) -> None:
        """Removes the note of an earlier attempt before work begins: an attempt after a crash would believe it."""
        if self.is_marked_unsent:
            await self.store_unsent(False)

    def wake(self) -> None:
        """Ends the wait of `wait_for_wakeup`: the other server's task is polled at once."""
        self._wakeup.set()

    async def wait_for_wakeup(self, seconds: float) -> None:
        """Waits for some seconds, or until `wake`."""
        waits = [asyncio.ensure_future(self._sleep(seconds)), asyncio.create_task(self._wakeup.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waits:
                one.cancel()
        self._wakeup.clear()

    def invalid(self, text: str) -> TurnResult:
        return self.failed("InvalidAgentResponse", text, InvalidAgentResponse)

    @abstractmethod
    async def answer(self) -> TurnResult:
        """The result of the turn. Raises the errors that `run` turns into failures."""

    @property
    @abstractmethod
    def is_marked_unsent(self) -> bool:
        """Whether an earlier attempt noted that it did not begin the work."""

    @abstractmethod
    async def store_unsent(self, unsent: bool) -> None:
        """Stores with the task whether its work was not begun, so that the next attempt begins it."""

    @abstractmethod
    def failed(self, reason: str, text: str, error: type[A2AError] | None = None) -> TurnResult:
        """FAILED with this reason and text. error: what a blocking caller receives, with the text."""

    @abstractmethod
    def refused(self, refused: CallRefused) -> TurnResult:
        """The result of a turn whose call the other server has refused."""

    @abstractmethod
    def describe_runner(self) -> str:
        """Describes where it runs."""

    @abstractmethod
    def describe_wait(self) -> str:
        """Describes what it waits for."""

    @property
    @abstractmethod
    def remote_task(self) -> str:
        """The id of the other server's task; empty while unknown."""

    @abstractmethod
    async def until_cancelable(self) -> None:
        """Returns once the other server's task is known."""

    async def withdraw(self, work: asyncio.Task[TurnResult]) -> TurnResult | None:
        """The result of a canceled turn whose work its server confirms no end of; else None. `work`: that of `run`."""
        return None


def state_document(key: str, fields: Mapping[str, Any]) -> bytes:
    """The JSON that a turn stores with the task: its fields under its key, and that another server may have work."""
    return orjson.dumps({key: fields, WORK_ELSEWHERE: True})


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


def stored_fields(data: bytes, key: str) -> Mapping[str, Any]:
    """The fields that a turn stored with the task under its `key`; none for no data, or data in another form."""
    try:
        document: Any = orjson.loads(data) if data else {}
    except orjson.JSONDecodeError:
        return {}
    fields = document.get(key) if isinstance(document, dict) else None
    return fields if isinstance(fields, dict) else {}
