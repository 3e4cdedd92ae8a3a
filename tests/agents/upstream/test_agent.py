"""An upstream agent: its choice of transports."""

from __future__ import annotations

import pytest
from tests.agents.turn_context import RecordingTurnContext
from tests.agents.upstream.scripted_transport import CONNECT_FAILURE, ScriptedTransport, agent, run_turn, task

from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

pytestmark = pytest.mark.long


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
