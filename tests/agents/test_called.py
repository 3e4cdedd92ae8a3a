"""What called agents have in common: capacity by their breaker, and turns that stop in order."""

from __future__ import annotations

import asyncio

import pytest
from tests.agents.turn_context import RecordingTurnContext

from dragoman.agents.called import CalledAgent
from dragoman.calling.breaker import CircuitBreaker
from dragoman.core.task import states
from dragoman.core.task.log import StatusChange
from dragoman.ports import LeaseLost, TurnContext, TurnResult

DONE = TurnResult(StatusChange(states.COMPLETED))


class ScriptedTurn:
    """Ends when it is told to."""

    def __init__(self, *, is_sent: bool) -> None:
        self.is_sent = is_sent
        self.is_marked_unsent = False
        self.began = asyncio.Event()
        self.end: asyncio.Future[TurnResult] = asyncio.get_running_loop().create_future()

    async def run(self) -> TurnResult:
        self.began.set()
        return await self.end

    async def mark_unsent(self) -> None:
        self.is_marked_unsent = True


class ScriptedAgent(CalledAgent[ScriptedTurn]):
    """Has one turn. `ends_when_stopped`: as the other server's task does when it is canceled."""

    def __init__(self, *, is_sent: bool = True, ends_when_stopped: bool = False) -> None:
        super().__init__(CircuitBreaker(lambda: 0.0), turns=7)
        self.turn = ScriptedTurn(is_sent=is_sent)
        self._ends_when_stopped = ends_when_stopped

    @property
    def is_unavailable(self) -> bool:
        return self.breaker.is_open

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
