"""Calls of one turn to another server: retried while the server is available, and never begun twice.

| error of a call | what follows |
|---|---|
| `ServerUnavailable` | a retry, until the circuit breaker opens; then the turn returns to the queue |
| `CallRefused`, and the server is busy | a retry: the call had no effect |
| any other `ClientError`, `OutcomeUnknown` | the end of the turn (`agents/called/turn.py`) |
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from dragoman.calling.errors import CallRefused, OutcomeUnknown, ServerUnavailable
from dragoman.core.durations import Backoff
from dragoman.ports import WorkerLost

if TYPE_CHECKING:
    from dragoman.agents.called.agent import CalledAgent

RETRY_BACKOFF: Final = Backoff(0.25, 5.0)
"""Between two attempts of a call."""

Sleep = Callable[[float], Awaitable[None]]
"""Waits for some seconds."""

T = TypeVar("T")


class TaskLost(OutcomeUnknown):
    """The other server no longer knows the task that it began for ours."""


class TurnCalls:
    """The calls of one turn."""

    def __init__(self, agent: CalledAgent[Any], mark_unsent: Callable[[], Awaitable[None]], sleep: Sleep) -> None:
        """mark_unsent: notes with the task that its work was not begun."""
        self.is_sent = False
        """Whether the other server may have begun the work of the turn."""
        self._agent = agent
        self._mark_unsent = mark_unsent
        self._sleep = sleep

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
                await self._mark_unsent()
            raise WorkerLost(f"The {self._agent.kind} is unavailable.", may_have_started=self.is_sent)
        await self._sleep(RETRY_BACKOFF.delay(attempt))
