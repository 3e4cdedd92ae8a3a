"""How much there is in a store, at one moment: what operators watch, and nothing of what is in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Waiting:
    """Tasks of one agent that wait for a worker. `since`: from when on the one waits that has waited the longest."""

    tasks: int
    since: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Census:
    """Counts over all owners. Times are milliseconds since the epoch, by the store's clock; 0 for none."""

    at: int
    """When it was counted."""
    tasks: Mapping[tuple[str, int], int] = field(default_factory=dict)
    """Visible tasks by agent and state."""
    waiting: Mapping[str, Waiting] = field(default_factory=dict)
    """By agent."""
    pushes: int = 0
    """Push configurations that have something to deliver."""
    pushes_since: int = 0
    """When what has been due the longest was to be delivered."""
    failing_since: int = 0
    """Since when the receiver that fails the longest takes nothing."""
    dead: int = 0
    """Push configurations that were given up."""

    def age(self, since: int) -> float:
        """Seconds from a time until it was counted; 0 for none."""
        return max(self.at - since, 0) / 1000 if since else 0.0
