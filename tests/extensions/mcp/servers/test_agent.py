"""An MCP server as the runtime sees it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.agents.turn_context import RecordingTurnContext, run_turn
from tests.eventually import eventually
from tests.extensions.mcp.servers.conftest import Tools, outbound_client, stdio_spec, tools_over

from dragoman.calling.breaker import CircuitBreaker
from dragoman.calling.errors import ServerUnavailable
from dragoman.core.errors import Unavailable
from dragoman.core.task import states
from dragoman.core.task.log import AppendRejected
from dragoman.extensions.mcp.servers.agent import McpAgent
from dragoman.extensions.mcp.servers.call_state import CallState, read_call_state
from dragoman.extensions.mcp.servers.turn import McpTurn
from dragoman.extensions.mcp.sources import McpSpec
from dragoman.ports import LeaseLost, OutboundStreams, StateUpdate, is_remote

pytestmark = pytest.mark.long


@pytest.fixture
async def outbound() -> AsyncIterator[OutboundStreams]:
    async with outbound_client() as client:
        yield client


def agent_of(server: McpSpec, outbound: OutboundStreams, changes: list[bool] | None = None) -> McpAgent:
    """An agent whose breaker opens at the first failure."""
    breaker = CircuitBreaker(asyncio.get_running_loop().time, max_failures=1, min_interval=0.0)

    def changed() -> None:
        if changes is not None:
            changes.append(agent.is_unavailable)

    new_turn = partial(McpTurn, new_id=lambda: "id", clock=breaker.clock)
    agent = McpAgent(server, outbound, 1_000_000, breaker, new_turn, on_availability_change=changed)
    return agent


async def test_an_agent_is_unavailable_until_its_tools_were_read(tools: Tools, outbound: OutboundStreams) -> None:
    agent = agent_of(tools.spec, outbound)
    assert is_remote(agent)
    assert (agent.capacity, agent.is_worker_backed, agent.leaked_threads) == (0, False, 0)
    assert agent.apply(await agent.discover())
    assert (agent.capacity, agent.problem, agent.is_reachable) == (100, "", True)
    assert not agent.apply(await agent.discover())
    task, _ = await run_turn(agent, "echo hi")
    assert task.artifacts[0].parts[0].text == "hi"
    await agent.close()


async def test_failures_open_the_breaker_and_a_probe_closes_it(outbound: OutboundStreams) -> None:
    changes: list[bool] = []
    agent = agent_of(McpSpec(command=("no-such-program",), id="x"), outbound, changes)
    with pytest.raises(ServerUnavailable):
        await agent.discover()
    agent.record_failure("gone")
    assert (agent.is_unavailable, agent.problem, agent.seconds_absent > 0) == (True, "gone", True)
    agent.breaker.half_open()
    agent.record_success()
    assert (agent.breaker.is_open, len(changes)) == (False, 2)


async def test_a_cancel_of_a_client_waits_for_the_end_of_the_servers_task(
    tmp_path: Path, outbound: OutboundStreams
) -> None:
    async with tools_over("http modern", tmp_path) as tools:
        agent = agent_of(tools.spec, outbound)
        agent.apply(await agent.discover())
        context = RecordingTurnContext("long")
        running = asyncio.create_task(agent.take_turn(context))
        await context.event_put.wait()
        assert agent.runner_of("task-1").startswith(f"MCP server {tools.spec.url}, tool long, as its task ")
        assert agent.describe_run("task-1") == "The MCP server runs the call as a task of its own, which is polled."
        assert (agent.running, agent.runner_of("other"), agent.describe_run("other")) == (1, "", "")
        context.cancel_reason = "client"
        running.cancel()
        assert (await running).status.state == states.CANCELED
        assert tools.calls.count("cancel") == 1
        await agent.close()


async def test_a_drain_leaves_the_servers_task_running(tmp_path: Path, outbound: OutboundStreams) -> None:
    async with tools_over("http modern", tmp_path) as tools:
        agent = agent_of(tools.spec, outbound)
        agent.apply(await agent.discover())
        context = RecordingTurnContext("long")
        running = asyncio.create_task(agent.take_turn(context))
        await context.event_put.wait()
        context.cancel_reason = "drain"
        running.cancel()
        await asyncio.wait([running])
        assert (running.cancelled(), tools.calls.count("cancel")) == (True, 0)
        assert read_call_state(context.task_states[-1]).handle
        await agent.close()


async def test_a_drain_before_the_call_is_remembered(outbound: OutboundStreams) -> None:
    agent = agent_of(McpSpec(command=("sh", "-c", "sleep 60"), id="x"), outbound)
    async with tools_over("http modern", Path()) as tools:
        other = agent_of(tools.spec, outbound)
        agent.discovered = await other.discover()
        await other.close()
    context = RecordingTurnContext("echo x")
    running = asyncio.create_task(agent.take_turn(context))
    await asyncio.sleep(0)
    context.cancel_reason = "drain"
    running.cancel()
    await asyncio.wait([running])
    assert read_call_state(context.task_states[-1]).unsent
    await agent.close()


@pytest.mark.parametrize("error", [LeaseLost("lost"), AppendRejected("FENCED", None)])
async def test_a_turn_whose_claim_is_lost_ends_without_a_result(
    error: Exception, tmp_path: Path, outbound: OutboundStreams
) -> None:
    async with tools_over("http modern", tmp_path) as tools:
        agent = agent_of(tools.spec, outbound)
        agent.apply(await agent.discover())

        class LosingContext(RecordingTurnContext):
            def store(self, state_update: StateUpdate) -> Any:
                raise error

        assert (await agent.take_turn(LosingContext("long"))).status.state == states.CANCELED
        await agent.close()


async def test_a_waiting_task_that_is_canceled_cancels_its_call(old_tools: Tools, outbound: OutboundStreams) -> None:
    agent = agent_of(old_tools.spec, outbound)
    agent.apply(await agent.discover())
    result = await agent.take_turn(RecordingTurnContext("greet_once"))
    assert result.state_update.task_state is not None
    state = read_call_state(result.state_update.task_state)
    assert agent.may_have_work(result.state_update.task_state, 1)
    assert not await agent.cancel_waiting(result.state_update.task_state, b""), "a plain call confirms nothing"
    assert agent.calls.take(state.open_call) is None
    with pytest.raises(Unavailable):  # the server has no tasks, and does not say that it does not know this one
        await agent.cancel_waiting(CallState(handle="gone").to_json(), b"")
    await agent.close()


async def test_a_child_process_ends_with_its_agent(tmp_path: Path, outbound: OutboundStreams) -> None:
    agent = agent_of(stdio_spec("modern", tmp_path / "log"), outbound)
    agent.apply(await agent.discover())
    running = asyncio.create_task(agent.take_turn(RecordingTurnContext("wait")))
    await eventually(lambda: (tmp_path / "log").exists())
    running.cancel()
    await asyncio.wait([running])
    await agent.close()
    assert not agent.connection.is_open
