"""What workers that dial in need: a place to connect, and a runtime that takes their agents."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from dragoman.core.access.identity import Identity
from dragoman.core.agent_sources import UpstreamSpec
from dragoman.ports.agent import RemoteAgent
from dragoman_pb.dragoman.worker.v1 import worker_pb2 as wk


class RemoteAgentRegistry(Protocol):
    """Where agents that come while the server runs are made known."""

    def is_local(self, agent: str) -> bool:
        """Whether an id is that of an agent which no worker can have."""
        ...

    def is_registered(self, agent: str) -> bool:
        """Whether an agent of this id is served, by whomever."""
        ...

    async def register(self, agent: RemoteAgent) -> None:
        """Serves an agent from now on, or what it says of itself now."""
        ...

    async def unregister(self, agent: str) -> int:
        """Serves an agent no more, and ends what waits for it as FAILED. Gives how many tasks that were."""
        ...

    def capacity_changed(self) -> None:
        """Some agent elsewhere came or went, or has more room."""
        ...


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """One worker, as far as one agent goes."""

    name: str
    peer: str
    free_turns: int
    """Turns that it would take now."""
    running_turns: int
    """Turns that it has."""
    draining: bool


@dataclass(frozen=True, slots=True)
class AgentWorkers:
    """The workers of one agent, as this process sees them."""

    agent: str
    principal: str
    last_seen: int
    """When one of them was last there, in milliseconds since the epoch."""
    workers: tuple[WorkerStatus, ...]


class WorkerHub(Protocol):
    """Where workers connect."""

    def connect(
        self, frames: AsyncIterator[wk.ConnectRequest], identity: Identity, peer: str
    ) -> AsyncGenerator[wk.ConnectResponse]:
        """One worker, for as long as it is there. What it gives is to be sent.

        Raises core.errors.A2AError for a worker that cannot be served, or that breaks a rule.
        """
        ...

    def list_agents(self) -> Sequence[AgentWorkers]:
        """Who has which agent, by id."""
        ...

    async def forget(self, agent: str) -> int:
        """Frees an agent's id. Gives how many tasks waited for it, and ended as FAILED.

        Raises core.errors.InvalidParams for an agent whose workers are there, or that none had.
        """
        ...


@dataclass(frozen=True, slots=True)
class RegisteredAgent:
    """An agent that workers of one principal have. Times are milliseconds since the epoch, and the caller's."""

    agent: str
    principal: str
    registration: bytes
    """A serialized `dragoman.worker.v1.AgentRegistration`: that of the worker that came last."""
    registered_at: int
    last_seen: int
    """When that worker came."""


class WorkerRegistry(Protocol):
    """The agents of workers, on disk: their tasks are there when no worker is."""

    async def register(self, entry: RegisteredAgent) -> RegisteredAgent:
        """Keeps an agent, or what a later worker says of it. Gives the agent as it is kept then:
        `since` is of the
        first time, and an agent that is another principal's stays as it was."""
        ...

    async def list(self) -> list[RegisteredAgent]:
        """Every agent, by id."""
        ...

    async def unregister(self, agent: str) -> bool:
        """Forgets an agent, so that its id is free. False when there was none."""
        ...


@dataclass(frozen=True, slots=True)
class AddedUpstream:
    """An agent upstream that was added while a server ran."""

    agent: str
    spec: bytes
    """What was said of it, as JSON (`core.upstreams.written`), sealed where there are keys for that."""
    added_at: int
    """When, in milliseconds since the epoch, and the caller's."""


class UpstreamStore(Protocol):
    """The agents upstream of a store, besides those that settings name."""

    async def add(self, added: AddedUpstream) -> bool:
        """Keeps one. False when there is one of its id, which stays as it is."""
        ...

    async def list(self) -> list[AddedUpstream]:
        """Every one, the eldest first."""
        ...

    async def remove(self, agent: str) -> bool:
        """Forgets one. False when there was none."""
        ...


@dataclass(frozen=True, slots=True)
class UpstreamStatus:
    """How it stands with an agent upstream, as this process sees it. Nothing in it is secret."""

    agent: str
    url: str
    from_settings: bool
    """The settings name it, and nobody can remove it while the server runs."""
    has_credentials: bool
    """It is shown credentials."""
    seconds_absent: float
    """Seconds for which nobody has reached it; 0 while it is there."""
    problem: str
    """Why not, or what went wrong last."""
    interfaces: Sequence[str]
    """Ways to it, that which is used first."""
    skipped_interfaces: Sequence[str]
    """Ways to it that are not used, and why."""
    running_turns: int
    """Turns that it has from here."""
    max_turns: int
    """Turns that it may have."""


class UpstreamRegistry(Protocol):
    """The agents upstream of this process."""

    async def add(self, upstream: UpstreamSpec) -> UpstreamStatus:
        """Serves one more, also after a restart. Raises core.errors.InvalidParams for one that cannot be used,
        AgentTaken, Unavailable for one that is not there."""
        ...

    async def remove(self, agent: str) -> int:
        """Serves one no more. Gives how many tasks waited for it, and ended as FAILED. Raises InvalidParams."""
        ...

    def status(self) -> Sequence[UpstreamStatus]:
        """How it stands with each, by id."""
        ...
