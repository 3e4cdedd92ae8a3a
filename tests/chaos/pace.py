"""Paces of chaos runs: how often faults are injected, and how much the clients do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """The density of a run. All times are in seconds; a pair is a range of random values."""

    between: tuple[float, float] = (0.8, 4.0)
    """Between two faults of a single server."""
    cluster_between: tuple[float, float] = (0.3, 2.5)
    """Between two faults of a cluster, where several parts may have one at once."""
    kill_share: float = 0.6
    """Share of kills in the faults of a single server; the others are pauses."""
    longest_pause: float = 3.0
    """Of a single server, without the one long pause of a long run."""
    storms: tuple[float, float] = (0.5, 4.0)
    """Between two cuts of all followers' connections."""
    clients: int = 10
    mcp_clients: int = 8
    bursts: int = 0
    """Clients whose tasks stream many chunks without a pause."""
    chunks: tuple[int, int] = (1000, 2500)
    """Chunks of a burst."""
    followers: int = 6
    """Followers of a burst."""
    burst_cut: float = 0.004
    """Probability that the follower of a burst disconnects after an event."""


ORDINARY: Final = Pace()
DENSE: Final = Pace(
    between=(0.3, 2.0), kill_share=0.85, longest_pause=1.0, storms=(0.5, 2.5),
    clients=5, mcp_clients=3, bursts=2, followers=48,
)  # fmt: skip
"""Many followers of few tasks: an event that one task writes is encoded once, and counts for each follower."""
DENSE_CLUSTER: Final = Pace(
    cluster_between=(0.2, 1.6), storms=(0.5, 2.5), clients=5, mcp_clients=3, bursts=2, followers=48
)
HASTY: Final = Pace(
    between=(0.1, 0.8), kill_share=0.95, longest_pause=0.5, storms=(0.5, 2.5),
    clients=5, mcp_clients=3, bursts=1, followers=8,
)  # fmt: skip
"""A server that is killed again as soon as it serves."""
