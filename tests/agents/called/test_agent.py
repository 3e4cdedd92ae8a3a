"""What called agents have in common: capacity by their breaker, and turns that stop in order."""

from __future__ import annotations

import asyncio
import logging

import pytest
from tests.agents.turn_context import RecordingTurnContext

from dragoman.agents.called.agent import CalledAgent, placeholder_spec
from dragoman.agents.called.turn import CalledTurn
from dragoman.calling.breaker import CircuitBreaker
from dragoman.calling.errors import CallRefused
from dragoman.core.errors import A2AError
from dragoman.core.task import states
from dragoman.core.task.log import StatusChange
from dragoman.ports import LeaseLost, TurnContext, TurnResult

DONE = TurnResult(StatusChange(states.COMPLETED))


class ScriptedTurn(CalledTurn):
    """Ends when it is told to."""

    reason_prefix = "SCRIPT"
    is_marked_unsent = False

    def __init__(self, context: TurnContext, server: ScriptedAgent, *, is_sent: bool) -> None:
        super().__init__(context, server)
        self.is_sent = is_sent
        self.began = asyncio.Event()
        self.end: asyncio.Future[TurnResult] = asyncio.get_running_loop().create_future()

    async def answer(self) -> TurnResult:
        self.began.set()
        return await self.end

    async def store_unsent(self, unsent: bool) -> None:
        self.is_marked_unsent = unsent

    def failed(self, reason: str, text: str, error: type[A2AError] | None = None) -> TurnResult:
        raise AssertionError("this turn does not fail")

    def refused(self, refused: CallRefused) -> TurnResult:
        raise AssertionError("this turn is not refused")


class ScriptedAgent(CalledAgent[ScriptedTurn]):
    """Has one turn. `ends_when_stopped`: as the other server's task does when it is canceled."""

    kind = "script"
    log = logging.getLogger("dragoman.script")

    def __init__(self, *, is_sent: bool = True, ends_when_stopped: bool = False, addresses: int = 1) -> None:
        self.changes: list[bool] = []
        self.is_closed = False
        spec = placeholder_spec("a-script", "a script that", 0.0)
        breaker = CircuitBreaker(lambda: 0.0, max_failures=1)
        super().__init__(spec, "http://there", 7, breaker, lambda: self.changes.append(self.is_unavailable))
        self.turn = ScriptedTurn(RecordingTurnContext(), self, is_sent=is_sent)
        self._ends_when_stopped = ends_when_stopped
        self._addresses = addresses

    is_known = True

    def use_another_address(self) -> bool:
        self._addresses -= 1
        return self._addresses > 0

    async def close(self) -> None:
        self.is_closed = True

    def describe_wait(self, turn: ScriptedTurn) -> str:
        return "It waits."

    def new_turn(self, context: TurnContext) -> ScriptedTurn:
        return self.turn

    async def stop(self, turn: ScriptedTurn, context: TurnContext, work: asyncio.Task[TurnResult]) -> None:
        if self._ends_when_stopped:
            turn.end.set_result(DONE)
            await asyncio.wait([work])


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
    assert agent.describe_run(context.task_id) == ""
    work = asyncio.create_task(agent.take_turn(context))
    await agent.turn.began.wait()
    assert agent.describe_run(context.task_id) == "It waits."
    agent.record_failure("it hung up")
    assert "(it hung up) and will be retried. After 1 consecutive failures" in agent.describe_run(context.task_id)
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
    assert await cancel(ScriptedAgent(ends_when_stopped=True), "client") is DONE


@pytest.mark.parametrize("reason", ["client", "deadline", "drain", "lease_lost"])
async def test_a_canceled_turn_that_goes_on_is_canceled(reason: str) -> None:
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
