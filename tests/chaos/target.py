"""What is torn at, as the clients and the judge need it: one server (victim.py), or several (replicas.py)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from tests.chaos.history import Recorder, Sampled
from tests.chaos.transports import Transports
from tests.chaos_checker.checker import StoredTask


class Scene(Protocol):
    """Where blows are noted, and by which clock; `seed` throws the dice."""

    seed: int

    @property
    def now(self) -> float: ...
    @property
    def record(self) -> Recorder: ...


class Target(Protocol):
    """One server, or several."""

    up: asyncio.Event
    """Set while there is a server that can be asked."""

    @property
    def client_transports(self) -> Transports | None:
        """Where to ask now."""
        ...

    @property
    def agents(self) -> Sequence[str]:
        """The agents that there are, as clients name them; none for the root agent."""
        ...

    @property
    def words(self) -> Sequence[str]:
        """What clients say here now and then, and not elsewhere."""
        ...

    async def strike(self, scene: Scene, until: float, say: Callable[[str], None]) -> None:
        """Strikes again and again until then (`time.monotonic`); returns when all is up and moving."""
        ...

    async def restart(self, scene: Scene) -> None:
        """Kills all that serves, and starts it again."""
        ...

    async def look(self, at: float) -> Sampled | None:
        """A look into the store; None when it cannot be asked now."""
        ...

    async def unpushed(self) -> int:
        """Receivers that are still to be told something."""
        ...

    async def kept(self, began: float) -> Mapping[str, StoredTask]:
        """What the store holds, once nothing serves any more. `began`: when the run began, in seconds of the epoch."""
        ...

    @property
    def troubles(self) -> Sequence[str]:
        """What was logged or done that may not be."""
        ...
