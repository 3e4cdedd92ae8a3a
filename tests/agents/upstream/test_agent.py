"""An upstream agent: its choice of transports, and its circuit breaker."""

from __future__ import annotations

import pytest
from tests.agents.turn_context import RecordingTurnContext
from tests.agents.upstream.scripted_transport import CONNECT_FAILURE, ScriptedTransport, agent, run_turn, task

from dragoman.agents.upstream.agent import CircuitBreaker
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


async def test_another_transport_is_used_when_one_does_not_respond() -> None:
    silent, other = (
        ScriptedTransport({"SendStreamingMessage": [[CONNECT_FAILURE]]}),
        ScriptedTransport({"SendStreamingMessage": [[task("COMPLETED", "a")]]}),
    )
    remote = agent(silent, other)
    result = await remote.take_turn(RecordingTurnContext("hi"))
    assert result.status.state == pb.TASK_STATE_COMPLETED
    assert remote.transport is other
    assert (remote.is_unavailable, remote.breaker.is_half_open, remote.capacity) == (False, False, 10)


async def test_an_agent_is_unavailable_only_when_all_its_transports_fail() -> None:
    transports = [ScriptedTransport({"SendStreamingMessage": [[CONNECT_FAILURE]]}) for _ in range(3)]
    remote = agent(*transports)
    with pytest.raises(Exception, match="unavailable"):
        await remote.take_turn(RecordingTurnContext("hi"))
    assert remote.is_unavailable
    assert [len(transport.calls("SendStreamingMessage")) > 0 for transport in transports] == [True] * 3


async def test_nothing_is_sent_over_an_unused_transport() -> None:
    first, second = ScriptedTransport({"SendStreamingMessage": [[task("COMPLETED")]]}), ScriptedTransport({})
    await run_turn(RecordingTurnContext("hi"), first, second)
    assert not second.requests


# Circuit breaker ---------------------------------------------------------------------------------------------------


def test_the_breaker_opens_after_failures_some_time_apart() -> None:
    now = 0.0
    breaker = CircuitBreaker(lambda: now, max_failures=3, min_interval=1.0)
    assert [breaker.record_failure("x") for _ in range(5)] == [False] * 5  # at the same moment
    now = 1.0
    assert not breaker.record_failure("x")
    now = 2.0
    assert breaker.record_failure("y")
    assert (breaker.is_open, breaker.last_error) == (True, "y")
    now = 5.0
    assert breaker.seconds_open == 3.0
    breaker.half_open()
    assert (breaker.is_open, breaker.is_half_open, breaker.seconds_open) == (False, True, 0.0)
    now = 6.0
    assert breaker.record_failure("z")
    assert breaker.seconds_open == 4.0  # since it first opened
    breaker.half_open()
    assert breaker.record_success()
    assert not breaker.record_success()
    assert (breaker.is_half_open, breaker.seconds_open, breaker.last_error) == (False, 0.0, "")


def test_a_success_resets_the_count_of_failures() -> None:
    now = 0.0
    breaker = CircuitBreaker(lambda: now, max_failures=2, min_interval=0.0)
    breaker.record_failure("x")
    breaker.record_success()
    assert not breaker.record_failure("x")
