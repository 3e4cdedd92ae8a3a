"""What an operator may say about the room that tasks take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Sizes:
    """When rows are joined, when logs are cut (0 is never), and how large answers become."""

    fold_rows: int = 256
    """Rows that made the artifacts of a running task grow, from which on they are joined."""
    cut_after: float = 86400.0
    """Seconds from the end of a task until only the last events of its log are kept."""
    inline_bytes: int = 16 * 1024 * 1024
    """Bytes of large parts in one answer; what is past it is given as links."""


DEFAULT: Final = Sizes()
