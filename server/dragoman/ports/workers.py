"""What workers that dial in need: a place to connect, and a runtime that takes their agents."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from dragoman.core.identity import Identity
from dragoman.ports.agent import Elsewhere
from dragoman_pb.dragoman.worker.v1 import worker_pb2 as wk


class Enlist(Protocol):
    """Where agents that come while the server runs are made known."""

    def is_of_this_process(self, agent: str) -> bool:
        """Whether an id is that of an agent which no worker can have."""
        ...

    def knows(self, agent: str) -> bool:
        """Whether an agent of this id is served, by whomever."""
        ...

    async def enlist(self, agent: Elsewhere) -> None:
        """Serves an agent from now on, or what it says of itself now."""
        ...

    async def discharge(self, agent: str) -> int:
        """Serves an agent no more, and ends what waits for it as FAILED. Gives how many tasks that were."""
        ...

    def changed(self) -> None:
        """Some agent elsewhere came or went, or has more room."""
        ...


@dataclass(frozen=True, slots=True)
class Present:
    """One worker, as far as one agent goes."""

    name: str
    peer: str
    free: int
    """Turns that it would take now."""
    running: int
    """Turns that it has."""
    draining: bool


@dataclass(frozen=True, slots=True)
class Presence:
    """The workers of one agent, as this process sees them."""

    agent: str
    principal: str
    seen: int
    """When one of them was last there, in milliseconds since the epoch."""
    workers: tuple[Present, ...]


class Switchboard(Protocol):
    """Where workers connect."""

    def connect(
        self, frames: AsyncIterator[wk.ConnectRequest], identity: Identity, peer: str
    ) -> AsyncGenerator[wk.ConnectResponse]:
        """One worker, for as long as it is there. What it gives is to be sent.

        Raises core.errors.A2AError for a worker that cannot be served, or that breaks a rule.
        """
        ...

    def presence(self) -> Sequence[Presence]:
        """Who has which agent, by id."""
        ...

    async def forget(self, agent: str) -> int:
        """Frees an agent's id. Gives how many tasks waited for it, and ended as FAILED.

        Raises core.errors.InvalidParams for an agent whose workers are there, or that none had.
        """
        ...
