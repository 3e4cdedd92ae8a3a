"""A roster and a runtime in memory, for switchboards by themselves."""

from __future__ import annotations

import builtins
from dataclasses import replace

from dragoman.ports import Elsewhere, Enrolled


class Kept:
    """Implements `ports.Roster`."""

    def __init__(self) -> None:
        self.entries: dict[str, Enrolled] = {}

    async def enrol(self, entry: Enrolled) -> Enrolled:
        had = self.entries.setdefault(entry.agent, entry)
        if had.principal == entry.principal:
            self.entries[entry.agent] = replace(entry, since=had.since)
        return self.entries[entry.agent]

    async def list(self) -> builtins.list[Enrolled]:
        return [self.entries[name] for name in sorted(self.entries)]

    async def strike(self, agent: str) -> bool:
        return self.entries.pop(agent, None) is not None


class Listed:
    """Remembers agents. Implements `ports.Enlist`."""

    def __init__(self) -> None:
        self.agents: list[Elsewhere] = []
        self.gone: list[str] = []

    def is_of_this_process(self, agent: str) -> bool:
        return False

    def knows(self, agent: str) -> bool:
        return agent in [one.spec.id for one in self.agents]

    async def enlist(self, agent: Elsewhere) -> None:
        self.agents.append(agent)

    async def discharge(self, agent: str) -> int:
        self.gone.append(agent)
        return 0

    def changed(self) -> None:
        """Nobody waits."""
