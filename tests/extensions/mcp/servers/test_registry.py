"""The MCP servers of one process."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Collection
from pathlib import Path

import pytest
from tests.agents.turn_context import run_turn
from tests.eventually import eventually
from tests.extensions.mcp.servers.conftest import outbound_client, stdio_spec, tools_over
from tests.extensions.mcp.servers.tool_server import http_server, tool_server
from tests.postgres import free_port
from tests.security.key_values import InMemoryKeyValues

from dragoman.extensions.mcp.servers.registry import InvalidMcpServer, McpRegistry
from dragoman.extensions.mcp.sources import McpSpec
from dragoman.ports import KeyValues, OutboundStreams, RemoteAgent

pytestmark = pytest.mark.long


class Agents:
    """Implements `RemoteAgentRegistry`: counts what it is told."""

    def __init__(self, *, ids: Collection[str] = ()) -> None:
        self.registered: list[tuple[str, ...]] = []
        self._ids = ids
        self.changes = 0

    async def register(self, agent: RemoteAgent) -> None:
        self.registered.append(tuple(skill.id for skill in agent.spec.skills))

    def capacity_changed(self) -> None:
        self.changes += 1

    async def unregister(self, agent: str) -> int:
        raise NotImplementedError

    def is_local(self, agent: str) -> bool:
        raise NotImplementedError

    def is_registered(self, agent: str) -> bool:
        return agent in self._ids

    def lease_left(self) -> float:
        raise NotImplementedError


@pytest.fixture
async def outbound() -> AsyncIterator[OutboundStreams]:
    async with outbound_client() as client:
        yield client


def registry(
    outbound: OutboundStreams, agents: Agents | None = None, *, key_values: KeyValues | None = None
) -> McpRegistry:
    return McpRegistry(outbound, agents or Agents(), key_values, max_response_bytes=1_000_000)


async def test_servers_are_agents_in_the_order_of_the_settings(tmp_path: Path, outbound: OutboundStreams) -> None:
    async with tools_over("http modern", tmp_path) as tools:
        servers = registry(outbound)
        await servers.connect([stdio_spec("old", tmp_path / "other", "other"), McpSpec(url=tools.spec.url)], ["echo"])
        assert [agent.spec.id for agent in servers.agents] == ["other", "test-tools"]
        assert [(status.url, status.interfaces, status.max_turns) for status in servers.status()] == [
            (sys.executable, ["MCP 2025-11-25 over stdio"], 100),
            (tools.spec.url, ["MCP 2026-07-28 over HTTP"], 100),
        ]
        await servers.close()


async def test_an_unavailable_server_is_served_if_its_id_is_known(outbound: OutboundStreams) -> None:
    port, agents = free_port(), Agents()
    url = f"http://127.0.0.1:{port}/mcp"
    with pytest.raises(InvalidMcpServer, match=r"with an id .* it is served as soon as it responds"):
        await registry(outbound).connect([McpSpec(url=url)], [])
    servers = registry(outbound, agents)
    await servers.connect([McpSpec(url=url, id="tools")], [])
    (agent,) = servers.agents
    assert (agent.capacity, "refused the connection" in agent.problem) == (0, True)
    (status,) = servers.status()
    assert (status.interfaces, status.seconds_absent > 0, status.problem) == ([], True, agent.problem)
    servers.start()
    async with http_server(tool_server(), port):
        await eventually(lambda: agent.capacity == 1)  # a probe
        assert agents.registered[0][0] == "echo"
        await run_turn(agent, "echo x")
        assert (agent.capacity, agents.changes > 0) == (100, True)
        await servers.close()


async def test_the_tools_of_a_server_that_is_away_survive_a_restart(outbound: OutboundStreams) -> None:
    port, key_values = free_port(), InMemoryKeyValues()
    spec = McpSpec(url=f"http://127.0.0.1:{port}/mcp", id="tools")
    async with http_server(tool_server(), port):
        servers = registry(outbound, key_values=key_values)
        await servers.connect([spec], [])
        known = servers.agents[0].spec
        await servers.close()
    servers = registry(outbound, key_values=key_values)
    await servers.connect([spec], [])
    (agent,) = servers.agents
    assert (agent.capacity, agent.spec) == (0, known)
    assert known.skills
    await servers.close()


async def test_an_id_that_is_taken_is_rejected(tmp_path: Path, outbound: OutboundStreams) -> None:
    servers = registry(outbound)
    with pytest.raises(InvalidMcpServer, match='the id "echo" belongs to another agent here; choose one with'):
        await servers.connect([stdio_spec("modern", tmp_path / "log", "echo")], ["echo"])
    await servers.close()


async def test_a_server_that_takes_the_name_of_another_agent_is_left_out(
    tmp_path: Path, outbound: OutboundStreams
) -> None:
    servers = registry(outbound)
    await servers.connect([stdio_spec("modern", tmp_path / "log", "")], ["test-tools"])
    assert servers.agents == []
    (status,) = servers.status()
    assert status.problem.startswith('it calls itself "test-tools", which belongs to another agent here; choose an id')
    await servers.close()


async def test_a_server_that_takes_the_name_of_another_agent_stays_left_out(outbound: OutboundStreams) -> None:
    port, agents = free_port(), Agents(ids=["test-tools"])
    async with http_server(tool_server(), port):
        servers = registry(outbound, agents)
        await servers.connect([McpSpec(url=f"http://127.0.0.1:{port}/mcp")], ["test-tools"])
        await servers.refresh(servers.servers[0])
        assert (servers.agents, agents.registered) == ([], [])
        (status,) = servers.status()
        assert 'it calls itself "test-tools", which belongs to another agent here' in status.problem
        await servers.close()


async def test_a_server_that_cannot_be_read_is_unavailable_with_the_reason(
    outbound: OutboundStreams, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with tools_over("http modern", tmp_path) as tools:
        servers = registry(outbound)
        nothing = tools.spec.url.replace("/mcp", "/nothing")
        await servers.connect([McpSpec(url=nothing, id="x"), McpSpec(url=nothing), McpSpec(url=tools.spec.url)], [])
        assert [(agent.spec.id, agent.capacity) for agent in servers.agents] == [("x", 0), ("test-tools", 100)]
        problems = [status.problem for status in servers.status()]
        assert ["Not Found" in problem for problem in problems] == [True, True, False]
        assert any("is served as agent x, but is unavailable" in text for text in caplog.messages)
        assert any("is not served yet: unavailable" in text for text in caplog.messages)
        await servers.close()


async def test_a_process_that_ends_is_restarted_at_once(tmp_path: Path, outbound: OutboundStreams) -> None:
    servers = registry(outbound)
    await servers.connect([stdio_spec("modern", tmp_path / "log")], [])
    servers.start()
    (agent,) = servers.agents
    await run_turn(agent, "die")
    await eventually(lambda: not agent.connection.is_open)
    await eventually(lambda: agent.is_reachable)
    await servers.close()


async def test_an_error_while_tools_are_read_keeps_the_known_ones(tmp_path: Path, outbound: OutboundStreams) -> None:
    port = free_port()
    servers = registry(outbound)
    async with http_server(tool_server(), port) as url:
        await servers.connect([McpSpec(url=url)], [])
    (agent,) = servers.agents
    await servers.refresh(agent)
    assert (len(agent.tools), agent.is_unavailable) == (17, False)  # calls decide that
    agent.breaker.open("gone")
    await servers.refresh(agent)
    assert (agent.is_unavailable, "refused the connection" in agent.problem) == (True, True)
    async with http_server(tool_server(), port):
        await servers.refresh(agent)
        assert (agent.is_unavailable, agent.breaker.is_half_open) == (False, True)
        await servers.close()
