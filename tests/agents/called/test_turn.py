"""What a turn of a called agent ends with, by the error of its calls, and what it remembers of earlier attempts."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from tests.agents.turn_context import RecordingTurnContext

from dragoman.agents.called.calls import TaskLost
from dragoman.agents.called.turn import CalledTurn, stored_fields
from dragoman.calling.errors import CallForbidden, CallRefused, OutcomeUnknown, ProtocolError
from dragoman.core.errors import A2AError, InvalidAgentResponse
from dragoman.core.task import states
from dragoman.core.task.log import StatusChange
from dragoman.ports import TurnResult, WorkerLost
from dragoman.wire.remote_errors import RemoteError

UNAVAILABLE = WorkerLost("away", may_have_started=False)


class FailingTurn(CalledTurn):
    """A turn whose calls raise one error. It keeps the failures that follow."""

    reason_prefix = "OTHER"
    is_marked_unsent = False

    def __init__(self, error: Exception, *, attempt: int = 1) -> None:
        context = RecordingTurnContext()
        context.attempt = attempt
        super().__init__(context, cast(Any, None))
        self.failures: list[tuple[str, str, type[A2AError] | None]] = []
        self._error = error

    async def answer(self) -> TurnResult:
        raise self._error

    async def mark_unsent(self) -> None:
        self.is_marked_unsent = True

    def failed(self, reason: str, text: str, error: type[A2AError] | None = None) -> TurnResult:
        self.failures.append((reason, text, error))
        return TurnResult(StatusChange(states.FAILED))

    def refused(self, refused: CallRefused) -> TurnResult:
        return self.failed("REFUSED", refused.message)


@pytest.mark.parametrize(
    ("error", "reason", "text"),
    [
        (ProtocolError("not JSON"), "InvalidAgentResponse", "not JSON"),
        (InvalidAgentResponse("no parts"), "InvalidAgentResponse", "no parts"),
        (CallForbidden("a private address"), "OTHER_FORBIDDEN", "a private address"),
        (OutcomeUnknown("it may have begun"), "OTHER_UNKNOWN", "it may have begun"),
        (TaskLost("no such task"), "OTHER_LOST", "no such task"),
        (CallRefused.from_answer(RemoteError("INTERNAL", "a bug")), "REFUSED", "a bug"),
    ],
)
async def test_a_reason_fails_the_turn(error: Exception, reason: str, text: str) -> None:
    turn = FailingTurn(error)
    assert (await turn.run()).status.state == states.FAILED
    expected = InvalidAgentResponse if reason == "InvalidAgentResponse" else None
    assert turn.failures == [(reason, text, expected)]


async def test_an_unavailable_server_returns_the_turn_to_the_queue() -> None:
    with pytest.raises(WorkerLost):
        await FailingTurn(UNAVAILABLE).run()


async def test_a_retry_may_have_begun_unless_the_attempt_before_noted_that_it_did_not() -> None:
    assert not FailingTurn(UNAVAILABLE).may_have_begun
    retry = FailingTurn(UNAVAILABLE, attempt=2)
    assert retry.may_have_begun
    await retry.mark_unsent()
    assert not retry.may_have_begun


async def test_a_wakeup_ends_a_wait_and_only_one() -> None:
    turn = FailingTurn(UNAVAILABLE)
    turn.wake()
    async with asyncio.timeout(10):
        await turn.wait_for_wakeup(3600)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await turn.wait_for_wakeup(3600)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"3", b'{"other": {"a": 1}}', b'{"mine": 3}'])
def test_a_state_in_another_form_has_no_fields(data: bytes) -> None:
    assert stored_fields(data, "mine") == {}


def test_a_stored_state_has_the_fields_of_its_key() -> None:
    assert stored_fields(b'{"mine": {"a": 1}}', "mine") == {"a": 1}
