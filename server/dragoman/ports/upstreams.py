"""What agents upstream need besides a way out: a place in the store, and an operator who says which there are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from dragoman.core.upstreams import Upstream


@dataclass(frozen=True, slots=True)
class Added:
    """An agent upstream that was added while a server ran."""

    agent: str
    entry: bytes
    """What was said of it, as JSON (`core.upstreams.written`), sealed where there are keys for that."""
    since: int
    """When, in milliseconds since the epoch, and the caller's."""


class Upstreams(Protocol):
    """The agents upstream of a store, besides those that settings name."""

    async def add(self, added: Added) -> bool:
        """Keeps one. False when there is one of its id, which stays as it is."""
        ...

    async def list(self) -> list[Added]:
        """Every one, the eldest first."""
        ...

    async def remove(self, agent: str) -> bool:
        """Forgets one. False when there was none."""
        ...


@dataclass(frozen=True, slots=True)
class Standing:
    """How it stands with an agent upstream, as this process sees it. Nothing in it is secret."""

    agent: str
    url: str
    settings: bool
    """The settings name it, and nobody can remove it while the server runs."""
    credentials: bool
    """It is shown credentials."""
    away: float
    """Seconds for which nobody has reached it; 0 while it is there."""
    trouble: str
    """Why not, or what went wrong last."""
    interfaces: Sequence[str]
    """Ways to it, that which is used first."""
    left_out: Sequence[str]
    """Ways to it that are not used, and why."""
    running: int
    """Turns that it has from here."""
    turns: int
    """Turns that it may have."""


class Directory(Protocol):
    """The agents upstream of this process."""

    async def add(self, upstream: Upstream) -> Standing:
        """Serves one more, also after a restart. Raises core.errors.InvalidParams for one that cannot be used,
        AgentTaken, Unavailable for one that is not there."""
        ...

    async def remove(self, agent: str) -> int:
        """Serves one no more. Gives how many tasks waited for it, and ended as FAILED. Raises InvalidParams."""
        ...

    def standing(self) -> Sequence[Standing]:
        """How it stands with each, by id."""
        ...
