"""The MCP servers of one process, from the settings."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from dragoman.agents.called.registry import CalledRegistry
from dragoman.agents.values import NewId
from dragoman.calling.breaker import CircuitBreaker
from dragoman.calling.errors import ClientError, ProtocolError, ServerUnavailable
from dragoman.core.durations import Backoff
from dragoman.extensions.mcp.servers.agent import McpAgent
from dragoman.extensions.mcp.servers.discovery import DiscoveredServer
from dragoman.extensions.mcp.servers.turn import McpTurn
from dragoman.extensions.mcp.sources import MCP_FORMAT, McpSpec
from dragoman.ids import IDS
from dragoman.ports import KeyValues, OutboundStreams, RemoteAgentRegistry, UpstreamStatus

log = logging.getLogger("dragoman.mcp")

TOOLS_REFRESH_INTERVAL: Final = 300.0
"""Seconds between two reads of the tools of a server that does not announce changes."""

CHANGE_DELAY: Final = 0.2
"""Seconds between an announcement and the read: changes come in groups."""

RECONNECT_BACKOFF: Final = Backoff(0.5, 15.0)
"""Between two attempts to reach a server that is unavailable, or to restart its process."""

STABLE_SECONDS: Final = 10.0
"""A connection that lasted for so long begins again with the first delay of the backoff."""


class InvalidMcpServer(Exception):
    """A configured MCP server that cannot be served. The text names it and says why."""


class McpRegistry(CalledRegistry[McpAgent]):
    """Serves the configured MCP servers as agents. Implements `dragoman.ports.extension.AgentSource`."""

    log = log

    def __init__(
        self,
        outbound: OutboundStreams,
        agent_registry: RemoteAgentRegistry | None,
        key_values: KeyValues | None,
        *,
        max_response_bytes: int,
        monotonic: Callable[[], float] = time.monotonic,
        new_id: NewId = IDS.hex,
    ) -> None:
        """agent_registry: where changes are registered; None if the agents stay. key_values: of the store, if there is
        one. monotonic: seconds."""
        super().__init__(agent_registry, key_values)
        self._outbound = outbound
        self._max_response_bytes = max_response_bytes
        self._monotonic = monotonic
        self._new_id = new_id
        self.servers: list[McpAgent] = []
        """The servers, in the order of the settings."""

    def all_agents(self) -> Sequence[McpAgent]:
        return self.servers

    @property
    def agents(self) -> Sequence[McpAgent]:
        """The agents, in the order of the settings, without those whose id is not known yet."""
        return [agent for agent in self.servers if agent.spec.id]

    async def connect(self, servers: Sequence[McpSpec], reserved_ids: Sequence[str]) -> None:
        """Connects to all servers and reads their tools. `reserved_ids`: those of other agents.

        A server that is unavailable, or cannot be read, is served, too, if its id is known; one that cannot be read
        and has no id is served as soon as it can. Raises InvalidMcpServer.
        """
        self.servers = [self._new_agent(server) for server in servers]
        results = await asyncio.gather(*map(self._read, self.servers))
        ids = list(reserved_ids)
        for agent, found in zip(self.servers, results, strict=True):
            location = agent.location
            if isinstance(found, ClientError):
                if not agent.server.id and (self.agent_registry is None or not isinstance(found, ProtocolError)):
                    is_transient = isinstance(found, ServerUnavailable)
                    hint = f"; with an id ({MCP_FORMAT}) it is served as soon as it responds" if is_transient else ""
                    raise InvalidMcpServer(f"{_without(location, found.summary)}{hint}")
                served = f"is served as agent {agent.spec.id}, but is" if agent.spec.id else "is not served yet:"
                log.warning("%s %s unavailable: %s", location, served, found.summary)
                agent.breaker.open(found.summary)
            elif not agent.server.id and found.spec.id in ids and self.agent_registry is not None:
                problem = _id_is_taken(found.spec.id)
                log.warning("%s is not served: %s", location, problem.summary)
                agent.breaker.open(problem.summary)
            else:
                self.apply(agent, found)
            if agent.spec.id in ids:
                raise InvalidMcpServer(
                    f'{location}: the id "{agent.spec.id}" belongs to another agent here; choose one with {MCP_FORMAT}'
                )
            ids.extend([agent.spec.id] if agent.spec.id else [])
        await asyncio.gather(*map(self.sync_spec, self.servers))

    def status(self) -> Sequence[UpstreamStatus]:
        """The status of each server, in the order of the settings."""
        return [self._status_of(agent) for agent in self.servers]

    def _status_of(self, agent: McpAgent) -> UpstreamStatus:
        server, discovered = agent.server, agent.discovered
        transport = "stdio" if server.command else "HTTP"
        return UpstreamStatus(
            agent=agent.spec.id,
            url=server.location,
            from_settings=True,
            has_credentials=bool(server.headers or server.env),
            seconds_absent=agent.seconds_absent,
            problem=agent.breaker.last_error,
            seconds_since_error=agent.breaker.seconds_since_error,
            interfaces=[f"MCP {discovered.protocol_version} over {transport}"] if discovered is not None else [],
            skipped_interfaces=discovered.left_out if discovered is not None else (),
            running_turns=agent.running,
            max_turns=server.turns,
        )

    def start(self) -> None:
        """Starts to follow the tools of all servers."""
        self.start_refresh()

    def _new_agent(self, server: McpSpec) -> McpAgent:
        return McpAgent(
            server,
            self._outbound,
            self._max_response_bytes,
            CircuitBreaker(self._monotonic),
            partial(McpTurn, new_id=self._new_id, clock=self._monotonic),
            on_availability_change=self.capacity_changed,
        )

    async def discover(self, agent: McpAgent) -> DiscoveredServer | ClientError:
        """Reads what a server offers. A ProtocolError if it gives itself the id of another agent."""
        found, registry = await self._read(agent), self.agent_registry
        if isinstance(found, ClientError) or agent.spec.id or registry is None:
            return found
        return _id_is_taken(found.spec.id) if registry.is_registered(found.spec.id) else found

    async def _read(self, agent: McpAgent) -> DiscoveredServer | ClientError:
        try:
            return await agent.discover()
        except ClientError as error:
            return error

    def apply(self, agent: McpAgent, found: DiscoveredServer) -> bool:
        """Applies what a server offers now. Returns whether the spec of its agent has changed."""
        is_new = agent.discovered is None
        if found.left_out and (is_new or agent.left_out != found.left_out):
            log.warning("agent %s lacks tools that cannot be read: %s", found.spec.id, "; ".join(found.left_out))
        changed = agent.apply(found)
        if is_new:
            log.info(
                "agent %s is the MCP server %s (%s%s): %d tools",
                agent.spec.id, agent.location, found.protocol_version, ", tasks" if found.has_tasks else "",
                len(found.tools),
            )  # fmt: skip
        return changed

    # Refresh ----------------------------------------------------------------------------------------------------

    async def run_refresh(self, agent: McpAgent) -> None:
        """Reads the tools when they change and periodically, and reconnects. Runs until canceled."""
        failures, available_since = 0, self._monotonic()
        while True:
            agent.wake.clear()
            if agent.is_reachable:
                with suppress(TimeoutError):
                    async with asyncio.timeout(TOOLS_REFRESH_INTERVAL):
                        await agent.wake.wait()
            if agent.is_reachable:
                await asyncio.sleep(CHANGE_DELAY)
            else:
                failures = 1 if self._monotonic() - available_since >= STABLE_SECONDS else failures + 1
                await asyncio.sleep(RECONNECT_BACKOFF.delay(failures))
                available_since = self._monotonic()
            await self.refresh(agent)


def _id_is_taken(id: str) -> ProtocolError:
    return ProtocolError(f'it calls itself "{id}", which belongs to another agent here; choose an id with {MCP_FORMAT}')


def _without(location: str, text: str) -> str:
    """A text that names the server once."""
    return text if text.startswith(location) else f"{location}: {text}"
