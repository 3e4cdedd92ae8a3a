"""One turn of a called agent: its failures by reason, its recovery, and its waits."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import orjson

from dragoman.agents.called.calls import Sleep, TaskLost, TurnCalls
from dragoman.calling.errors import CallForbidden, CallRefused, OutcomeUnknown, ProtocolError
from dragoman.core.errors import A2AError, InvalidAgentResponse
from dragoman.ports import TurnContext, TurnResult

if TYPE_CHECKING:
    from dragoman.agents.called.agent import CalledAgent


class CalledTurn(ABC):
    """One turn. Whatever the other server answers ends at most this turn."""

    reason_prefix: ClassVar[str]
    """The first word of the reasons with which a task fails, such as `UPSTREAM`."""

    def __init__(self, context: TurnContext, agent: CalledAgent[Any], sleep: Sleep = asyncio.sleep) -> None:
        self.context = context
        self.calls = TurnCalls(agent, self.mark_unsent, sleep)
        self._sleep = sleep
        self._wakeup = asyncio.Event()

    async def run(self) -> TurnResult:
        """Makes the calls and writes their events. Raises WorkerLost for an unavailable server, for a later attempt."""
        prefix = self.reason_prefix
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

    @property
    def is_sent(self) -> bool:
        """Whether the other server may have begun the work."""
        return self.calls.is_sent

    @property
    def may_have_begun(self) -> bool:
        """Whether an earlier attempt may have begun the work at the other server."""
        return self.context.attempt > 1 and not self.is_marked_unsent

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
        """FAILED because what the other server sent is not valid."""
        return self.failed("InvalidAgentResponse", text, InvalidAgentResponse)

    @abstractmethod
    async def answer(self) -> TurnResult:
        """The result of the turn. Raises the errors that `run` turns into failures."""

    @property
    @abstractmethod
    def is_marked_unsent(self) -> bool:
        """Whether an earlier attempt noted that it did not begin the work."""

    @abstractmethod
    async def mark_unsent(self) -> None:
        """Notes with the task that its work was not begun, so that the next attempt begins it."""

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
