"""In-memory registries for tests of a hub without a server."""

from __future__ import annotations

import builtins
import math
from dataclasses import replace

from dragoman.ports import RegisteredAgent, RemoteAgent


class MemoryWorkerRegistry:
    """Implements `ports.WorkerRegistry`."""

    def __init__(self) -> None:
        self.entries: dict[str, RegisteredAgent] = {}

    async def register(self, entry: RegisteredAgent) -> RegisteredAgent:
        had = self.entries.setdefault(entry.agent, entry)
        if had.principal == entry.principal:
            self.entries[entry.agent] = replace(entry, registered_at=had.registered_at)
        return self.entries[entry.agent]

    async def list(self) -> builtins.list[RegisteredAgent]:
        return [self.entries[name] for name in sorted(self.entries)]

    async def unregister(self, agent: str) -> bool:
        return self.entries.pop(agent, None) is not None


class MemoryAgentRegistry:
    """Records agents. Implements `ports.RemoteAgentRegistry`."""

    def __init__(self) -> None:
        self.agents: list[RemoteAgent] = []
        self.unregistered: list[str] = []

    def is_local(self, agent: str) -> bool:
        return False

    def is_registered(self, agent: str) -> bool:
        return agent in [one.spec.id for one in self.agents]

    async def register(self, agent: RemoteAgent) -> None:
        self.agents.append(agent)

    async def unregister(self, agent: str) -> int:
        self.unregistered.append(agent)
        return 0

    def lease_left(self) -> float:
        return math.inf

    def capacity_changed(self) -> None:
        """Nothing waits for capacity here."""
