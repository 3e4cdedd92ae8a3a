"""Called agents that are read again: what is applied, what is left as it was, and who is told."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from tests.agents.called.test_agent import ScriptedAgent
from tests.eventually import eventually

from dragoman.agents.called.registry import CalledRegistry
from dragoman.calling.errors import ClientError, ServerUnavailable
from dragoman.ports import RemoteAgent

AWAY = ServerUnavailable.for_reason("it is away")


class Agents:
    """Implements `RemoteAgentRegistry`, as far as a registry of called agents uses it."""

    def __init__(self) -> None:
        self.registered: list[str] = []
        self.changes = 0

    async def register(self, agent: RemoteAgent) -> None:
        self.registered.append(agent.spec.name)

    def capacity_changed(self) -> None:
        self.changes += 1

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name} is not used")


class Registry(CalledRegistry[ScriptedAgent]):
    """One agent, whose name is what was found."""

    log = logging.getLogger("dragoman.script")

    def __init__(self, agents: Agents | None, *found: str | ClientError, accepts: bool = True) -> None:
        super().__init__(agents)
        self.agent = ScriptedAgent()
        self.reads = asyncio.Event()
        self._found = list(found)
        self._accepts = accepts

    def all_agents(self) -> Sequence[ScriptedAgent]:
        return [self.agent]

    async def discover(self, agent: ScriptedAgent) -> str | ClientError:
        return self._found.pop(0)

    def apply(self, agent: ScriptedAgent, found: str) -> bool:
        before, agent.spec = agent.spec, replace(agent.spec, name=found)
        return before != agent.spec

    def may_serve(self, agent: ScriptedAgent, found: str) -> bool:
        return self._accepts

    async def run_refresh(self, agent: ScriptedAgent) -> None:
        self.reads.set()
        await agent.wake.wait()
        await self.refresh(agent)


async def test_only_a_changed_agent_is_registered_again() -> None:
    agents = Agents()
    registry = Registry(agents, "One", "One", "Two")
    for _ in range(3):
        await registry.refresh(registry.agent)
    assert agents.registered == ["One", "Two"]


async def test_an_agent_that_cannot_be_read_stays_as_it_is_while_it_responds() -> None:
    agents = Agents()
    registry = Registry(agents, AWAY)
    await registry.refresh(registry.agent)
    assert (registry.agent.is_unavailable, agents.changes, agents.registered) == (False, 0, [])


async def test_an_unavailable_agent_gets_a_probe_once_it_was_read() -> None:
    agents = Agents()
    registry = Registry(agents, AWAY, "Here")
    agent = registry.agent
    agent.breaker.open("it was away before")
    await registry.refresh(registry.agent)
    assert (agent.capacity, agent.problem, agents.changes) == (0, "it is away", 1)
    await registry.refresh(registry.agent)
    assert (agent.capacity, agents.changes, agents.registered) == (1, 2, ["Here"])


async def test_what_may_not_be_served_is_not_applied() -> None:
    agents = Agents()
    registry = Registry(agents, "Other", accepts=False)
    await registry.refresh(registry.agent)
    assert (registry.agent.spec.name, agents.registered) == ("A script", [])


async def test_agents_that_stay_are_applied_and_not_registered() -> None:
    registry = Registry(None, "Here")
    registry.agent.breaker.open("it was away before")
    await registry.refresh(registry.agent)
    assert (registry.agent.spec.name, registry.agent.capacity) == ("Here", 1)


@pytest.mark.parametrize("started", [True, False])
async def test_closing_ends_the_reads(started: bool) -> None:
    registry = Registry(Agents(), "Here")
    if started:
        registry.start_refresh()
        await registry.reads.wait()
    await registry.close()
    task = registry.agent.refresh_task
    assert (task is not None and task.done()) is started
    assert registry.agent.is_closed


async def test_a_change_of_availability_wakes_the_next_read() -> None:
    agents = Agents()
    registry = Registry(agents, "Here")
    registry.start_refresh()
    await registry.reads.wait()
    registry.agent.on_availability_change = registry.capacity_changed
    registry.agent.availability_changed()
    await eventually(lambda: agents.registered)
    assert agents.changes == 1
    await registry.close()
