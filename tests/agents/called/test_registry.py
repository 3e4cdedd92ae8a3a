"""Called agents that are read again: what is applied, what is left as it was, and who is told."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import pytest
from tests.agents.called.test_agent import ScriptedAgent
from tests.eventually import eventually
from tests.security.key_values import InMemoryKeyValues

from dragoman.agents.called.registry import CalledRegistry
from dragoman.calling.errors import ClientError, ServerUnavailable
from dragoman.core.cards.agent_spec import AgentSpec, Extension, Provider, Skill
from dragoman.core.errors import Unavailable
from dragoman.ports import KeyValues, RemoteAgent

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

    def __init__(
        self,
        agents: Agents | None,
        *found: str | ClientError,
        key_values: KeyValues | None = None,
    ) -> None:
        super().__init__(agents, key_values)
        self.agent = ScriptedAgent()
        self.reads = asyncio.Event()
        self._found = list(found)

    def all_agents(self) -> Sequence[ScriptedAgent]:
        return [self.agent]

    async def discover(self, agent: ScriptedAgent) -> str | ClientError:
        return self._found.pop(0)

    def apply(self, agent: ScriptedAgent, found: str) -> bool:
        before, agent.spec = agent.spec, replace(agent.spec, name=found)
        return before != agent.spec

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


async def test_agents_that_stay_are_applied_and_not_registered() -> None:
    registry = Registry(None, "Here")
    registry.agent.breaker.open("it was away before")
    await registry.refresh(registry.agent)
    assert (registry.agent.spec.name, registry.agent.capacity) == ("Here", 1)


# Specs of agents that cannot be read yet -----------------------------------------------------------------------------


DESCRIBED: Final = AgentSpec(
    id="a-script",
    name="Script",
    description="Plays",
    skills=(Skill(id="play", name="Play", description="Plays", tags=("stage",), input_modes=("text/plain",)),),
    provider=Provider(organization="Globe", url="https://globe.example"),
    extensions=(Extension(uri="urn:x", params={"acts": [5, {"long": 2.5}]}),),
    validates_input=frozenset({"play"}),
    retention={3: 60_000},
)


async def sync(key_values: KeyValues, spec: AgentSpec, *, is_known: bool, location: str = "http://there") -> AgentSpec:
    """The spec of an agent of one start of a server, after it was stored or restored."""
    registry = Registry(None, key_values=key_values)
    registry.agent.spec, registry.agent.is_known, registry.agent.location = spec, is_known, location
    await registry.sync_spec(registry.agent)
    return registry.agent.spec


async def test_an_agent_that_cannot_be_read_after_a_restart_is_described_as_before() -> None:
    key_values, unread = InMemoryKeyValues(), replace(ScriptedAgent().spec, time_limit=9.0)
    assert await sync(key_values, unread, is_known=False) is unread
    assert await sync(key_values, DESCRIBED, is_known=True) is DESCRIBED
    assert await sync(key_values, unread, is_known=False) == replace(DESCRIBED, time_limit=9.0)


async def test_an_agent_at_another_address_is_not_described_as_the_one_before() -> None:
    key_values, unread = InMemoryKeyValues(), ScriptedAgent().spec
    await sync(key_values, DESCRIBED, is_known=True)
    assert await sync(key_values, unread, is_known=False, location="http://elsewhere") is unread


@pytest.mark.parametrize("stored", ["http://there\n{}", "http://there\n[", "http://there", "x"])
async def test_a_stored_spec_that_cannot_be_read_is_ignored_and_replaced(stored: str) -> None:
    key_values, unread = InMemoryKeyValues(), ScriptedAgent().spec
    assert await key_values.compare_and_set("agent a-script", stored, expected="")
    assert await sync(key_values, unread, is_known=False) is unread
    await sync(key_values, DESCRIBED, is_known=True)
    assert await sync(key_values, unread, is_known=False) == DESCRIBED


async def test_a_spec_that_has_no_json_is_not_stored() -> None:
    key_values, unread = InMemoryKeyValues(), ScriptedAgent().spec
    broken = replace(DESCRIBED, description="\ud800")
    assert await sync(key_values, broken, is_known=True) is broken
    assert await sync(key_values, unread, is_known=False) is unread


async def test_a_store_that_is_unavailable_leaves_agents_as_they_are() -> None:
    class UnavailableKeyValues(InMemoryKeyValues):
        async def get(self, name: str) -> str:
            raise Unavailable("the store is away")

    unread = ScriptedAgent().spec
    assert await sync(UnavailableKeyValues(), unread, is_known=False) is unread
    assert await sync(UnavailableKeyValues(), DESCRIBED, is_known=True) is DESCRIBED


async def test_each_read_stores_what_was_found() -> None:
    key_values, unread = InMemoryKeyValues(), ScriptedAgent().spec
    registry = Registry(Agents(), "One", "Two", key_values=key_values)
    for name in ("One", "Two"):
        await registry.refresh(registry.agent)
        assert (await sync(key_values, unread, is_known=False)).name == name


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
