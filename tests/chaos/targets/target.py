"""Interface of the system under chaos: one server (server.py), or several (replicas.py)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from tests.chaos.history import EventKeys, Recorder, Sampled
from tests.chaos.pace import Pace
from tests.chaos_checker.checker import StoredTask
from tests.load.transports import Transports


class Scene(Protocol):
    """Clock, history and seed for faults."""

    seed: int
    pace: Pace

    @property
    def now(self) -> float: ...
    @property
    def record(self) -> Recorder: ...


class Target(Protocol):
    """One server, or several."""

    up: asyncio.Event
    """Set while a server is available."""

    @property
    def client_transports(self) -> Transports | None:
        """Returns transports to an available server."""
        ...

    @property
    def agents(self) -> Sequence[str]:
        """The agents by the names that clients use; empty for the root agent only."""
        ...

    @property
    def words(self) -> Sequence[str]:
        """Additional commands that clients send to this target."""
        ...

    async def inject_faults(self, scene: Scene, until: float, say: Callable[[str], None]) -> None:
        """Injects faults until `until` (`time.monotonic`); returns when everything works again."""
        ...

    async def restart(self, scene: Scene) -> None:
        """Kills and restarts all servers."""
        ...

    async def look(self, at: float) -> Sampled | None:
        """Samples the store; None if it is unavailable."""
        ...

    async def unpushed(self) -> int:
        """Counts the webhooks with undelivered events."""
        ...

    async def kept(self, began: float, shown: EventKeys | None = None) -> Mapping[str, StoredTask]:
        """Reads the store after all servers have stopped. `began`: the start of the run, in seconds of the epoch.

        shown: the events whose Tasks clients have received, so that these are compared; None for all.
        """
        ...

    @property
    def troubles(self) -> Sequence[str]:
        """Unexpected log entries and exits."""
        ...
