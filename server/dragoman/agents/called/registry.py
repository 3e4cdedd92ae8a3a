"""Called agents of one process: each is read again periodically, and when it becomes unavailable."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable
from functools import partial
from typing import Any, ClassVar, Generic, TypeVar

from dragoman.agents.called.agent import CalledAgent
from dragoman.calling.errors import ClientError
from dragoman.ports import RemoteAgentRegistry
from dragoman.supervision import Background, start_task

AgentT = TypeVar("AgentT", bound=CalledAgent[Any])
EntryT = TypeVar("EntryT", bound="CalledEntry[Any]")


class CalledEntry(Generic[AgentT]):
    """One called agent, and the task that reads it again."""

    def __init__(self, agent: AgentT) -> None:
        self.agent = agent
        self.wake = asyncio.Event()
        """Ends the wait for the next read."""
        self.refresh_task: asyncio.Task[None] | None = None

    async def stop_refresh(self) -> None:
        """Ends the task."""
        if self.refresh_task is not None:
            self.refresh_task.cancel()
            await asyncio.wait([self.refresh_task])


class CalledRegistry(ABC, Generic[EntryT]):
    """Keeps the agents up to date. What cannot be read leaves the agent as it is, or unavailable."""

    log: ClassVar[logging.Logger]

    def __init__(self, agent_registry: RemoteAgentRegistry | None) -> None:
        """agent_registry: where changes are registered; None if the agents stay."""
        self.agent_registry = agent_registry

    @abstractmethod
    def all_entries(self) -> Iterable[EntryT]:
        """All agents."""

    @abstractmethod
    async def discover(self, entry: EntryT) -> Any:
        """Reads what the other server says about itself; a ClientError if it says nothing usable."""

    @abstractmethod
    def apply(self, entry: EntryT, found: Any) -> bool:
        """Applies what was found. Returns whether the spec of the agent has changed."""

    @abstractmethod
    async def run_refresh(self, entry: EntryT) -> None:
        """Calls `refresh` when it is time. Runs until canceled."""

    def start_refresh(self) -> None:
        """Starts to read all agents again."""
        for entry in self.all_entries():
            self.follow(entry)

    def follow(self, entry: EntryT) -> None:
        """Starts to read one agent again."""
        work = partial(self.run_refresh, entry)
        entry.refresh_task = start_task(Background.AGENT_REFRESH, work, entry.agent.location)

    async def refresh(self, entry: EntryT) -> None:
        """Reads an agent once, and applies what was found."""
        agent = entry.agent
        found = await self.discover(entry)
        if isinstance(found, ClientError):
            if not agent.is_reachable:
                agent.breaker.open(found.summary)
                self.capacity_changed()
            self.log.info("could not read agent %s: %s", agent.spec.id or agent.location, found.summary)
            return
        if not self.may_serve(entry, found):
            return
        if self.apply(entry, found) and self.agent_registry is not None:
            await self.agent_registry.register(agent)
        if agent.breaker.is_open:
            agent.breaker.half_open()
            self.capacity_changed()

    def may_serve(self, entry: EntryT, found: Any) -> bool:
        """Whether an agent may be served with what was found."""
        return True

    def on_availability_change(self, entry: EntryT) -> None:
        """Reads an agent again soon, which has become unavailable or responds again."""
        entry.wake.set()
        self.capacity_changed()

    def capacity_changed(self) -> None:
        """Tells the scheduler that an agent may take more turns, or fewer."""
        if self.agent_registry is not None:
            self.agent_registry.capacity_changed()

    async def close(self) -> None:
        """Ends the reads, and closes all agents."""
        for entry in self.all_entries():
            await entry.stop_refresh()
        await asyncio.gather(*(entry.agent.close() for entry in self.all_entries()))
