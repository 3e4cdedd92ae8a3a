"""Called agents of one process: each is read again periodically, and when it becomes unavailable."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from typing import Any, ClassVar, Generic, TypeVar, cast

from pydantic import TypeAdapter

from dragoman.agents.called.agent import CalledAgent
from dragoman.calling.errors import ClientError
from dragoman.core.cards.agent_spec import AgentSpec
from dragoman.core.errors import Unavailable
from dragoman.ports import KeyValues, RemoteAgent, RemoteAgentRegistry
from dragoman.supervision import Background, start_task

AgentT = TypeVar("AgentT", bound=CalledAgent)


class CalledRegistry(ABC, Generic[AgentT]):
    """Keeps the agents up to date. What cannot be read leaves the agent as it is, or unavailable."""

    log: ClassVar[logging.Logger]

    def __init__(self, agent_registry: RemoteAgentRegistry | None, key_values: KeyValues | None) -> None:
        """agent_registry: where changes are registered; None if the agents stay. key_values: of the store, if there
        is one."""
        self.agent_registry = agent_registry
        self._key_values = key_values

    @abstractmethod
    def all_agents(self) -> Iterable[AgentT]:
        """All agents."""

    @abstractmethod
    async def discover(self, agent: AgentT) -> Any:
        """Reads what the other server says about itself; a ClientError if it says nothing that may be served."""

    @abstractmethod
    def apply(self, agent: AgentT, found: Any) -> bool:
        """Applies what was found. Returns whether the spec of the agent has changed."""

    @abstractmethod
    async def run_refresh(self, agent: AgentT) -> None:
        """Calls `refresh` when it is time. Runs until canceled."""

    def start_refresh(self) -> None:
        for agent in self.all_agents():
            self.follow(agent)

    def follow(self, agent: AgentT) -> None:
        """Starts to read one agent again."""
        agent.refresh_task = start_task(Background.AGENT_REFRESH, partial(self.run_refresh, agent), agent.location)

    async def refresh(self, agent: AgentT) -> None:
        """Reads an agent once, and applies what was found."""
        found = await self.discover(agent)
        if isinstance(found, ClientError):
            if not agent.is_reachable:
                agent.breaker.open(found.summary)
                self.capacity_changed()
            self.log.info("could not read agent %s: %s", agent.spec.id or agent.location, found.summary)
            return
        if self.apply(agent, found) and self.agent_registry is not None:
            await self.agent_registry.register(cast("RemoteAgent", agent))
        if agent.breaker.is_open:
            agent.breaker.half_open()
            self.capacity_changed()
        await self.sync_spec(agent)

    async def sync_spec(self, agent: AgentT) -> None:
        """Stores the spec of an agent that was read. One that was not gets the stored spec, so that its card, and the
        names of its tools, are the same before and after a restart of this server."""
        if self._key_values is None or not agent.spec.id:
            return
        name = f"agent {agent.spec.id}"
        # ValueError: another version stored it, or it has lone surrogates. Unavailable: the next read tries again.
        with suppress(ValueError, Unavailable):
            stored = await self._key_values.get(name)
            location, _, spec = stored.partition("\n")
            if agent.is_known:
                text = f"{agent.location}\n{_spec_codec().dump_json(agent.spec).decode()}"
                if text != stored:
                    await self._key_values.compare_and_set(name, text, expected=stored)
            elif location == agent.location:
                agent.spec = replace(_spec_codec().validate_json(spec), time_limit=agent.spec.time_limit)

    def capacity_changed(self) -> None:
        """Tells the scheduler that an agent may take more turns, or fewer."""
        if self.agent_registry is not None:
            self.agent_registry.capacity_changed()

    async def close(self) -> None:
        agents = tuple(self.all_agents())
        for agent in agents:
            if agent.refresh_task is not None:
                agent.refresh_task.cancel()
                await asyncio.wait([agent.refresh_task])
        await asyncio.gather(*(agent.close() for agent in agents))


@cache
def _spec_codec() -> TypeAdapter[AgentSpec]:
    return TypeAdapter(AgentSpec)
