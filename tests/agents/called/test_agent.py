"""What called agents have in common: capacity by their breaker, and turns that repeat calls, fail and stop in order."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, cast

import pytest
from tests.agents.turn_context import RecordingTurnContext

from dragoman.agents.called.agent import CalledAgent, CalledTurn, TaskLost, placeholder_spec, stored_fields
from dragoman.calling.breaker import CircuitBreaker
from dragoman.calling.errors import (
    CallForbidden,
    CallRefused,
    ClientError,
    OutcomeUnknown,
    ProtocolError,
    ServerUnavailable,
)
from dragoman.core.errors import A2AError, InvalidAgentResponse
from dragoman.core.task import states
from dragoman.core.task.log import StatusChange
from dragoman.ports import LeaseLost, TurnContext, TurnResult, WorkerLost
from dragoman.wire.remote_errors import RemoteError

DONE = TurnResult(StatusChange(states.COMPLETED))
UNAVAILABLE = WorkerLost("away", may_have_started=False)
BROKEN = ServerUnavailable.for_reason("the connection was lost")
NOT_SENT = ServerUnavailable.for_reason("refused the connection", may_have_arrived=False)
BUSY = CallRefused.from_answer(RemoteError("RESOURCE_EXHAUSTED", "too many calls"))
REFUSED = CallRefused.from_answer(RemoteError("NOT_FOUND", "no such task", "TASK_NOT_FOUND"))


class ScriptedTurn(CalledTurn):
    """Ends when it is told to."""

    reason_prefix = "SCRIPT"
    is_marked_unsent = False

    remote_task = "t-1"

    def __init__(self, context: TurnContext, server: ScriptedAgent, *, sends: bool) -> None:
        super().__init__(context, server)
        self.began = asyncio.Event()
        self.end: asyncio.Future[TurnResult] = asyncio.get_running_loop().create_future()
        self._sends = sends

    async def answer(self) -> TurnResult:
        self.is_sent = self._sends
        self.began.set()
        return await self.end

    async def store_unsent(self, unsent: bool) -> None:
        self.is_marked_unsent = unsent

    def failed(self, reason: str, text: str, error: type[A2AError] | None = None) -> TurnResult:
        raise AssertionError("this turn does not fail")

    def refused(self, refused: CallRefused) -> TurnResult:
        raise AssertionError("this turn is not refused")

    def describe_runner(self) -> str:
        return "at the script"

    def describe_wait(self) -> str:
        return "It waits."

    async def until_cancelable(self) -> None:
        """Its task is known."""


class ScriptedAgent(CalledAgent):
    """Has one turn. `ends_when_canceled`: as the other server's task does."""

    kind = "script"
    log = logging.getLogger("dragoman.script")

    def __init__(self, *, is_sent: bool = True, ends_when_canceled: bool = False, addresses: int = 1) -> None:
        self.changes: list[bool] = []
        self.is_closed = False
        spec = placeholder_spec("a-script", "a script that", 0.0)
        breaker = CircuitBreaker(lambda: 0.0, max_failures=1)
        super().__init__(spec, "http://there", 7, breaker, lambda: self.changes.append(self.is_unavailable))
        self.turn = ScriptedTurn(RecordingTurnContext(), self, sends=is_sent)
        self._ends_when_canceled = ends_when_canceled
        self._addresses = addresses

    is_known = True

    def use_another_address(self) -> bool:
        self._addresses -= 1
        return self._addresses > 0

    async def close(self) -> None:
        self.is_closed = True

    def new_turn(self, context: TurnContext) -> ScriptedTurn:
        return self.turn

    async def cancel_task(self, task: str, metadata: bytes) -> None:
        if self._ends_when_canceled:
            self.turn.end.set_result(DONE)

    async def has_ended(self, task: str) -> bool:
        return self.turn.end.done()


async def cancel(agent: ScriptedAgent, reason: str) -> TurnResult:
    """Cancels a turn of the agent once it runs."""
    context = RecordingTurnContext()
    context.cancel_reason = reason
    work = asyncio.create_task(agent.take_turn(context))
    await agent.turn.began.wait()
    assert agent.running == 1
    work.cancel()
    try:
        return await work
    finally:
        assert agent.running == 0


