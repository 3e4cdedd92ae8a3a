"""The catalog of the MCP endpoint: tools of the agents that the caller may call, and the server itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from dragoman.bindings.cards import Cards
from dragoman.core.access.identity import ANONYMOUS, AccessPolicy, Identity
from dragoman.core.cards.agent_spec import AgentSpec
from dragoman.core.names import DEFAULT_SCOPE, resolve_tenant
from dragoman.extensions.mcp.wire.envelope import SERVER_META, SUPPORTED_VERSIONS
from dragoman.extensions.mcp.wire.errors import TASKS_EXTENSION
from dragoman.extensions.mcp.wire.tools import TASK_TOOLS, AgentTool, agent_tools
from dragoman.version import __version__

LIST_TTL: Final = 60_000
"""Milliseconds for which clients may cache a list of tools."""

_INSTRUCTIONS: Final = (
    "Each tool is an agent or one of its skills. A call begins a durable task, which can be asked for again later. "
    "If a result names a task that is not finished, call get_task with it; if it waits for an answer, call answer_task."
)


class ToolCatalog:
    """The tools of all agents, as callers see them."""

    def __init__(self, cards: Cards, policy: AccessPolicy) -> None:
        self._cards = cards
        self._policy = policy
        self._tools: dict[tuple[str, bool], tuple[AgentSpec, Mapping[str, AgentTool]]] = {}

    def tools(self, identity: Identity, tenant: str) -> Sequence[Mapping[str, Any]]:
        """The definitions of all tools that a caller may call. `tenant`: of one agent, or empty for all agents.

        The order depends on the agents alone, so that clients can cache the list. Raises AgentNotFound.
        """
        scope, agents = self._agents(tenant)
        return [
            *(
                tool.definition
                for agent in agents
                if self._may_call(scope, agent.id, identity)
                for tool in self._tools_of(agent, identity).values()
            ),
            *(tool.definition for tool in TASK_TOOLS.values()),
        ]

    def find(self, name: str, identity: Identity, tenant: str) -> AgentTool | None:
        """The tool of an agent with this name; None if the caller has no such tool. Raises AgentNotFound."""
        scope, agents = self._agents(tenant)
        agent = next((agent for agent in agents if agent.id == name.partition("_")[0]), None)
        if agent is None or not self._may_call(scope, agent.id, identity):
            return None
        return self._tools_of(agent, identity).get(name)

    def _agents(self, tenant: str) -> tuple[str, Sequence[AgentSpec]]:
        """The scope and the agents of an address."""
        if not tenant:
            return DEFAULT_SCOPE, self._cards.sorted_agents()
        scope, agent = resolve_tenant(tenant, self._cards.root)
        spec = self._cards.agents.get(agent)
        return scope, [spec] if spec is not None else []

    def _may_call(self, scope: str, agent: str, identity: Identity) -> bool:
        return (identity.is_authenticated or self._policy.is_public(agent)) and identity.may_call(scope, agent)

    def _tools_of(self, spec: AgentSpec, identity: Identity) -> Mapping[str, AgentTool]:
        key = spec.id, identity.is_authenticated
        known = self._tools.get(key)
        if known is None or known[0] is not spec:  # a worker or the card file changed it
            self._tools = {key: tools for key, tools in self._tools.items() if key[0] in self._cards.agents}
            tools = {tool.name: tool for tool in agent_tools(spec, is_authenticated=identity.is_authenticated)}
            known = self._tools[key] = spec, tools
        return known[1]

    @property
    def cache_hints(self) -> dict[str, Any]:
        """How long and by whom lists may be cached (2026-07-28 server/utilities/caching)."""
        return {"ttlMs": LIST_TTL, "cacheScope": "private" if self._policy.credentials_required else "public"}

    def discovery(self, tenant: str) -> dict[str, Any]:
        """The result of `server/discover`."""
        return {
            "supportedVersions": list(SUPPORTED_VERSIONS),
            "capabilities": {"tools": {"listChanged": True}, "extensions": {TASKS_EXTENSION: {}}},
            "instructions": _INSTRUCTIONS,
            "_meta": {SERVER_META: self._server_info(tenant)},
            **self.cache_hints,
        }

    def initialization(self, protocol_version: str, tenant: str) -> dict[str, Any]:
        """The result of `initialize`, in revisions with a handshake."""
        return {
            "protocolVersion": protocol_version,
            "capabilities": {"tools": {"listChanged": False}},
            "serverInfo": self._server_info(tenant),
            "instructions": _INSTRUCTIONS,
        }

    def _server_info(self, tenant: str) -> dict[str, str]:
        """Name and version of the server; at the address of one agent those of the agent, as its server card has."""
        _, agents = self._agents(tenant)
        if not tenant or not agents or not self._policy.may_see(DEFAULT_SCOPE, agents[0].id, ANONYMOUS):
            return {"name": "dragoman", "title": "Dragoman", "version": __version__}
        return {"name": agents[0].id, "title": agents[0].name, "version": agents[0].version}
