"""What agents that workers dial in with need of a store: who has them, and what they last said of themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Enrolled:
    """An agent that workers of one principal have. Times are milliseconds since the epoch, and the caller's."""

    agent: str
    principal: str
    registration: bytes
    """A serialized `dragoman.worker.v1.AgentRegistration`: that of the worker that came last."""
    since: int
    seen: int
    """When that worker came."""


class Roster(Protocol):
    """The agents of workers, on disk: their tasks are there when no worker is."""

    async def enrol(self, entry: Enrolled) -> Enrolled:
        """Keeps an agent, or what a later worker says of it. Gives the agent as it is kept then: `since` is of the
        first time, and an agent that is another principal's stays as it was."""
        ...

    async def list(self) -> list[Enrolled]:
        """Every agent, by id."""
        ...

    async def strike(self, agent: str) -> bool:
        """Forgets an agent, so that its id is free. False when there was none."""
        ...