async def test_an_agent_is_unavailable_once_none_of_its_addresses_responds() -> None:
    agent = ScriptedAgent(addresses=2)
    agent.record_failure("the first is down")
    assert (agent.is_unavailable, agent.capacity, agent.changes) == (False, 1, [])
    agent.record_failure("the second is down")
    assert (agent.is_unavailable, agent.problem, agent.changes) == (True, "the second is down", [True])
    agent.record_success()
    assert (agent.capacity, agent.problem, agent.changes) == (7, "", [True, False])


async def test_a_running_turn_is_described_by_its_last_failure_or_by_its_wait() -> None:
    agent, context = ScriptedAgent(), RecordingTurnContext()
    assert (agent.describe_run(context.task_id), agent.runner_of(context.task_id)) == ("", "")
    work = asyncio.create_task(agent.take_turn(context))
    await agent.turn.began.wait()
    assert (agent.describe_run(context.task_id), agent.runner_of(context.task_id)) == ("It waits.", "at the script")
    agent.record_failure("it hung up")
    assert (
        "The last call to it failed 0 s ago (it hung up) and will be retried. After 1 consecutive failures"
        in agent.describe_run(context.task_id)
    )
    agent.turn.end.set_result(DONE)
    await work


async def test_an_unavailable_agent_takes_no_turn_and_a_half_open_one_takes_one() -> None:
    agent = ScriptedAgent()
    assert (agent.capacity, agent.problem, agent.seconds_absent) == (7, "", 0.0)
    agent.breaker.open("it is down")
    assert (agent.capacity, agent.problem) == (0, "it is down")
    assert agent.seconds_absent > 0
    agent.breaker.half_open()
    assert (agent.capacity, agent.problem) == (1, "")


async def test_a_turn_that_ends_by_itself_while_its_client_cancels_keeps_its_result() -> None:
    assert await cancel(ScriptedAgent(ends_when_canceled=True), "client") is DONE


@pytest.mark.parametrize("steps", range(12))
async def test_a_cancel_in_a_step_in_which_a_turn_ends_takes_no_result_away(steps: int) -> None:
    agent, context = ScriptedAgent(), RecordingTurnContext()
    work = asyncio.create_task(agent.take_turn(context))
    await agent.turn.began.wait()
    agent.turn.end.set_result(DONE)
    for _ in range(steps):
        await asyncio.sleep(0)
    context.canceled, context.cancel_reason = True, "client"
    work.cancel()
    assert await work is DONE


@pytest.mark.parametrize("reason", ["deadline", "drain", "lease_lost"])
async def test_a_stopped_turn_that_goes_on_is_canceled(monkeypatch: pytest.MonkeyPatch, reason: str) -> None:
    monkeypatch.setattr("dragoman.agents.called.agent.AGENT_STOP_TIMEOUT", 0.05)
    agent = ScriptedAgent()
    with pytest.raises(asyncio.CancelledError):
        await cancel(agent, reason)
    assert agent.turn.end.cancelled()
    assert not agent.turn.is_marked_unsent


async def test_a_drained_turn_notes_that_its_call_was_not_sent() -> None:
    agent = ScriptedAgent(is_sent=False)
    with pytest.raises(asyncio.CancelledError):
        await cancel(agent, "drain")
    assert agent.turn.is_marked_unsent


async def test_a_turn_that_lost_its_claim_ends_without_a_result() -> None:
    agent = ScriptedAgent()
    agent.turn.end.set_exception(LeaseLost())
    assert (await agent.take_turn(RecordingTurnContext())).status.state == states.CANCELED


# What a turn ends with, by the error of its calls, what it repeats, and what it remembers --------------------------


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

    async def store_unsent(self, unsent: bool) -> None:
        self.is_marked_unsent = unsent

    def failed(self, reason: str, text: str, error: type[A2AError] | None = None) -> TurnResult:
        self.failures.append((reason, text, error))
        return TurnResult(StatusChange(states.FAILED))

    def refused(self, refused: CallRefused) -> TurnResult:
        return self.failed("REFUSED", refused.message)

    def describe_runner(self) -> str:
        return ""

    def describe_wait(self) -> str:
        return ""

    remote_task = ""

    async def until_cancelable(self) -> None:
        raise AssertionError("this turn is not canceled")


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
    await retry.store_unsent(True)
    assert not retry.may_have_begun


