"""The optimized paths: group commit, write coalescing, reads on the event loop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class SqliteTimings:
    """Times in seconds, intervals and batch sizes."""

    max_hold: float = 0.005  # longest time that a change waits while the loop is busy
    idle_iteration: float = 40e-6  # a loop iteration shorter than this did no work
    max_batch: int = 512  # changes in one commit: bounds how long the first waits for the last
    low_priority_interval: int = 64
    """Commits after which a waiting low-priority write runs even under load, so that a busy store is maintained too."""
    checkpoint_interval: int = 512  # commits between two checkpoints until the pages of a commit were measured
    target_wal_pages: int = 4096  # pages that the write-ahead log should have when it restarts: 16 MiB
    max_wal_bytes: int = 64 * 1024 * 1024  # size of the write-ahead log from which the writer truncates it
    backup_pages: int = 256  # pages that a backup copies at a time: 1 MiB


DEFAULT_TIMINGS: Final = SqliteTimings()
