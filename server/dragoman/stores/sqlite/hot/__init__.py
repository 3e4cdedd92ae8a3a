"""The optimized paths: group commit, write coalescing, reads on the event loop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class SqliteTimings:
    """Times in seconds, and intervals, of the optimized paths."""

    max_hold: float = 0.005
    """Longest time that a change waits while the loop is busy."""
    idle_turn: float = 40e-6
    """A loop iteration shorter than this did no work."""
    checkpoint_interval: int = 512
    """Commits between two checkpoints until the pages of a commit have been measured."""
    target_wal_pages: int = 4096
    """Pages that the write-ahead log should have when it restarts: 16 MiB."""
    max_wal_bytes: int = 64 * 1024 * 1024
    """Size of the write-ahead log from which the writer truncates it."""


DEFAULT_TIMINGS: Final = SqliteTimings()