async def test_the_note_that_no_work_was_begun_is_removed_before_it_begins() -> None:
    retry = FailingTurn(UNAVAILABLE, attempt=2)
    await retry.store_unsent(True)
    await retry.begin_work()
    assert retry.may_have_begun


async def test_a_wakeup_ends_a_wait_and_only_one() -> None:
    turn = FailingTurn(UNAVAILABLE)
    turn.wake()
    async with asyncio.timeout(60):
        await turn.wait_for_wakeup(3600)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await turn.wait_for_wakeup(3600)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"3", b'{"other": {"a": 1}}', b'{"mine": 3}'])
def test_a_state_in_another_form_has_no_fields(data: bytes) -> None:
    assert stored_fields(data, "mine") == {}


def test_a_stored_state_has_the_fields_of_its_key() -> None:
    assert stored_fields(b'{"mine": {"a": 1}}', "mine") == {"a": 1}


class CallingTurn(FailingTurn):
    """Calls a server that is unavailable after three failures, and keeps the waits between them."""

    kind = "other server"

    def __init__(self, *results: Any, is_sent: bool = False) -> None:
        super().__init__(UNAVAILABLE)
        self.waits: list[float] = []
        self.reasons: list[str] = []
        self.results = list(results)
        self.is_sent = is_sent
        self._agent = cast(Any, self)
        self._sleep = self._record_wait

    @property
    def is_unavailable(self) -> bool:
        return len(self.reasons) >= 3

    def record_success(self) -> None:
        self.reasons.clear()

    def record_failure(self, reason: str) -> None:
        self.reasons.append(reason)

    async def _record_wait(self, seconds: float) -> None:
        self.waits.append(seconds)
        await asyncio.sleep(0)

    async def call(self) -> Any:
        found = self.results.pop(0)
        if isinstance(found, Exception):
            raise found
        return found


async def test_a_call_is_repeated_with_growing_pauses() -> None:
    caller = CallingTurn(BROKEN, NOT_SENT, "done")
    assert await caller.repeat(caller.call) == "done"
    assert caller.waits == sorted(set(caller.waits))
    assert (len(caller.waits), caller.reasons, caller.is_sent) == (2, [], False)


async def test_a_busy_server_is_available_and_called_again() -> None:
    caller = CallingTurn(BUSY, BUSY, BUSY, BUSY, "done")
    assert await caller.repeat(caller.call) == "done"
    assert (len(caller.waits), caller.waits == sorted(set(caller.waits)), caller.reasons) == (4, True, [])


@pytest.mark.parametrize("error", [REFUSED, CallForbidden("a private address"), ProtocolError("not JSON")])
async def test_other_errors_end_the_calls(error: ClientError) -> None:
    caller = CallingTurn(error)
    with pytest.raises(type(error)) as raised:
        await caller.repeat(caller.call)
    assert raised.value is error
    assert caller.waits == []


async def test_a_refusal_is_an_answer_that_ends_a_series_of_failures() -> None:
    caller = CallingTurn(BROKEN, BROKEN, REFUSED)
    with pytest.raises(CallRefused):
        await caller.repeat(caller.call)
    assert caller.reasons == []


async def test_a_connection_without_an_answer_does_not_end_a_series_of_failures() -> None:
    caller = CallingTurn(NOT_SENT, "connected")
    await caller.until_available(caller.call)
    assert caller.reasons == ["refused the connection"]


@pytest.mark.parametrize(("is_sent", "marked"), [(False, 1), (True, 0)])
async def test_a_server_that_stays_unavailable_ends_the_turn(is_sent: bool, marked: int) -> None:
    caller = CallingTurn(BROKEN, NOT_SENT, BROKEN, is_sent=is_sent)
    with pytest.raises(WorkerLost, match=r"The other server is unavailable\.") as raised:
        await caller.repeat(caller.call)
    assert (raised.value.may_have_started, int(caller.is_marked_unsent), len(caller.waits)) == (is_sent, marked, 2)
