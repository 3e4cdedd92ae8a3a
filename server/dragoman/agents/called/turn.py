"""One turn of a called agent: its calls, its failures by reason, its recovery, and its waits.

Calls are retried while the other server is available, and work is never begun twice.

| error of a call | what follows |
|---|---|
| `ServerUnavailable` | a retry, until the circuit breaker opens; then the turn returns to the queue |
| `CallRefused`, and the server is busy | a retry: the call had no effect |
| any other `ClientError`, `OutcomeUnknown` | the end of the turn (`CalledTurn.run`) |
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar

import orjson

from dragoman.calling.errors import CallForbidden, CallRefused, OutcomeUnknown, ProtocolError, ServerUnavailable
from dragoman.core.durations import Backoff
from dragoman.core.errors import A2AError, InvalidAgentResponse
from dragoman.ports import TurnContext, TurnResult, WorkerLost

if TYPE_CHECKING:
    from dragoman.agents.called.agent import CalledAgent

RETRY_BACKOFF: Final = Backoff(0.25, 5.0)  # between two attempts of a call
Sleep = Callable[[float], Awaitable[None]]  # waits for some seconds

T = TypeVar("T")


class TaskLost(OutcomeUnknown):
    """The other server no longer knows the task that it began for ours."""


class CalledTurn(ABC):
    """One turn. Whatever the other server answers ends at most this turn."""

    reason_prefix: ClassVar[str]  # the first word of the reasons with which a task fails, such as `UPSTREAM`

    def __init__(self, context: TurnContext, agent: CalledAgent[Any], sleep: Sleep = asyncio.sleep) -> None:
        self.context = context
        self.is_sent = False  # whether the other server may have begun the work
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
    def remote_task(self) -> str:
        """The id of the other server's task; empty while unknown."""

    @abstractmethod
    async def until_cancelable(self) -> None:
        """Returns once the other server's task is known."""

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


def stored_fields(data: bytes, key: str) -> Mapping[str, Any]:
    """The fields that a turn stored with the task under its `key`; none for no data, or data in another form."""
    try:
        document: Any = orjson.loads(data) if data else {}
    except orjson.JSONDecodeError:
        return {}
    fields = document.get(key) if isinstance(document, dict) else None
    return fields if isinstance(fields, dict) else {}
